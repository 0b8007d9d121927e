"""Training the machine: layer by layer on pairs, then the readout; no gradient crosses a layer."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fermibose import __version__
from fermibose.compute import Interrupted
from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine.checkpoint import Checkpoint, Records
from fermibose.machine.inputs import Examples, SplitInputs, count_classes, training_examples
from fermibose.machine.local_rule import CHUNK, Dense, LocalDense
from fermibose.machine.loop import Adam, Ending, Stage, compute_settings, train_stages
from fermibose.machine.network import FermiBoseNet
from fermibose.machine.pairing import Augmented, Transform, transformed
from fermibose.machine.readouts import (
    KernelReadout,
    KernelRidge,
    solve_prototypes,
    solve_ridge,
)
from fermibose.machine.recipe import Recipe, fingerprint

History = dict[str, dict[str, npt.NDArray[np.float64]]]
# Fraction of d_F below which fermion pairs have collapsed. With boson weight 100, 200 of
# scikit-learn's digits end at 0.3 d_F and are classified, 500 at 0.03 d_F and are not (20 %; one
# seed each); small inputs and circles with the settings of pictures end below 10⁻⁶ d_F.
COLLAPSED = 0.1


class CollapseWarning(UserWarning):
    """The representations of all inputs are nearly the same: nothing can be read off them."""


@dataclass(frozen=True)
class Training:
    """A trained net with its history.

    history: ``"layer 1"`` … hold ``boson_distance``, ``fermion_distance``, ``energy`` and
    ``boson_share`` (boson pairs per pair) for each mini-batch (NaN where a batch has no such pair);
    ``"readout"`` holds ``loss``, ``train_accuracy`` and, with a test set, ``test_accuracy`` for
    each epoch.
    """

    net: FermiBoseNet
    history: History
    recipe: Recipe
    interrupted: bool = False  # Ctrl-C ended it before the last epoch


class LayerStage:
    """Stage that trains one hidden layer on the pairs of its own output."""

    def __init__(
        self,
        net: FermiBoseNet,
        number: int,
        x: Tensor,
        y: Tensor,
        recipe: Recipe,
        generator: torch.Generator,
    ) -> None:
        self.name = f"layer {number + 1}"
        self.lesson = lesson = recipe.lesson(number)
        self.epochs, self.samples = lesson.epochs, len(x)
        self.layer = net.local_layers[number]
        self.recipe, self.generator, self.y = recipe, generator, y
        # What the frozen layers below make of the inputs is fixed, unless inputs are changed.
        changed = recipe.pairing.transforms_inputs or lesson.adversary is not None
        self.below: Callable[[Tensor], Tensor] | None = None
        with torch.no_grad():
            self.x = x if changed else net.represent(x, number)
        if changed and number > 0:
            self.below = partial(net.represent, depth=number)
        self.split = None
        if not changed and isinstance(self.layer, LocalDense):
            self.split = SplitInputs.of(self.layer, self.x)
        if self.split is not None:
            self.x = self.x[:, self.split.live].contiguous()
        self.steps = lesson.epochs * -(-len(x) // recipe.batch_size)
        self.optimiser = Adam(
            self.split.parameters() if self.split else self.layer.parameters(),
            learning_rate=lesson.learning_rate,
            weight_decay=recipe.weight_decay / self.layer.units,
            cosine=self.steps if recipe.schedule == "cosine" else 0,
            averaging=recipe.averaging,
        )

    def step(self, index: Tensor) -> Mapping[str, float]:
        """One Adam step on the pairs of the samples ``index``."""
        recipe, lesson = self.recipe, self.lesson
        x, labels = recipe.pairing.views(
            self.x.index_select(0, index), self.y.index_select(0, index), self.generator
        )
        layer = self.split.learner if self.split else self.layer
        queries: dict[str, Any] = {}
        if lesson.adversary is not None:
            adversary = lesson.adversary.at((self.optimiser.done + 1) / self.steps)
            perturbed = adversary.perturb(self._head, x, labels, lesson.energy, self.generator)
            queries = {"perturbed": self._below(perturbed)} | adversary.roles
        report = layer.learn_from(
            self._below(x), labels, lesson.energy, activity=recipe.activity, **queries
        )
        self.optimiser.step()
        layer.constrain()
        return {
            "boson_distance": report.boson_distance,
            "fermion_distance": report.fermion_distance,
            "energy": report.energy,
            "boson_share": report.boson_share,
        }

    def _below(self, x: Tensor) -> Tensor:
        """What reaches the layer of such inputs."""
        return x if self.below is None else self.below(x)

    def _head(self, x: Tensor) -> Tensor:
        """What its energy sees of them."""
        return self.layer.head(self.layer(self._below(x)))

    def end_epoch(self) -> Mapping[str, float]:
        """Nothing beyond the records of the mini-batches; the net's own weights are up to date."""
        if self.split and isinstance(self.layer, LocalDense):
            self.split.join(self.layer)
        return {}

    def finish(self) -> None:
        """The averaged weights, if asked for, take the place of the last ones."""
        self.optimiser.finish()
        self.end_epoch()


