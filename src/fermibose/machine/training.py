"""Training the machine: layer by layer on pairs, then the readout; no gradient crosses a layer."""

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from fermibose import __version__
from fermibose.compute import Interrupted, fraction, widest
from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine import cores
from fermibose.machine.checkpoint import Checkpoint, Records
from fermibose.machine.free_energy import FreeEnergy
from fermibose.machine.inputs import HELD, Source, count_classes, training_sources
from fermibose.machine.local_rule import CHUNK, STRIP, Columns, Dense, LocalDense, blocks_of
from fermibose.machine.loop import (
    ALONE,
    Adam,
    Ending,
    Sharing,
    Stage,
    compute_settings,
    train_stages,
)
from fermibose.machine.network import FermiBoseNet
from fermibose.machine.pairing import Augmented, ByLabel, Transform, transformed
from fermibose.machine.ranks import Ranks, SharedCheckpoint
from fermibose.machine.readouts import (
    KernelReadout,
    KernelRidge,
    solve_prototypes,
    solve_ridge,
)
from fermibose.machine.recipe import Recipe, fingerprint
from fermibose.summary import Summarised, table

if TYPE_CHECKING:
    from pandas import DataFrame

History = dict[str, dict[str, npt.NDArray[np.float64]]]
# Fraction of d_F below which fermion pairs have collapsed: those of tests/machine/test_collapse.py
# that must warn end below half of it, those that learn do not warn. Between them: with boson weight
# 100 and the settings there, 200 of scikit-learn's digits end at 0.3 d_F, 500 at 0.08 d_F.
COLLAPSED = 0.1
TOLD = 512  # samples that a model classifies at once: fast, and little to hold


class CollapseWarning(UserWarning):
    """The representations of all inputs are nearly the same: nothing can be read off them."""


@dataclass(frozen=True, repr=False)
class Training(Summarised):
    """A trained net with its history.

    history: ``"layer 1"`` … hold ``boson_distance``, ``fermion_distance``, ``energy`` and
    ``boson_share`` (boson pairs per pair) for each mini-batch (NaN where a batch has no such pair);
    ``"readout"``, or ``"mlp"`` of a baseline, holds ``loss``, ``train_accuracy`` and, with a test
    set, ``test_accuracy`` for each epoch; once, where the readout is solved.
    """

    net: FermiBoseNet
    history: History
    recipe: Recipe
    interrupted: bool = False  # Ctrl-C ended it before the last epoch

    @property
    def summary(self) -> str:
        """The net, and how well it classifies at the end."""
        record = self.history.get("readout") or self.history.get("mlp") or {}
        names = {"train_accuracy": "training", "test_accuracy": "test"}
        told = [f"{name} {record[key][-1]:.1%}" for key, name in names.items() if key in record]
        accuracy = f"; accuracy {', '.join(told)}" if told else ""
        return f"{self.net.summary}{accuracy}{'; interrupted' * self.interrupted}"

    def to_frame(self) -> "DataFrame":
        """The history: a row for each stage and step (mini-batch, or epoch of a readout)."""
        import pandas

        if not self.history:
            return pandas.DataFrame(columns=["stage", "step"])
        parts = {stage: table(columns) for stage, columns in self.history.items()}
        return pandas.concat(parts, names=["stage", "step"]).reset_index()


