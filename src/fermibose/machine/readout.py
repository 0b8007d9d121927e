"""The linear readout on frozen representations: cross-entropy as in the paper, or ridge."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fermibose.machine.adam import Adam
from fermibose.machine.layers import Dense
from fermibose.machine.recipe import Recipe

Examples = tuple[Tensor, Tensor]  # inputs or representations (n, features), labels (n,)


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Fraction of rows whose largest logit is that of their class."""
    return float((logits.argmax(1) == y).double().mean())


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
