"""Do instances agree with the theory? Each quantity in standard errors, and all in one test."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import f as fisher
from scipy.stats import norm
from scipy.stats import t as student

from fermibose.theory import Array

RARE = float(2 * norm.sf(2))  # how often a Gaussian is off by more than two standard deviations


def two_sigma(instances: int) -> float:
    """Standard errors that a mean exceeds as rarely as a Gaussian exceeds two of its own.

    Few instances give an uncertain error (Student's distribution); 20 make it 2.1.
    """
    return float(student.isf(RARE / 2, max(instances - 1, 1)))


def chance(values: Sequence[Sequence[float]], expected: Sequence[float]) -> float | None:
    r"""How often n instances of k quantities would miss their true means by as much or more.

    Hotelling's test: T² = n·dᵀS⁻¹d with d the mean deviation and S the covariance over instances;
    (n − k)/(k(n − 1))·T² has Fisher's distribution with k and n − k degrees of freedom. One number
    for quantities that are correlated, of which some one would often be off. None if instances are
    too few (n < k + 2) or a quantity follows from the others.
    """
    sample: Array = np.array(values, dtype=float).reshape(len(values), len(expected))
    n, k = sample.shape
    spread = np.atleast_2d(np.cov(sample.T)) if n >= k + 2 else np.zeros((k, k))
    if np.linalg.matrix_rank(spread) < k:
        return None
    off = sample.mean(0) - np.asarray(expected)
    squared = n * off @ np.linalg.solve(spread, off)
    return float(fisher.sf(squared * (n - k) / (k * (n - 1)), k, n - k))
