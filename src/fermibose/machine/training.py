"""Training the machine: layer by layer on pairs, then the readout; no gradient crosses a layer."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fermibose import __version__
from fermibose.errors import InputError
from fermibose.machine.adam import Adam
from fermibose.machine.checkpoint import Checkpoint
from fermibose.machine.compute import compute_settings
from fermibose.machine.dead_inputs import SplitInputs
from fermibose.machine.examples import as_tensors, as_test_tensors, count_classes, warn_of_range
from fermibose.machine.loop import Records, Stage, run_stages
from fermibose.machine.network import FermiBoseNet
from fermibose.machine.readout import CrossEntropyReadout, Examples, scores, solve_ridge
from fermibose.machine.recipe import Recipe

History = dict[str, dict[str, npt.NDArray[np.float64]]]


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
    on, off, or (None) only on a terminal. Ctrl-C stops after the current epoch: layers trained so
    far are kept, later ones stay as initialised, and a readout that was not reached is solved in
    closed form, so that the net is usable; the checkpoint, if any, resumes the training proper.
    """
    recipe = recipe or Recipe()
    inputs, labels = as_tensors(x, y)
    warn_of_range(inputs)
    test_tensors = as_test_tensors(test, inputs.shape[1])
    net, generator = new_net(inputs, labels, recipe)
    keeper = None
    if checkpoint is not None:
        keeper = Checkpoint(checkpoint, fingerprint(recipe, inputs, labels, *(test_tensors or ())))
    stages: list[Callable[[], Stage]] = [
        partial(LocalLayer, net, number, inputs, labels, recipe, generator)
        for number in range(len(recipe.hidden))
    ]
    if recipe.readout == "cross_entropy":
        stages.append(partial(_readout_stage, net, inputs, labels, recipe, test_tensors))
    records: Records = {}
    with compute_settings(recipe.threads), torch.no_grad():
        complete = run_stages(
            net,
            stages,
            batch_size=recipe.batch_size,
            generator=generator,
            records=records,
            checkpoint=keeper,
            show=show,
        )
        if recipe.readout == "ridge" or (not complete and "readout" not in records):
            solve_ridge(net.readout, net.represent(inputs), labels, ridge=recipe.ridge)
            final = scores(net, (inputs, labels), test_tensors)
            records["readout"] = {name: [value] for name, value in final.items()}
    return Training(net, as_history(records), recipe, interrupted=not complete)


def new_net(x: Tensor, y: Tensor, recipe: Recipe) -> tuple[FermiBoseNet, torch.Generator]:
    """A net of the recipe's shape with its first weights, and the generator that goes on."""
    outputs = count_classes(y)
    try:
        net = FermiBoseNet(
            x.shape[1],
            [int(units) for units in recipe.hidden],
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


def as_history(records: Records) -> History:
    """The records as arrays."""
    return {
        stage: {name: np.array(values) for name, values in quantities.items()}
        for stage, quantities in records.items()
    }


def fingerprint(recipe: Recipe, *data: Tensor) -> str:
    """Hash of all that determines a training and its records: version, recipe, data, test data."""
    digest = hashlib.sha256(json.dumps([__version__, recipe.as_dict()]).encode())
    for tensor in data:
        digest.update(repr(tensor.shape).encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _readout_stage(
    net: FermiBoseNet,
    x: Tensor,
    y: Tensor,
    recipe: Recipe,
    test: Examples | None,
) -> CrossEntropyReadout:
    test_h = (net.represent(test[0]), test[1]) if test is not None else None
    return CrossEntropyReadout(net.readout, net.represent(x), y, recipe, test=test_h)