class CrossEntropyReadout:
    r"""Stage that minimises the mean cross-entropy of softmax(hV) over V, one Adam step a batch.

    The gradient in closed form: :math:`\partial L/\partial V = \frac1B h^\top (p - \mathbb 1_y)`.
    ``test`` (representations, labels) adds a test accuracy to each epoch's record.
    """

    name = "readout"

    def __init__(
        self,
        net: FermiBoseNet,
        x: Tensor,
        y: Tensor,
        recipe: Recipe,
        generator: torch.Generator,
        *,
        test: Examples | None = None,
    ) -> None:
        assert isinstance(net.readout, Dense)
        self.net, self.readout, self.x, self.y = net, net.readout, x, y
        self.h = net.represent(x)
        self.test = (net.represent(test[0]), test[1]) if test is not None else None
        self.generator = generator
        # Labels are augmented with their inputs; pairs without labels say nothing about classes.
        self.transforms = transforms_of(recipe)
        self.epochs, self.samples = recipe.readout_epochs, len(x)
        self.readout.weight.grad = torch.zeros_like(self.readout.weight)
        self.optimiser = Adam([self.readout.weight], learning_rate=recipe.readout_learning_rate)

    @torch.no_grad()
    def step(self, index: Tensor) -> Mapping[str, float]:
        """One Adam step on the samples ``index``; records nothing per batch."""
        y = self.y[index]
        if self.transforms:
            h = self.net.represent(transformed(self.x[index], self.transforms, self.generator))
        else:
            h = self.h[index]
        residual = self.readout(h).softmax(1)
        residual[torch.arange(len(y)), y] -= 1
        torch.mm(h.T, residual.div_(len(y)), out=self.readout.weight.grad)
        self.optimiser.step()
        return {}

    def end_epoch(self) -> Mapping[str, float]:
        """Loss and accuracy on the training set, and accuracy on the test set if there is one."""
        return scores(self.readout, (self.h, self.y), self.test)

    def finish(self) -> None:
        """Nothing is left to do."""


def train(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    recipe: Recipe | None = None,
    *,
    test: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    checkpoint: str | Path | None = None,
    show: bool | None = None,
) -> Training:
    """Train a machine on inputs x (samples, features) in [0, 1] and labels y in 0…K−1.

    Inputs in another range are used as they are, with a :class:`RangeWarning`.

    test: inputs and labels whose accuracy is recorded each readout epoch. checkpoint: file to
    resume from if it exists, kept up to date meanwhile; at the end it holds the finished training
    (a second call returns it at once), so remove it when the net is saved. show: progress bars
    on, off, or (None) only on a terminal.

    Ctrl-C stops after the current epoch with an :class:`fermibose.compute.Interrupted`, so that
    nobody takes half a training for a complete one. Its ``done`` is the training so far: layers
    trained so far are kept, later ones stay as initialised, and a readout that was not reached is
    solved in closed form, so that the net is usable. The checkpoint, if any, resumes the training
    proper.

    A layer that ends with all representations in one point is named in a :class:`CollapseWarning`.
    """
    recipe = recipe or Recipe()
    inputs, labels, test_examples = training_examples(x, y, test)
    net, generator = new_net(inputs, labels, recipe)
    keeper = None
    if checkpoint is not None:
        keeper = Checkpoint(checkpoint, fingerprint(recipe, inputs, labels, *(test_examples or ())))
    stages: list[Callable[[], Stage]] = [
        partial(LayerStage, net, number, inputs, labels, recipe, generator)
        for number in range(len(recipe.hidden))
    ]
    if recipe.readout == "cross_entropy":
        stages.append(
            partial(CrossEntropyReadout, net, inputs, labels, recipe, generator, test=test_examples)
        )
    records: Records = {}
    with compute_settings(recipe.threads), torch.no_grad():
        ending = train_stages(
            net,
            stages,
            batch_size=recipe.batch_size,
            generator=generator,
            records=records,
            checkpoint=keeper,
            show=show,
        )
        if recipe.readout != "cross_entropy" or (not ending.complete and "readout" not in records):
            solve_readout(net, inputs, labels, recipe, generator)
            final = scores(net, (inputs, labels), test_examples)
            records["readout"] = {name: [value] for name, value in final.items()}
    if ending.complete:
        _warn_of_collapse(records, recipe, inputs)
    return conclude(net, records, recipe, ending)


