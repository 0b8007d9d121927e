"""Baselines of the same shape: the MLP, trained jointly by backpropagation."""

from collections.abc import Mapping

import numpy.typing as npt
from torch import Tensor, nn

from fermibose.machine.adam import Adam
from fermibose.machine.compute import compute_settings
from fermibose.machine.loop import Records, run_stages
from fermibose.machine.network import FermiBoseNet
from fermibose.machine.readout import Examples, scores
from fermibose.machine.recipe import Recipe
from fermibose.machine.training import Training, as_history, as_tensors, new_net


class Backpropagation:
    """Stage that trains all weights of a net together on the cross-entropy, by autograd."""

    name = "mlp"

    def __init__(
        self,
        net: FermiBoseNet,
        x: Tensor,
        y: Tensor,
        *,
        epochs: int,
        learning_rate: float,
        weight_decay: float = 0.0,
        test: Examples | None = None,
    ) -> None:
        self.net, self.x, self.y, self.test = net, x, y, test
        self.epochs, self.samples = epochs, len(x)
        parameters = list(net.requires_grad_(True).parameters())
        self.optimiser = Adam(parameters, learning_rate=learning_rate, weight_decay=weight_decay)

    def step(self, index: Tensor) -> Mapping[str, float]:
        """One Adam step on the samples ``index``."""
        y = self.y[index]
        self.net.zero_grad()
        nn.functional.cross_entropy(self.net(self.x[index]), y).backward()
        self.optimiser.step()
        return {}

    def end_epoch(self) -> Mapping[str, float]:
        """Loss and accuracy on the training set, and accuracy on the test set if there is one."""
        return scores(self.net, (self.x, self.y), self.test)


def train_mlp(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    recipe: Recipe | None = None,
    *,
    learning_rate: float = 0.001,
    weight_decay: float = 0.0,
    test: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    show: bool | None = None,
) -> Training:
    """Train an MLP of the recipe's shape by backpropagation; the defaults are the paper's.

    Of the recipe it takes widths, activation, bias, epochs, batch size, seed and threads.
    weight_decay is the coefficient λ of the L2 penalty (λ/2)|W|² on all weights. The history holds
    ``"mlp"`` with ``loss``, ``train_accuracy`` and, with a test set, ``test_accuracy`` per epoch.
    """
    recipe = recipe or Recipe()
    inputs, labels = as_tensors(x, y)
    test_tensors = as_tensors(*test) if test is not None else None
    net, generator = new_net(inputs, labels, recipe)
    records: Records = {}
    with compute_settings(recipe.threads):
        complete = run_stages(
            net,
            [
                lambda: Backpropagation(
                    net,
                    inputs,
                    labels,
                    epochs=recipe.epochs,
                    learning_rate=learning_rate,
                    weight_decay=weight_decay,
                    test=test_tensors,
                )
            ],
            batch_size=recipe.batch_size,
            generator=generator,
            records=records,
            show=show,
        )
    net.requires_grad_(False)
    return Training(net, as_history(records), recipe, interrupted=not complete)
