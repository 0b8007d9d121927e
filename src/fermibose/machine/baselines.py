"""Baselines: the MLP of the same shape, trained jointly by backpropagation, and a linear model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy.typing as npt
import torch
from torch import Tensor, nn

from fermibose.errors import InputError
from fermibose.machine.adam import Adam
from fermibose.machine.compute import compute_settings
from fermibose.machine.examples import (
    as_tensors,
    as_test_tensors,
    check_clipping,
    count_present_classes,
    warn_of_range,
)
from fermibose.machine.loop import Records, run_stages
from fermibose.machine.network import FermiBoseNet
from fermibose.machine.readout import Examples, scores
from fermibose.machine.recipe import Recipe
from fermibose.machine.settings import is_amount
from fermibose.machine.training import Training, as_history, new_net

# (net, inputs, labels, generator) → the inputs to train on instead
Perturb: TypeAlias = Callable[[nn.Module, Tensor, Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class InputNoise:
    """A perturbation for :func:`train_mlp`: clip(x + σ ξ) with fresh ξ ~ N(0, 1) at every step."""

    sigma: float = 0.3
    bounds: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        if not is_amount(self.sigma):
            raise InputError(f"sigma of the noise must be a finite number >= 0, got {self.sigma!r}")

    def __call__(self, net: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        """Noisy copies of the inputs x, which must lie in the bounds."""
        check_clipping(x, self.bounds)
        noise = torch.randn(x.shape, generator=generator)
        return noise.mul_(self.sigma).add_(x).clamp_(*self.bounds)


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
        generator: torch.Generator,
        weight_decay: float = 0.0,
        perturb: Perturb | None = None,
        test: Examples | None = None,
    ) -> None:
        self.net, self.x, self.y, self.test = net, x, y, test
        self.perturb, self.generator = perturb, generator
        self.epochs, self.samples = epochs, len(x)
        parameters = list(net.requires_grad_(True).parameters())
        self.optimiser = Adam(parameters, learning_rate=learning_rate, weight_decay=weight_decay)

    def step(self, index: Tensor) -> Mapping[str, float]:
        """One Adam step on the samples ``index``."""
        x, y = self.x[index], self.y[index]
        if self.perturb is not None:
            x = self.perturb(self.net, x, y, self.generator)
        self.net.zero_grad()
        nn.functional.cross_entropy(self.net(x), y).backward()
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
    perturb: Perturb | None = None,
    test: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    show: bool | None = None,
) -> Training:
    """Train an MLP of the recipe's shape by backpropagation; the defaults are the paper's.

    Of the recipe it takes widths, activation, bias, epochs, batch size, seed and threads.
    weight_decay is the coefficient λ of the L2 penalty (λ/2)|W|² on all weights. perturb: replaces
    the inputs of each mini-batch, by noisy ones (:class:`InputNoise`) or by adversarial ones
    (:class:`fermibose.attacks.Adversary`). The history holds ``"mlp"`` with ``loss``,
    ``train_accuracy`` and, with a test set, ``test_accuracy`` per epoch (all on clean inputs).
    """
    recipe = recipe or Recipe()
    inputs, labels = as_tensors(x, y)
    warn_of_range(inputs)
    test_tensors = as_test_tensors(test, inputs.shape[1])
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
                    generator=generator,
                    weight_decay=weight_decay,
                    perturb=perturb,
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


@torch.no_grad()
def train_logistic(x: npt.ArrayLike, y: npt.ArrayLike, *, penalty: float = 1.0) -> FermiBoseNet:
    """Multinomial logistic regression, as a net without hidden layers (fitted by scikit-learn).

    It minimises Σ cross-entropy + (penalty/2)|W|² over the weights; the intercept is free.
    """
    from sklearn.linear_model import LogisticRegression

    inputs, labels = as_tensors(x, y)
    outputs = count_present_classes(labels)
    fitted = LogisticRegression(C=1 / penalty, max_iter=10_000).fit(inputs.numpy(), labels.numpy())
    coefficients, intercept = torch.tensor(fitted.coef_), torch.tensor(fitted.intercept_)
    if len(coefficients) == 1:  # two classes: scikit-learn keeps the logit of the second only
        coefficients = torch.cat((-coefficients, coefficients)) / 2
        intercept = torch.cat((-intercept, intercept)) / 2
    net = FermiBoseNet(inputs.shape[1], (), outputs, readout_bias=True)
    net.readout.load_state_dict({"weight": coefficients.T, "bias": intercept})
    return net
