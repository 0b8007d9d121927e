"""Baselines: the net of the same shape, trained by backpropagation; linear and kernel models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fermibose import checks
from fermibose.compute import widest
from fermibose.machine.checkpoint import Records
from fermibose.machine.inputs import (
    Examples,
    Held,
    as_tensors,
    check_clipping,
    count_classes,
    count_present_classes,
    training_examples,
)
from fermibose.machine.loop import Adam, compute_settings, train_stages
from fermibose.machine.network import FermiBoseNet
from fermibose.machine.pairing import Transform, transformed
from fermibose.machine.readouts import gaussian_kernel, targets_of
from fermibose.machine.recipe import Recipe
from fermibose.machine.training import (
    Training,
    conclude,
    new_net,
    sample_weights,
    scores,
    transforms_of,
)

# (net, inputs, labels, generator) → the inputs to train on instead
Perturb: TypeAlias = Callable[[nn.Module, Tensor, Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class InputNoise:
    """A perturbation for :func:`train_mlp`: clip(x + σ ξ) with fresh ξ ~ N(0, 1) at every step."""

    sigma: float = 0.3
    bounds: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", checks.number("sigma of the noise", self.sigma, least=0))

    def __call__(self, net: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        """Noisy copies of the inputs x, which must lie in the bounds."""
        check_clipping(x, self.bounds)
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
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
        cosine: int = 0,
        weight_decay: float = 0.0,
        transforms: Sequence[Transform] = (),
        perturb: Perturb | None = None,
        test: Examples | None = None,
    ) -> None:
        self.net, self.x, self.y = net, x, y
        self.test = None if test is None else (Held(test[0]), test[1])
        self.transforms, self.perturb, self.generator = transforms, perturb, generator
        self.epochs, self.samples = epochs, len(x)
        parameters = list(net.requires_grad_(True).parameters())
        self.optimiser = Adam(
            parameters, learning_rate=learning_rate, weight_decay=weight_decay, cosine=cosine
        )

    def step(self, index: Tensor, following: Tensor | None = None) -> Mapping[str, float]:
        """One Adam step on the samples ``index``."""
        x, y = self.x[index], self.y[index]
        if self.transforms:
            x = transformed(x, self.transforms, self.generator)
        if self.perturb is not None:
            x = self.perturb(self.net, x, y, self.generator)
        self.net.zero_grad()
        nn.functional.cross_entropy(self.net(x), y).backward()
        self.optimiser.step()
        for layer in self.net.local_layers:
            layer.constrain()
        return {}

    def end_epoch(self) -> Mapping[str, float]:
        """Loss and accuracy on the training set, and accuracy on the test set if there is one."""
        return scores(self.net, (Held(self.x), self.y), self.test)

    def finish(self) -> None:
        """Nothing is left to do."""


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

    Of the recipe it takes the hidden layers (with convolutions it is no longer an MLP), image
    shape, activation, bias, epochs, batch size, schedule, seed, threads, and the transformations of
    an ``Augmented`` pairing.
    weight_decay is the coefficient λ of the L2 penalty (λ/2)|W|² on all weights. perturb: replaces
    the inputs of each mini-batch, by noisy ones (:class:`InputNoise`) or by adversarial ones
    (:class:`fermibose.attacks.Adversary`). The history holds ``"mlp"`` with ``loss``,
    ``train_accuracy`` and, with a test set, ``test_accuracy`` per epoch (all on clean inputs).
    Ctrl-C stops after the current epoch, as in :func:`train`.
    """
    recipe = recipe or Recipe()
    learning_rate = checks.number("learning_rate", learning_rate, above=0)
    weight_decay = checks.number("weight_decay", weight_decay, least=0)
    inputs, labels, test_examples = training_examples(x, y, test)
    recipe = replace(recipe, readout="cross_entropy")  # by which all of it learns
    net, generator = new_net(inputs, labels, recipe)
    weights = sample_weights(labels, recipe)
    epochs = recipe.lesson(0).epochs
    steps = epochs * -(-len(inputs) // recipe.batch_size)
    records: Records = {}
    with compute_settings(recipe.threads):
        ending = train_stages(
            net,
            [
                lambda: Backpropagation(
                    net,
                    inputs,
                    labels,
                    epochs=epochs,
                    learning_rate=learning_rate,
                    generator=generator,
                    cosine=steps if recipe.schedule == "cosine" else 0,
                    weight_decay=weight_decay,
                    transforms=transforms_of(recipe),
                    perturb=perturb,
                    test=test_examples,
                )
            ],
            batch_size=recipe.batch_size,
            generator=generator,
            records=records,
            weights=weights,
            show=show,
        )
    return conclude(net, records, recipe, ending)


@torch.no_grad()
def train_logistic(x: npt.ArrayLike, y: npt.ArrayLike, *, penalty: float = 1.0) -> FermiBoseNet:
    """Multinomial logistic regression, as a net without hidden layers (fitted by scikit-learn).

    It minimises Σ cross-entropy + (penalty/2)|W|² over the weights; the intercept is free.
    """
    from sklearn.linear_model import LogisticRegression

    penalty = checks.number("penalty", penalty, above=0)
    inputs, labels = as_tensors(x, y)
    outputs = count_present_classes(labels)
    fitted = LogisticRegression(C=1 / penalty, max_iter=10_000)
    fitted.fit(inputs.cpu().numpy(), labels.cpu().numpy())  # scikit-learn knows no other device
    coefficients, intercept = torch.tensor(fitted.coef_), torch.tensor(fitted.intercept_)
    if len(coefficients) == 1:  # two classes: scikit-learn keeps the logit of the second only
        coefficients = torch.cat((-coefficients, coefficients)) / 2
        intercept = torch.cat((-intercept, intercept)) / 2
    net = FermiBoseNet(inputs.shape[1], (), outputs, readout_bias=True)
    net.readout.load_state_dict({"weight": coefficients.T, "bias": intercept})
    return net.to(inputs.device)


class KernelClassifier(nn.Module):
    r"""Logits f_k(x) = Σ_s a_{sk} exp(−γ|x − x_s|²) + b_k over stored images x_s.

    Nothing is learnt after construction; the map is differentiable in x, so that a kernel machine
    can be attacked like any net.
    """

    centres: Tensor  # (S, features)
    coefficients: Tensor  # (S, classes)
    intercept: Tensor  # (classes,)

    def __init__(
        self, centres: Tensor, coefficients: Tensor, intercept: Tensor, *, gamma: float
    ) -> None:
        super().__init__()
        self.gamma = gamma
        self.register_buffer("centres", centres)
        self.register_buffer("coefficients", coefficients)
        self.register_buffer("intercept", intercept)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (B, classes)."""
        kernel = gaussian_kernel(x.flatten(1), self.centres, self.gamma)
        return torch.addmm(self.intercept, kernel, self.coefficients)


def train_rbf_svm(
    x: npt.ArrayLike, y: npt.ArrayLike, *, gamma: float = 0.03, c: float = 10.0
) -> KernelClassifier:
    """Support vector machines with kernel exp(−γ|x − x'|²), one class against the rest.

    Each logit is the decision value of its machine (fitted by scikit-learn). Pairwise machines,
    scikit-learn's own choice, decide by votes, which have no gradient.
    """
    from sklearn.svm import SVC

    gamma, c = checks.number("gamma", gamma, above=0), checks.number("c", c, above=0)
    inputs, labels = as_tensors(x, y)
    images, targets = inputs.cpu().numpy(), labels.cpu().numpy()
    classes = count_present_classes(labels)
    coefficients = np.zeros((len(images), classes))
    intercept = np.zeros(classes)
    for k in range(classes):
        machine = SVC(C=c, gamma=gamma).fit(images, targets == k)
        coefficients[machine.support_, k] = machine.dual_coef_[0]
        intercept[k] = machine.intercept_[0]
    used = np.flatnonzero(coefficients.any(1))
    return KernelClassifier(
        inputs[torch.tensor(used, device=inputs.device)],
        torch.tensor(coefficients[used], dtype=inputs.dtype, device=inputs.device),
        torch.tensor(intercept, dtype=inputs.dtype, device=inputs.device),
        gamma=gamma,
    )


def train_kernel_ridge(
    x: npt.ArrayLike, y: npt.ArrayLike, *, gamma: float = 0.03, ridge: float = 1.0
) -> KernelClassifier:
    """Kernel ridge regression on targets ±1: a = (K + ridge·1)⁻¹ t, K = exp(−γ|x − x'|²)."""
    gamma, ridge = checks.number("gamma", gamma, above=0), checks.number("ridge", ridge, above=0)
    inputs, labels = as_tensors(x, y)
    images = inputs.to(widest(inputs.device))
    kernel = torch.exp(-gamma * torch.cdist(images, images).square())
    targets = targets_of(labels, count_classes(labels))
    kernel.diagonal().add_(ridge)
    weights = torch.linalg.solve(kernel, targets).to(inputs.dtype)
    return KernelClassifier(inputs, weights, weights.new_zeros(weights.shape[1]), gamma=gamma)
