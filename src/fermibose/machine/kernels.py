"""Kernel baselines, RBF-SVM and kernel ridge, as torch modules that can be differentiated."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fermibose.machine.examples import as_tensors, count_classes, count_present_classes


class KernelClassifier(nn.Module):
    r"""Logits f_k(x) = Σ_s a_{sk} exp(−γ|x − x_s|²) + b_k over stored images x_s.

    Nothing is learnt after construction; the map is differentiable in x, so that a kernel machine
    can be attacked like any net.
    """

    centres: Tensor  # (S, features)
    coefficients: Tensor  # (S, classes)
    intercept: Tensor  # (classes,)
    squares: Tensor  # |x_s|², (S,)

    def __init__(
        self, centres: Tensor, coefficients: Tensor, intercept: Tensor, *, gamma: float
    ) -> None:
        super().__init__()
        self.gamma = gamma
        self.register_buffer("centres", centres)
        self.register_buffer("coefficients", coefficients)
        self.register_buffer("intercept", intercept)
        self.register_buffer("squares", centres.square().sum(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (B, classes)."""
        x = x.flatten(1)
        # |x − x_s|² from one GEMM; rounding may leave it slightly below 0.
        d2 = torch.addmm(
            self.squares + x.square().sum(1, keepdim=True), x, self.centres.T, alpha=-2
        )
        kernel = torch.exp(-self.gamma * d2.clamp(min=0))
        return torch.addmm(self.intercept, kernel, self.coefficients)


def train_rbf_svm(
    x: npt.ArrayLike, y: npt.ArrayLike, *, gamma: float = 0.03, c: float = 10.0
) -> KernelClassifier:
    """Support vector machines with kernel exp(−γ|x − x'|²), one class against the rest.

    Each logit is the decision value of its machine (fitted by scikit-learn). Pairwise machines,
    scikit-learn's own choice, decide by votes, which have no gradient.
    """
    from sklearn.svm import SVC

    inputs, labels = as_tensors(x, y)
    images, targets = inputs.numpy(), labels.numpy()
    classes = count_present_classes(labels)
    coefficients = np.zeros((len(images), classes))
    intercept = np.zeros(classes)
    for k in range(classes):
        machine = SVC(C=c, gamma=gamma).fit(images, targets == k)
        coefficients[machine.support_, k] = machine.dual_coef_[0]
        intercept[k] = machine.intercept_[0]
    used = np.flatnonzero(coefficients.any(1))
    return KernelClassifier(
        inputs[used],
        torch.tensor(coefficients[used], dtype=inputs.dtype),
        torch.tensor(intercept, dtype=inputs.dtype),
        gamma=gamma,
    )


def train_kernel_ridge(
    x: npt.ArrayLike, y: npt.ArrayLike, *, gamma: float = 0.03, ridge: float = 1.0
) -> KernelClassifier:
    """Kernel ridge regression on targets ±1: a = (K + ridge·1)⁻¹ t, K = exp(−γ|x − x'|²)."""
    inputs, labels = as_tensors(x, y)
    images = inputs.double()
    kernel = torch.exp(-gamma * torch.cdist(images, images).square())
    targets = 2.0 * nn.functional.one_hot(labels, count_classes(labels)).double() - 1
    weights = torch.linalg.solve(kernel + ridge * torch.eye(len(images)).double(), targets)
    weights = weights.to(inputs.dtype)
    return KernelClassifier(inputs, weights, torch.zeros(weights.shape[1]), gamma=gamma)
