"""A certificate: a radius within which no attack whatever can change the net's answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fermibose.attacks.threat import Images, ThreatModel
from fermibose.attacks.victim import versions, victim_of
from fermibose.checks import choice
from fermibose.errors import InputError
from fermibose.machine import FermiBoseNet
from fermibose.progress import progress_bar

_BISECTIONS = 14  # radii come out within 2⁻¹⁴ of their upper limit, from below


@dataclass(frozen=True, eq=False)
class Certificate:
    """Certified radii of n images: no input closer than that is classified otherwise."""

    norm: Literal["linf", "l2"]
    radius: npt.NDArray[np.float64]  # (n,), 0 where the image is misclassified

    def accuracy(self, epsilons: float | Sequence[float]) -> npt.NDArray[np.float64]:
        """Certified accuracy at each ε: a lower bound for every attack's robust accuracy."""
        strengths = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
        certain = (self.radius > 0) & (self.radius >= strengths[:, None])
        return np.asarray(certain.mean(1))

    def as_dict(self) -> dict[str, Any]:
        """Numbers and versions, ready for JSON."""
        return {"norm": self.norm, "radius": self.radius.tolist(), "versions": versions()}


class Interval(NamedTuple):
    """All values within ``radius`` of ``centre``."""

    centre: Tensor
    radius: Tensor

    def through(self, weight: Tensor) -> "Interval":
        """The interval of v·weight, (…, inputs) → (…, units)."""
        return Interval(self.centre @ weight, self.radius @ weight.abs())

    def times(self, factor: "Interval") -> "Interval":
        """The interval of the product with a factor that is not negative."""
        centre = self.centre * factor.centre
        largest = factor.centre + factor.radius
        return Interval(centre, self.centre.abs() * factor.radius + self.radius * largest)


def certified_radius(
    net: FermiBoseNet,
    x: Images,
    y: Images,
    *,
    norm: Literal["linf", "l2"] = "linf",
    batch_size: int = 100,
    show: bool | None = None,
) -> Certificate:
    r"""Radius around each image within which the net's answer provably stays correct.

    Let m_k = z_y − z_k be the margin over class k. Along any change δ with ‖δ‖ ≤ ε it loses at most
    ε times the largest dual norm of its gradient in the ball:

    .. math:: m_k(x + \delta) \ge m_k(x) - \varepsilon\, L_k(x, \varepsilon), \quad
              L_k = \sup_{\|\delta\| \le \varepsilon} \|\nabla m_k(x + \delta)\|_*

    L_k, the *local* Lipschitz constant, is bounded by interval arithmetic: the ball bounds every
    pre-activation, these bound the slopes φ', and a backward pass with intervals for slopes bounds
    ∇m_k. The radius is the largest ε with ε L_k(ε) < m_k for all k, found by bisection in float64.
    The bounds of the inputs are not used, so the certificate holds for any.
    """
    if not isinstance(net, FermiBoseNet):
        raise InputError(f"certificates are for FermiBoseNet, got {type(net).__name__}")
    choice("norm", norm, ("linf", "l2"))
    anywhere = ThreatModel(norm, 0.0, (-torch.inf, torch.inf))
    with (
        victim_of(net, x, y, anywhere, dtype=torch.float64, batch_size=batch_size) as victim,
        torch.no_grad(),
    ):
        radius = np.zeros(len(victim.y))
        chunks = victim.batches(victim.correct.nonzero()[:, 0])
        with progress_bar(f"certificate {norm}", len(chunks), show=show) as advance:
            for rows in chunks:
                bound = _Bound(victim.model, victim.x[rows], victim.y[rows], norm)
                radius[rows.cpu().numpy()] = bound.largest_radius().cpu().numpy()
                advance()
    return Certificate(norm, radius)


