r"""How far chains can be trusted: R̂ and the effective sample size, after Vehtari et al. (2021).

Every chain is split into halves, so that a drift shows as disagreement. With W the mean variance
within the halves, of n draws each, and B/n the variance of their means,

.. math:: \hat R = \sqrt{V^+/W}, \qquad V^+ = \tfrac{n-1}{n} W + \tfrac{B}{n},

taken of ranks turned into normal scores, once as they are (do the chains agree on where?) and once
of the distances from the median (on how widely?); the larger counts. The effective size of S draws
is S/τ, τ = 1 + 2Σ_t ρ_t, with the autocorrelations

.. math:: ρ_t = 1 - \frac{W - \bar{C}_t}{V^+}

summed in pairs while these are positive, and made to decrease (Geyer 1992).
"""

import math

import numpy as np
from scipy.signal import correlate
from scipy.special import ndtri
from scipy.stats import rankdata

from fermibose.theory import Array


def r_hat(series: Array) -> float:
    """Rank-normalised split-R̂ of draws (draws, chains): near 1 where all halves sample the same.

    NaN if nothing moves.
    """
    halves = _split(series)
    folded = np.abs(halves - np.median(halves))
    # Not max(): that would pass over a NaN.
    return float(np.max([_plain_r_hat(_normal_scores(values)) for values in (halves, folded)]))


def effective_size(series: Array) -> float:
    """Independent draws that would give the mean of (draws, chains) the same error.

    NaN if nothing moves.
    """
    halves = _split(series)
    n, chains = halves.shape
    within, total = _variances(halves)
    if not total > 0:
        return math.nan
    centred = halves - halves.mean(0)
    covariance = np.mean([correlate(c, c)[n - 1 :] / n for c in centred.T], axis=0) * n / (n - 1)
    rho = 1 - (within - covariance) / total
    rho[0] = 1.0
    pairs = rho[: n // 2 * 2].reshape(-1, 2).sum(1)
    if (pairs <= 0).any():
        pairs = pairs[: int((pairs <= 0).argmax())]
    tau = 2 * float(np.minimum.accumulate(pairs).sum()) - 1
    size = float(n * chains)
    return size / max(tau, 1 / math.log10(size))  # walks that swing beat independent draws a little


def _split(series: Array) -> Array:
    """The halves of every chain as columns."""
    columns = series.reshape(len(series), -1)
    return np.concatenate(np.array_split(columns[: len(columns) // 2 * 2], 2), axis=1)


def _variances(halves: Array) -> tuple[float, float]:
    """W and V⁺."""
    n = len(halves)
    within = float(halves.var(0, ddof=1).mean())
    return within, within * (n - 1) / n + float(halves.mean(0).var(ddof=1))


def _plain_r_hat(halves: Array) -> float:
    within, total = _variances(halves)
    return math.sqrt(total / within) if within > 0 else math.nan


def _normal_scores(values: Array) -> Array:
    """Φ⁻¹((rank − 3/8)/(S + 1/4)) of all values together."""
    scores: Array = ndtri((rankdata(values).reshape(values.shape) - 0.375) / (values.size + 0.25))
    return scores