class LayerStage:
    """Stage that trains one hidden layer on the pairs of its own output."""

    def __init__(
        self,
        net: FermiBoseNet,
        number: int,
        x: Source,
        y: Tensor,
        recipe: Recipe,
        generator: torch.Generator,
        ranks: Sharing = ALONE,
    ) -> None:
        self.ranks = ranks
        self.name = f"layer {number + 1}"
        self.lesson = lesson = recipe.lesson(number)
        self.epochs, self.samples = lesson.epochs, len(x)
        self.layer = net.local_layers[number]
        self.recipe, self.generator, self.y = recipe, generator, y
        # What the frozen layers below make of the inputs is fixed, unless inputs are changed.
        changed = recipe.pairing.transforms_inputs or lesson.adversary is not None
        self.below: Callable[[Tensor], Tensor] | None = None
        below = partial(net.represent, depth=number)
        with torch.no_grad():
            self.x = x if changed or not number else x.map(below, net.width(number))
        if changed and number > 0:
            self.below = below
        self.steps = lesson.epochs * -(-len(x) // recipe.batch_size)
        adam: dict[str, Any] = {
            "learning_rate": lesson.learning_rate,
            "weight_decay": recipe.weight_decay / self.layer.units,
            "cosine": self.steps if recipe.schedule == "cosine" else 0,
            "averaging": recipe.averaging,
        }
        self.columns = None
        if isinstance(self.layer, LocalDense) and lesson.adversary is None:
            lit = None if changed else self.x.survey.lit
            size = min(recipe.batch_size, len(x))
            self.columns = Columns.of(self.layer, lit, lesson.energy, size, ranks, **adam)
        if self.columns is not None and len(self.columns.dead):
            live = self.columns.live
            self.x = self.x.map(lambda rows: rows.index_select(1, live), len(live))
        self.optimiser = (
            self.columns.optimiser if self.columns else Adam(self.layer.parameters(), **adam)
        )
        self.coming: tuple[Tensor, Tensor] | None = None  # inputs and labels of the next mini-batch

    def step(self, index: Tensor, following: Tensor | None = None) -> Mapping[str, float]:
        """One Adam step on the pairs of the samples ``index``."""
        energy, activity = self.lesson.energy, self.recipe.activity
        if self.columns is not None and self.columns.closed:
            assert isinstance(energy, PairEnergy)
            x, labels = self.coming or self._batch(index)
            self.coming = None if following is None else self._batch(following)
            then = None if self.coming is None else self.coming[0]
            report = self.columns.learn(x, labels, energy, activity=activity, following=then)
        else:
            x, labels, queries = self._queries(index)
            layer = self.columns.blocks[0].learner if self.columns else self.layer
            report = layer.learn_from(
                x, labels, energy, activity=activity, ranks=self.ranks, **queries
            )
            self.optimiser.step()
            layer.constrain()
        return {
            "boson_distance": report.boson_distance,
            "fermion_distance": report.fermion_distance,
            "energy": report.energy,
            "boson_share": report.boson_share,
        }

    def _batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """What reaches the layer of these samples, and their labels."""
        x, labels, _ = self._queries(index)
        return x, labels

    def _queries(self, index: Tensor) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """The same, and what a local adversary makes of them; of many ranks, this one's part."""
        recipe, lesson, ranks = self.recipe, self.lesson, self.ranks
        labels = self.y.index_select(0, index)
        everywhere = lesson.adversary is not None or type(recipe.pairing) is not ByLabel
        x = self.x.rows(index if everywhere else ranks.part(index))
        if everywhere:  # every rank draws the same random numbers, for all rows
            x, labels = recipe.pairing.views(x, labels, self.generator)
        queries: dict[str, Any] = {}
        if lesson.adversary is not None:
            adversary = lesson.adversary.at((self.optimiser.done + 1) / self.steps)
            perturbed = adversary.perturb(
                self._head, x, labels, lesson.energy, self.generator, ranks
            )
            queries = {"perturbed": self._below(perturbed)} | adversary.roles
        if everywhere:
            x = ranks.part(x)
        return self._below(x), labels, queries

    def _below(self, x: Tensor) -> Tensor:
        """What reaches the layer of such inputs."""
        return x if self.below is None else self.below(x)

    def _head(self, x: Tensor) -> Tensor:
        """What its energy sees of them."""
        return self.layer.head(self.layer(self._below(x)))

    def end_epoch(self) -> Mapping[str, float]:
        """Nothing beyond the records of the mini-batches; the net's own weights are up to date."""
        if self.columns is not None:
            self.columns.join()
        return {}

    def finish(self) -> None:
        """The averaged weights, if asked for, take the place of the last ones."""
        self.optimiser.finish()
        self.layer.constrain()  # averages are taken before it
        self.end_epoch()


class CrossEntropyReadout:
    r"""Stage that minimises the mean cross-entropy of softmax(hV) over V, one Adam step a batch.

    The gradient in closed form: :math:`\partial L/\partial V = \frac1B h^\top (p - \mathbb 1_y)`.
    ``test`` (inputs, labels) adds a test accuracy to each epoch's record.
    """

    name = "readout"

    def __init__(
        self,
        net: FermiBoseNet,
        x: Source,
        y: Tensor,
        recipe: Recipe,
        generator: torch.Generator,
        *,
        test: tuple[Source, Tensor] | None = None,
        ranks: Sharing = ALONE,
    ) -> None:
        assert isinstance(net.readout, Dense)
        self.ranks = ranks
        self.net, self.readout, self.x, self.y = net, net.readout, x, y
        self.h = represented(net, x)
        self.test = (represented(net, test[0]), test[1]) if test is not None else None
        self.aims = torch.eye(net.config["outputs"], device=x.device)
        self.generator = generator
        # Labels are augmented with their inputs; pairs without labels say nothing about classes.
        self.transforms = transforms_of(recipe)
        self.epochs, self.samples = recipe.readout_epochs, len(x)
        self.optimiser = Adam([self.readout.weight], learning_rate=recipe.readout_learning_rate)

    @torch.no_grad()
    def step(self, index: Tensor, following: Tensor | None = None) -> Mapping[str, float]:
        """One Adam step on the samples ``index``; records nothing per batch."""
        ranks, here = self.ranks, self.ranks.share(len(index))
        y = self.y.index_select(0, ranks.part(index))
        if self.transforms:
            x = transformed(self.x.rows(index), self.transforms, self.generator)
            h = self.net.represent(ranks.part(x))
        else:
            h = self.h.rows(ranks.part(index))
        residual = self.readout(h).softmax(1)
        residual.sub_(self.aims.index_select(0, y))
        if ranks.count > 1:
            residual[here.stop - here.start :] = 0  # rows that were added
        gradient = cores.product(h.T, residual.div_(len(index)))
        (self.readout.weight.grad,) = ranks.total(gradient)
        self.optimiser.step()
        return {}

    def end_epoch(self) -> Mapping[str, float]:
        """Loss and accuracy on the training set, and accuracy on the test set if there is one."""
        return scores(self.readout, (self.h, self.y), self.test)

    def finish(self) -> None:
        """Nothing is left to do."""


def train(
    x: npt.ArrayLike | Source | Dataset[Any],
    y: npt.ArrayLike | None = None,
    recipe: Recipe | None = None,
    *,
    test: tuple[Any, npt.ArrayLike | None] | None = None,
    checkpoint: str | Path | None = None,
    show: bool | None = None,
    ranks: Sharing = ALONE,
) -> Training:
    """Train a machine on inputs x (samples, features) in [0, 1] and labels y in 0…K−1.

    It learns where the inputs are, on the device of x if that is a tensor. Inputs in another range
    are used as they are, with a :class:`RangeWarning`. An array of more than 64 MB stays where it
    is, in memory or in a mapped file; so do :class:`Streamed` inputs and a Dataset of torch, which
    brings its labels along if y is None.

    test: inputs and labels whose accuracy is recorded each readout epoch. checkpoint: file to
    resume from if it exists, kept up to date meanwhile; at the end it holds the finished training
    (a second call returns it at once), so remove it when the net is saved. show: progress bars
    on, off, or (None) only on a terminal. ranks: processes that share the work, each of which calls
    this with the same data and recipe, see :func:`joined`; only the first writes and shows.

    Ctrl-C stops after the current epoch with an :class:`fermibose.compute.Interrupted`, so that
    nobody takes half a training for a complete one. Its ``done`` is the training so far: layers
    trained so far are kept, later ones stay as initialised, and a readout that was not reached is
    solved in closed form, so that the net is usable. The checkpoint, if any, resumes the training
    proper.

    A layer that ends with all representations in one point is named in a :class:`CollapseWarning`.
    """
    recipe = recipe or Recipe()
    inputs, labels, test_examples = training_sources(x, y, test)
    net, generator = new_net(inputs, labels, recipe)
    weights = sample_weights(labels, recipe)
    keeper = None
    if checkpoint is not None:
        known = fingerprint(recipe, inputs, labels, *(test_examples or ()))
        keeper = Checkpoint(checkpoint, known)
        if isinstance(ranks, Ranks):
            keeper = SharedCheckpoint(checkpoint, known, ranks)
    if isinstance(ranks, Ranks):  # a transformation that no checkpoint could tell is no obstacle
        ranks.check_same(fingerprint(replace(recipe, pairing=ByLabel()), inputs, labels))
    stages: list[Callable[[], Stage]] = [
        partial(LayerStage, net, number, inputs, labels, recipe, generator, ranks)
        for number in range(len(recipe.hidden))
    ]
    if recipe.readout == "cross_entropy":
        stages.append(
            partial(
                CrossEntropyReadout,
                net,
                inputs,
                labels,
                recipe,
                generator,
                test=test_examples,
                ranks=ranks,
            )
        )
    records: Records = {}
    with compute_settings(1), cores.several(recipe.threads), torch.no_grad():
        ending = train_stages(
            net,
            stages,
            batch_size=recipe.batch_size,
            generator=generator,
            records=records,
            weights=weights,
            checkpoint=keeper,
            show=show,
            ranks=ranks,
        )
        if recipe.readout != "cross_entropy" or (not ending.complete and "readout" not in records):
            solve_readout(net, inputs, labels, recipe, generator)
            final = scores(net, (inputs, labels), test_examples)
            records["readout"] = {name: [value] for name, value in final.items()}
    if ending.complete and ranks.first:
        _warn_of_collapse(records, recipe, inputs)
    return conclude(net, records, recipe, ending)


def _warn_of_collapse(records: Records, recipe: Recipe, x: Source) -> None:
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
            f"{math.sqrt(x.survey.mean_square):.2g}; FermiBoseClassifier scales them by itself)",
            CollapseWarning,
            stacklevel=3,
        )