class _Bound:
    """Bounds on the margins of a batch of correctly classified images."""

    def __init__(self, net: Any, x: Tensor, y: Tensor, norm: str) -> None:
        self.activations = [layer.activation for layer in net.local_layers]
        self.weights = [layer.weight for layer in net.local_layers]  # each (inputs, units)
        self.biases = [layer.bias for layer in net.local_layers]
        readout, logits = net.readout.weight.T, net(x)
        # The net's own rescaling is part of its first map.
        self.x = x if net.gain is None else (x - net.offset) * net.gain
        self.input_scale = net.gain
        self.dual = 1 if norm == "linf" else 2
        rivals = torch.arange(logits.shape[1], device=y.device) != y[:, None]  # (B, K)
        others = rivals.nonzero()[:, 1].view(len(y), -1)  # (B, K−1)
        self.margins = logits.gather(1, y[:, None]) - logits.gather(1, others)
        self.probes = readout[y][:, None] - readout[others]  # ∂m_k/∂h, (B, K−1, units)

    def largest_radius(self) -> Tensor:
        """(B,) the largest radius that the bound certifies, by bisection from below."""
        zero = torch.zeros(len(self.x), dtype=self.x.dtype, device=self.x.device)
        slope = self.lipschitz(zero).clamp(min=torch.finfo(zero.dtype).tiny)
        high = (self.margins / slope).amin(1)  # L grows with ε: more cannot be certified
        low = zero
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            certain = (self.margins > middle[:, None] * self.lipschitz(middle)).all(1)
            low, high = torch.where(certain, middle, low), torch.where(certain, high, middle)
        return low

    def lipschitz(self, epsilon: Tensor) -> Tensor:
        """Upper bound of ‖∇m_k‖_* in the balls of radius ε (B,), for every rival k: (B, K−1)."""
        gradient = Interval(self.probes, torch.zeros_like(self.probes))
        slopes = self._slopes(epsilon)
        for weight, slope in zip(reversed(self.weights), reversed(slopes), strict=True):
            each = Interval(slope.centre[:, None], slope.radius[:, None])
            gradient = gradient.times(each).through(weight.T)
        largest = gradient.centre.abs() + gradient.radius
        if self.input_scale is not None:
            largest = largest * self.input_scale.abs()
        lipschitz: Tensor = torch.linalg.vector_norm(largest, self.dual, dim=2)
        return lipschitz

    def _slopes(self, epsilon: Tensor) -> list[Interval]:
        """Intervals of φ' of every layer over the balls of radius ε, each (B, units)."""
        slopes: list[Interval] = []
        h = Interval(self.x, torch.zeros_like(self.x))
        parts = zip(self.weights, self.biases, self.activations, strict=True)
        for number, (weight, bias, activation) in enumerate(parts):
            z = h.through(weight)
            if number == 0:  # |w·δ| ≤ ε‖w‖_*, the exact reach of the first pre-activations
                scaled = weight if self.input_scale is None else weight * self.input_scale[:, None]
                reach = torch.linalg.vector_norm(scaled, self.dual, dim=0)
                z = Interval(z.centre, epsilon[:, None] * reach)
            centre = z.centre if bias is None else z.centre + bias
            low, high = activation.apply(centre - z.radius), activation.apply(centre + z.radius)
            h = Interval((low + high) / 2, (high - low) / 2)
            slopes.append(_slope_interval(activation, low, high))
        return slopes


def _slope_interval(activation: Any, low: Tensor, high: Tensor) -> Interval:
    """Interval of φ' while h runs from ``low`` to ``high``.

    φ' written through h is a parabola that peaks at the middle of the range of h, so its extremes
    are at the ends, or at that middle if it lies between.
    """
    middle = activation.apply(torch.zeros_like(low))  # both activations peak at z = 0

    def slope(h: Tensor) -> Tensor:
        return activation.pull_back_(torch.ones_like(h), h)  # type: ignore[no-any-return]

    at_low, at_high, peak = slope(low), slope(high), slope(torch.clamp(middle, low, high))
    least = torch.minimum(at_low, at_high)
    return Interval((peak + least) / 2, (peak - least) / 2)