def _warn_of_collapse(records: Records, recipe: Recipe, x: Tensor) -> None:
    """Warn the caller's caller of each layer whose D² shrank to ≈ 0 for both kinds of pairs.

    The last epoch is measured by d_F, or by the first mini-batch if nothing repels.
    """
    epoch = -(-len(x) // recipe.batch_size)
    for number in range(1, len(recipe.hidden) + 1):
        energy = recipe.lesson(number - 1).energy
        if not isinstance(energy, PairEnergy):  # a free energy has no scale to collapse to
            continue
        found = records.get(f"layer {number}", {"fermion_distance": [], "boson_distance": []})
        fermion, boson = found["fermion_distance"], found["boson_distance"]
        first, end = next(filter(math.isfinite, fermion), math.nan), _mean(fermion[-epoch:])
        aim = energy.d_f if energy.fermion_weight else 0.0
        limit = min(COLLAPSED * aim, first) if aim else COLLAPSED * first
        if not end < limit or _mean(boson[-epoch:]) >= limit:  # nor without any such pair (NaN)
            continue
        activity = f" or activity (now {recipe.activity:g})" if recipe.activity else ""
        warnings.warn(
            f"layer {number} has collapsed: its fermion pairs end at a mean D² of {end:.1g}, where "
            f"d_f is {energy.d_f:g}, so the readout sees nearly the same for every input. "
            "Attraction or a penalty outweighs repulsion: use a smaller boson_weight (now "
            f"{energy.boson_weight:g}) or weight_decay (now {recipe.weight_decay:g}){activity}, a "
            "larger fermion_weight or d_f, or inputs on a larger scale (their root mean square is "
            f"{float(x.square().mean().sqrt()):.2g}; FermiBoseClassifier scales them by itself)",
            CollapseWarning,
            stacklevel=3,
        )


def _mean(values: list[float]) -> float:
    """Mean without the mini-batches that had no such pair (NaN); NaN if none had."""
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else math.nan


def transforms_of(recipe: Recipe) -> Sequence[Transform]:
    """The transformations under which an input keeps its class."""
    return recipe.pairing.transforms if isinstance(recipe.pairing, Augmented) else ()


def solve_readout(
    net: FermiBoseNet, x: Tensor, y: Tensor, recipe: Recipe, generator: torch.Generator
) -> None:
    """Set the readout in closed form."""
    if isinstance(net.readout, KernelReadout):
        assert isinstance(recipe.readout, KernelRidge)
        transforms = transforms_of(recipe)
        copies = recipe.readout.copies if transforms else 0
        keys = [x, *(transformed(x, transforms, generator) for _ in range(copies))]
        h = torch.cat([net.represent(part) for key in keys for part in key.split(CHUNK)])
        net.readout.solve(h, y.repeat(len(keys)), recipe.readout, generator)
    elif recipe.readout == "prototype":
        solve_prototypes(net.readout, net.represent(x), y)
    else:
        solve_ridge(net.readout, net.represent(x), y, ridge=recipe.ridge)


def new_net(x: Tensor, y: Tensor, recipe: Recipe) -> tuple[FermiBoseNet, torch.Generator]:
    """A net of the recipe's shape with its first weights, and the generator that goes on."""
    outputs, kernel = count_classes(y), None
    if isinstance(recipe.readout, KernelRidge):
        kernel = recipe.readout.sizes(len(x), augmented=bool(transforms_of(recipe)))
    try:
        net = FermiBoseNet(
            x.shape[1],
            recipe.hidden,
            outputs,
            image_shape=recipe.image_shape,
            activation=recipe.activation,
            bias=recipe.bias,
            readout_bias=recipe.readout in ("ridge", "prototype"),
            kernel=kernel,
            info={"fermibose": __version__, "torch": torch.__version__, "recipe": recipe.as_dict()},
        )
    except RuntimeError as error:  # of torch's allocator
        raise InputError(
            f"hidden layers of {recipe.hidden} units do not fit into memory: use fewer"
        ) from error
    generator = torch.Generator().manual_seed(recipe.seed)
    net.initialise(generator)
    return net, generator


@torch.no_grad()
def scores(model: nn.Module, data: Examples, test: Examples | None) -> dict[str, float]:
    """Cross-entropy and accuracy on ``data``, and accuracy on ``test`` if given."""
    logits = model(data[0])
    found = {
        "loss": float(nn.functional.cross_entropy(logits, data[1])),
        "train_accuracy": accuracy(logits, data[1]),
    }
    if test is not None:
        found["test_accuracy"] = accuracy(model(test[0]), test[1])
    return found


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Fraction of rows whose largest logit is that of their class."""
    return float((logits.argmax(1) == y).double().mean())


def conclude(net: FermiBoseNet, records: Records, recipe: Recipe, ending: Ending) -> Training:
    """The training, its net frozen, its records arrays; after Ctrl-C, raised in an Interrupted."""
    net.requires_grad_(False).eval()
    history = {
        stage: {name: np.array(values) for name, values in quantities.items()}
        for stage, quantities in records.items()
    }
    training = Training(net, history, recipe, interrupted=not ending.complete)
    if ending.pressed:
        raise Interrupted(training)
    return training
