"""Training the machine: layer by layer on pairs, then the readout; no gradient crosses a layer."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fermibose import __version__
from fermibose.compute import Interrupted
from fermibose.errors import InputError
from fermibose.machine.checkpoint import Checkpoint, Records
from fermibose.machine.inputs import Examples, SplitInputs, count_classes, training_examples
from fermibose.machine.local_rule import Dense
from fermibose.machine.loop import Adam, Ending, Stage, compute_settings, train_stages
from fermibose.machine.network import FermiBoseNet
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


class LocalLayer:
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
        self.epochs, self.samples = recipe.epochs, len(x)
        self.layer = net.local_layers[number]
        self.recipe, self.generator, self.y = recipe, generator, y
        # What the frozen layers below make of the inputs is fixed, unless inputs are transformed.
        self.below: Callable[[Tensor], Tensor] | None = None
        with torch.no_grad():
            self.x = x if recipe.pairing.transforms_inputs else net.represent(x, number)
        if recipe.pairing.transforms_inputs and number > 0:
            self.below = partial(net.represent, depth=number)
        self.split = None
        if not recipe.pairing.transforms_inputs:
            self.split = SplitInputs.of(self.layer, self.x)
        if self.split is not None:
            self.x = self.x[:, self.split.live].contiguous()
        self.optimiser = Adam(
            self.split.parameters() if self.split else self.layer.parameters(),
            learning_rate=recipe.learning_rate,
            weight_decay=recipe.weight_decay / recipe.hidden[number],
        )

    def step(self, index: Tensor) -> Mapping[str, float]:
        """One Adam step on the pairs of the samples ``index``."""
        x, labels = self.recipe.pairing.views(
            self.x.index_select(0, index), self.y.index_select(0, index), self.generator
        )
        if self.below is not None:
            x = self.below(x)
        layer = self.split.learner if self.split else self.layer
        report = layer.learn_from(x, labels, self.recipe.energy, activity=self.recipe.activity)
        self.optimiser.step()
        return {
            "boson_distance": report.boson_distance,
            "fermion_distance": report.fermion_distance,
            "energy": report.energy,
            "boson_share": report.boson_share,
        }

    def end_epoch(self) -> Mapping[str, float]:
        """Nothing beyond the records of the mini-batches; the net's own weights are up to date."""
        if self.split:
            self.split.join(self.layer)
        return {}


class CrossEntropyReadout:
    r"""Stage that minimises the mean cross-entropy of softmax(hV) over V, one Adam step a batch.

    The gradient in closed form: :math:`\partial L/\partial V = \frac1B h^\top (p - \mathbb 1_y)`.
    ``test`` (representations, labels) adds a test accuracy to each epoch's record.
    """

    name = "readout"

    def __init__(
        self,
        readout: Dense,
        h: Tensor,
        y: Tensor,
        recipe: Recipe,
        *,
        test: Examples | None = None,
    ) -> None:
        self.readout, self.h, self.y, self.test = readout, h, y, test
        self.epochs, self.samples = recipe.readout_epochs, len(h)
        readout.weight.grad = torch.zeros_like(readout.weight)
        self.optimiser = Adam([readout.weight], learning_rate=recipe.readout_learning_rate)

    @torch.no_grad()
    def step(self, index: Tensor) -> Mapping[str, float]:
        """One Adam step on the samples ``index``; records nothing per batch."""
        h, y = self.h[index], self.y[index]
        residual = self.readout(h).softmax(1)
        residual[torch.arange(len(y)), y] -= 1
        torch.mm(h.T, residual.div_(len(y)), out=self.readout.weight.grad)
        self.optimiser.step()
        return {}

    def end_epoch(self) -> Mapping[str, float]:
        """Loss and accuracy on the training set, and accuracy on the test set if there is one."""
        return scores(self.readout, (self.h, self.y), self.test)


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
        partial(LocalLayer, net, number, inputs, labels, recipe, generator)
        for number in range(len(recipe.hidden))
    ]
    if recipe.readout == "cross_entropy":
        stages.append(partial(_readout_stage, net, inputs, labels, recipe, test_examples))
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
        if recipe.readout == "ridge" or (not ending.complete and "readout" not in records):
            solve_ridge(net.readout, net.represent(inputs), labels, ridge=recipe.ridge)
            final = scores(net, (inputs, labels), test_examples)
            records["readout"] = {name: [value] for name, value in final.items()}
    if ending.complete:
        _warn_of_collapse(records, recipe, inputs)
    return conclude(net, records, recipe, ending)


def _warn_of_collapse(records: Records, recipe: Recipe, x: Tensor) -> None:
    """Warn the caller's caller of each layer whose D² shrank to ≈ 0 for both kinds of pairs.

    The last epoch is measured by d_F, or by the first mini-batch if nothing repels.
    """
    energy, epoch = recipe.energy, -(-len(x) // recipe.batch_size)
    for number in range(1, len(recipe.hidden) + 1):
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


def _readout_stage(
    net: FermiBoseNet, x: Tensor, y: Tensor, recipe: Recipe, test: Examples | None
) -> CrossEntropyReadout:
    test_h = (net.represent(test[0]), test[1]) if test is not None else None
    return CrossEntropyReadout(net.readout, net.represent(x), y, recipe, test=test_h)


def new_net(x: Tensor, y: Tensor, recipe: Recipe) -> tuple[FermiBoseNet, torch.Generator]:
    """A net of the recipe's shape with its first weights, and the generator that goes on."""
    outputs = count_classes(y)
    try:
        net = FermiBoseNet(
            x.shape[1],
            recipe.hidden,
            outputs,
            activation=recipe.activation,
            bias=recipe.bias,
            readout_bias=recipe.readout == "ridge",
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
def solve_ridge(readout: Dense, h: Tensor, y: Tensor, *, ridge: float) -> None:
    r"""Set the readout to the minimum of the ridge regression on targets ±1.

    .. math:: \frac1n \sum_i |h_i V + c - t_i|^2 + r |V|^2, \quad t_{ik} = 2\,\mathbb 1[y_i = k] - 1

    Solved in float64 in the smaller of sample space and unit space. The intercept c is free if the
    readout has a bias, else 0.
    """
    n, units = h.shape
    targets = -torch.ones(n, readout.weight.shape[1], dtype=torch.float64)
    targets[torch.arange(n), y] = 1
    h = h.double()
    if readout.bias is not None:
        h_mean, t_mean = h.mean(0), targets.mean(0)
        h, targets = h - h_mean, targets - t_mean
    if units <= n:
        weights = torch.linalg.solve(h.T @ h + n * ridge * torch.eye(units).double(), h.T @ targets)
    else:
        weights = h.T @ torch.linalg.solve(h @ h.T + n * ridge * torch.eye(n).double(), targets)
    readout.weight.copy_(weights)
    if readout.bias is not None:
        readout.bias.copy_(t_mean - h_mean @ weights)


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
