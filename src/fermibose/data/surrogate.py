"""Gaussian stand-ins for images: what a learner does with the means and covariances alone."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fermibose import checks
from fermibose.data.datasets import Dataset
from fermibose.data.idx import Images, Labels
from fermibose.errors import InputError


def surrogate(dataset: Dataset, *, order: int = 2, seed: int = 0) -> Dataset:
    r"""Replace every image of a class c by a draw from a Gaussian with the moments of the class.

    .. math:: x \sim N(μ_c, σ^2 1) \;\text{(order 1)}, \qquad x \sim N(μ_c, Σ_c) \;\text{(order 2)}

    μ_c and Σ_c are the mean and the covariance (divided by the number of images) of the *training*
    images of the class; σ² is the mean over all training images and pixels of the squared deviation
    from μ_c, so that both orders have noise of the same total strength. Test images are drawn from
    the same Gaussians as training images. Labels keep their places. Pixels leave [0, 1].
    """
    checks.choice("order", order, (1, 2))
    rng = np.random.default_rng(checks.whole("seed", seed, least=0))
    x = dataset.x_train.astype(np.float64)
    classes = np.unique(dataset.y_train)
    missing = np.setdiff1d(dataset.y_test, classes)
    if missing.size:
        raise InputError(
            f"class {missing[0]} has test images but no training images: its moments are unknown"
        )
    means = {c: x[dataset.y_train == c].mean(0) for c in classes.tolist()}
    apart = x - np.array([means[c] for c in dataset.y_train.tolist()])
    noise = float(np.sqrt(np.mean(apart**2)))
    roots = {c: _root(apart[dataset.y_train == c]) for c in means} if order == 2 else {}

    def drawn(y: Labels) -> Images:
        images = rng.standard_normal((y.size, x.shape[1]))
        for c, mean in means.items():
            own = y == c
            images[own] = mean + (images[own] @ roots[c] if order == 2 else noise * images[own])
        return images.astype(np.float32)

    return replace(
        dataset,
        name=f"{dataset.name}, Gaussian of order {order}",
        x_train=drawn(dataset.y_train),
        x_test=drawn(dataset.y_test),
    )


def _root(apart: NDArray[np.float64]) -> NDArray[np.float64]:
    """The symmetric root of a covariance, which may have no inverse."""
    values, vectors = np.linalg.eigh(apart.T @ apart / len(apart))
    root: NDArray[np.float64] = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root