def _mean(values: list[float]) -> float:
    """Mean without the mini-batches that had no such pair (NaN); NaN if none had."""
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else math.nan


def sample_weights(y: Tensor, recipe: Recipe) -> Tensor | None:
    """Of each sample the weight of its class, (n,); None if all weigh the same."""
    if recipe.class_weight is None:
        return None
    if int(y.max()) >= len(recipe.class_weight):
        raise InputError(
            f"class_weight has {len(recipe.class_weight)} entries, but labels go up to "
            f"{int(y.max())}: give one for each class"
        )
    weights = torch.tensor(recipe.class_weight, dtype=widest(y.device), device=y.device)[y]
    if not weights.sum() > 0:
        raise InputError("class_weight is 0 for every sample: give a class that occurs more")
    return weights


def transforms_of(recipe: Recipe) -> Sequence[Transform]:
    """The transformations under which an input keeps its class."""
    return recipe.pairing.transforms if isinstance(recipe.pairing, Augmented) else ()


def _copied_by(recipe: Recipe) -> Sequence[Transform]:
    """What makes copies of labelled inputs for a kernel readout: of self-supervised pairs, too."""
    transforms: Sequence[Transform] = getattr(recipe.pairing, "transforms", ())
    return transforms


def represented(net: FermiBoseNet, x: Source) -> Source:
    """The representations of all inputs, held or computed when they are needed."""
    return x.map(net.represent, net.width())


