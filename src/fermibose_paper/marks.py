"""The marked points of Fig. 4, found on any accuracy curve: S1, P1, V, P2, S2, B1."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BANDWIDTH = 0.012  # in d_F, of the smoothing: evens out the published step of 0.005, no coarser one
PLATEAU = 1.0  # the accuracy is stationary beyond this d_F
STATIONARY = 0.3  # points (%) within which it then stays, where noise allows


@dataclass(frozen=True)
class Marks:
    """Positions in d_F of what the paper marks; None where the curve has no such point.

    A curve with one maximum only has P2 (its peak), and neither P1 nor V.
    """

    S1: float | None  # the accuracy first reaches that of the MLP
    P1: float | None  # first peak
    V: float | None  # minimum between the peaks
    P2: float | None  # second peak
    S2: float | None  # the accuracy falls below that of the MLP for good
    B1: float | None  # from here on it is stationary
    dip: float  # how far V lies below the lower of the peaks, in points (without V: too little)

    def positions(self) -> dict[str, float]:
        """The points that exist, by name."""
        named = {name: getattr(self, name) for name in ("S1", "P1", "V", "P2", "S2", "B1")}
        return {name: value for name, value in named.items() if value is not None}


def marked_points(d_f: Floats, accuracy: Floats, mlp: float, *, noise: float = 0.2) -> Marks:
    """Find the points on a curve: d_f increasing, accuracy and that of the MLP in percent.

    noise: standard error of a point; two peaks count as two if the minimum between them lies more
    than three errors of the smoothed curve below both.
    """
    weights = _weights(d_f)
    curve = weights @ accuracy
    noise *= float(np.sqrt((weights**2).sum(1)).mean())
    top, maxima = int(curve.argmax()), _maxima(curve)
    others = maxima if top in maxima else []
    dip, other = max(((_dip(curve, top, k), k) for k in others), default=(0.0, top))
    peaks = sorted((top, other)) if dip > 3 * noise else [top]
    valley = peaks[0] + int(curve[peaks[0] : peaks[-1] + 1].argmin())
    return Marks(
        S1=_crossing(d_f, curve, mlp),
        P1=float(d_f[peaks[0]]) if len(peaks) == 2 else None,
        V=float(d_f[valley]) if len(peaks) == 2 else None,
        P2=float(d_f[peaks[-1]]),
        S2=_crossing(-d_f[::-1], curve[::-1], mlp),
        B1=_stationary(d_f, curve, max(STATIONARY, 2 * noise)),
        dip=float(dip),
    )


def _weights(d_f: Floats) -> Floats:
    """Matrix of a mean over neighbours weighted by a Gaussian in d_F."""
    weights = np.exp(-0.5 * ((d_f[:, None] - d_f) / BANDWIDTH) ** 2)
    return np.asarray(weights / weights.sum(1, keepdims=True))


def _maxima(curve: Floats) -> list[int]:
    """Points not below their neighbours; no end of the curve, as what lies beyond may be higher."""
    inner = curve[1:-1]
    return (1 + np.flatnonzero((inner >= curve[:-2]) & (inner >= curve[2:]))).tolist()


def _dip(curve: Floats, top: int, other: int) -> float:
    """How far the curve falls between its top and another point, below the latter."""
    low, high = sorted((top, other))
    return float(curve[other] - curve[low : high + 1].min())


def _crossing(x: Floats, curve: Floats, level: float) -> float | None:
    """Where a curve that starts below a level first reaches it, linearly between points."""
    above = np.flatnonzero(curve >= level)
    if not len(above) or above[0] == 0:
        return None
    k = int(above[0])
    share = (level - curve[k - 1]) / (curve[k] - curve[k - 1])
    return abs(float(x[k - 1] + share * (x[k] - x[k - 1])))


def _stationary(d_f: Floats, curve: Floats, width: float) -> float | None:
    """The first point from which the curve stays within ``width`` of its mean beyond PLATEAU."""
    plateau = d_f >= PLATEAU
    if not plateau.any():
        return None
    away = np.flatnonzero(np.abs(curve - curve[plateau].mean()) > width)
    first = int(away[-1]) + 1 if len(away) else 0
    return float(d_f[first]) if first < len(d_f) else None
