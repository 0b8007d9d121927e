"""The theory of images: their means and covariances, measured, in place of Gaussian clusters."""

import math
from typing import Any

import numpy as np

from fermibose.checks import number, whole
from fermibose.errors import InputError
from fermibose.theory.learning import DataTheory
from fermibose.theory.problem import Array, Problem


def from_dataset(
    x: Any,
    y: Any,
    *,
    classes: tuple[Any, Any] | None = None,
    components: int | None = None,
    shrinkage: float | None = None,
    problem: Problem | None = None,
) -> DataTheory:
    """The theory of images x (images, pixels) with labels y (images,), from their moments.

    classes: the two labels to tell apart; may be left out if y has just two. components: keep so
    many principal axes of both classes together (all by default). The mean of all images is
    subtracted. shrinkage: covariances are (1 − s) times the measured ones plus s times a multiple
    of 1 of the same trace; by default s is that of Ledoit and Wolf for each class, which makes the
    expected error least: small with many images, and enough where they are fewer than pixels.
    problem: its pair energy and weight decay count; Problem(pairing="all", beta=inf,
    weight_decay=1) by default.
    """
    if problem is None:
        problem = Problem(pairing="all", beta=math.inf, weight_decay=1.0)
    x, first = _selected(x, y, classes)
    centre = x.mean(0)
    x = x - centre
    axes = None
    if components is not None:
        components = whole("components", components, least=1)
        if components > x.shape[1]:
            raise InputError(f"components = {components} of {x.shape[1]} pixels: take fewer")
        axes = np.linalg.eigh(x.T @ x)[1][:, : -components - 1 : -1]
        x = x @ axes
    parts = [x[first], x[~first]]
    return DataTheory(
        problem=problem,
        shares=np.array([len(part) / len(x) for part in parts]),
        means=np.array([part.mean(0) for part in parts]),
        covariances=np.array([_covariance(part, shrinkage) for part in parts]),
        centre=centre,
        axes=axes,
    )


def _selected(x: Any, y: Any, classes: tuple[Any, Any] | None) -> tuple[Array, Any]:
    """Images of the two classes, and which of them are of the first."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y)
    if x.ndim != 2 or y.shape != (len(x),):
        raise InputError(f"x has shape {x.shape} and y {y.shape}: give (n, pixels) and (n,)")
    if not np.isfinite(x).all():
        raise InputError("x has numbers that are not finite: remove or replace them")
    present = np.unique(y)
    chosen = present if classes is None else np.asarray(classes)
    if chosen.size != 2 or chosen[0] == chosen[1]:
        raise InputError(
            f"two classes are needed, not {chosen.size}: choose them, such as classes=(3, 8)"
        )
    for label in chosen:
        if np.sum(y == label) < 2:
            raise InputError(f"class {label} has fewer than two images among the labels given")
    keep = (y == chosen[0]) | (y == chosen[1])
    return x[keep], (y == chosen[0])[keep]


def _covariance(x: Array, shrinkage: float | None) -> Array:
    """Covariance of rows of x, shrunk towards a multiple of 1 (Ledoit and Wolf 2004)."""
    x = x - x.mean(0)
    n, d = x.shape
    S = x.T @ x / n
    level = float(np.trace(S)) / d
    if shrinkage is None:
        apart = float(np.sum(S**2)) - d * level**2  # |S − level·1|²
        noise = (float(np.sum(np.sum(x**2, 1) ** 2)) / n - float(np.sum(S**2))) / n
        shrinkage = min(1.0, noise / apart) if apart > 0 else 0.0
    shrinkage = number("shrinkage", shrinkage, least=0, most=1)
    shrunk: Array = (1 - shrinkage) * S + shrinkage * level * np.eye(d)
    return shrunk