class Keys(Source):
    """Representations of inputs and of transformed copies of them, the same in every pass."""

    def __init__(
        self,
        net: FermiBoseNet,
        x: Source,
        transforms: Sequence[Transform],
        copies: int,
        generator: torch.Generator,
    ) -> None:
        self.net, self.x, self.transforms, self.copies = net, x, transforms, copies
        self.generator, self.state = generator, generator.get_state()
        self.shape, self.device = (len(x) * (1 + copies), net.width()), x.device

    def rows(self, index: Tensor) -> Tensor:
        """Refused: they are met in order only."""
        raise TypeError("the keys of a kernel readout are met in order only: use blocks()")

    def blocks(self) -> Iterator[Tensor]:
        """All of them, x first; each pass draws the same copies."""
        self.generator.set_state(self.state)
        for number in range(1 + self.copies):
            for block in self.x.blocks():
                part = transformed(block, self.transforms, self.generator) if number else block
                yield torch.cat(cores.on_threads(self.net.represent, part.split(CHUNK)))


def keys_of(
    net: FermiBoseNet, x: Source, y: Tensor, recipe: Recipe, generator: torch.Generator
) -> tuple[Source, Tensor, Tensor | None]:
    """What a kernel readout learns from, x and its copies: representations, labels, weights."""
    assert isinstance(recipe.readout, KernelRidge)
    transforms = _copied_by(recipe)
    copies = recipe.readout.copies if transforms else 0
    keys: Source = Keys(net, x, transforms, copies, generator)
    if 4 * math.prod(keys.shape) <= HELD or len(keys) < keys.shape[1]:
        keys = keys.held()
    weights = sample_weights(y, recipe)
    many = 1 + copies
    return keys, y.repeat(many), None if weights is None else weights.repeat(many)


def solve_readout(
    net: FermiBoseNet, x: Source, y: Tensor, recipe: Recipe, generator: torch.Generator
) -> None:
    """Set the readout in closed form; prototypes are means within a class, which have no weight."""
    if isinstance(net.readout, KernelReadout):
        assert isinstance(recipe.readout, KernelRidge)
        h, classes, many = keys_of(net, x, y, recipe, generator)
        net.readout.solve(h, classes, recipe.readout, generator, many)
    elif recipe.readout == "prototype":
        solve_prototypes(net.readout, represented(net, x), y)
    else:
        weights = sample_weights(y, recipe)
        solve_ridge(net.readout, represented(net, x), y, ridge=recipe.ridge, weights=weights)


@torch.no_grad()
def with_readouts(
    training: Training, x: npt.ArrayLike, y: npt.ArrayLike, readouts: Sequence[KernelRidge]
) -> Iterator[FermiBoseNet]:
    """The trained hidden layers with one kernel readout after another, solved on the same keys.

    x, y: what the machine was trained on. The readouts may differ from the recipe's, and from each
    other, in width and penalty; the principal components and the keys are found once.
    """
    recipe = training.recipe
    inputs, labels, _ = training_sources(x, y, None)
    if not isinstance(recipe.readout, KernelRidge):
        raise InputError("the recipe has no kernel readout: train with readout=KernelRidge()")
    for readout in readouts:
        if replace(readout, width=recipe.readout.width, penalty=recipe.readout.penalty) != (
            recipe.readout
        ):
            raise InputError(
                "readouts on the same keys differ in width and penalty only, got "
                f"{readout} beside the recipe's {recipe.readout}"
            )
    generator = torch.Generator(inputs.device).manual_seed(recipe.seed)
    h, classes, weights = keys_of(training.net, inputs, labels, recipe, generator)
    assert isinstance(training.net.readout, KernelReadout)
    keys = training.net.readout.projected(h)
    state = generator.get_state()
    for readout in readouts:
        net = copy.deepcopy(training.net)
        assert isinstance(net.readout, KernelReadout)
        generator.set_state(state)  # all draw the same centres
        with compute_settings(1):
            net.readout.regress(keys, classes, readout, generator, weights)
        net.info = {**net.info, "recipe": replace(recipe, readout=readout).as_dict()}
        yield net


def new_net(x: Source | Tensor, y: Tensor, recipe: Recipe) -> tuple[FermiBoseNet, torch.Generator]:
    """A net of the recipe's shape with its first weights, and the generator that goes on."""
    outputs, kernel = count_classes(y), None
    if isinstance(recipe.readout, KernelRidge):
        kernel = recipe.readout.sizes(len(x), augmented=bool(_copied_by(recipe)))
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
    generator = torch.Generator(x.device).manual_seed(recipe.seed)
    net = net.to(x.device)
    net.initialise(generator)
    return net, generator


def memory_of(recipe: Recipe, *, samples: int, inputs: int) -> float:
    """Bytes that a training with dense layers takes at least, beside its inputs."""
    widths = [inputs, *(layer for layer in recipe.hidden if isinstance(layer, int))]
    weights = [below * units for below, units in pairwise(widths)]
    learning = 4 * max(weights, default=0)  # weights that move, gradient, Adam's two moments
    batch = min(recipe.batch_size, samples)
    # Matrices of all pairs that are held: their sum, and one for each block of units
    held = [1 + blocks_of(batch, *shape) for shape in pairwise(widths)] if batch**2 <= STRIP else []
    pairs = max(held, default=1) * min(batch**2, STRIP)
    # The inputs of a mini-batch, its representations, the forces on them, its pairs
    acting = batch * (inputs + 2 * max(widths[1:], default=0)) + pairs
    if any(isinstance(recipe.lesson(n).energy, FreeEnergy) for n in range(len(recipe.hidden))):
        acting += 10 * batch**2
    reading = min(samples * widths[-1], HELD // 4)  # what the readout sees
    return 4.0 * (sum(weights) + max(learning + acting, reading))  # in float32


@torch.no_grad()
def scores(
    model: Callable[[Tensor], Tensor],
    data: tuple[Source, Tensor],
    test: tuple[Source, Tensor] | None,
) -> dict[str, float]:
    """Cross-entropy and accuracy on ``data``, and accuracy on ``test`` if given."""
    logits = answers(model, data[0])
    found = {
        "loss": float(nn.functional.cross_entropy(logits, data[1])),
        "train_accuracy": accuracy(logits, data[1]),
    }
    if test is not None:
        found["test_accuracy"] = accuracy(answers(model, test[0]), test[1])
    return found


def answers(model: Callable[[Tensor], Tensor], x: Source) -> Tensor:
    """What the model says to all inputs, some at a time, (n, classes)."""
    told, start = torch.empty(0), 0
    for block in x.blocks():
        for part in cores.on_threads(model, block.split(TOLD)):
            if not start:  # in one place from the beginning: pieces would scatter over the memory
                told = part.new_empty(len(x), part.shape[1])
            told[start : start + len(part)] = part
            start += len(part)
    return told


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Fraction of rows whose largest logit is that of their class."""
    return fraction(logits.argmax(1) == y)


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
