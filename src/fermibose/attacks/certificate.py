"""A certificate: a radius within which no attack whatever can change the net's answer."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fermibose.attacks.crown import Crown
from fermibose.attacks.curves import Curve, checked_strengths
from fermibose.attacks.victim import Victim, versions, victim_of
from fermibose.checks import choice
from fermibose.compute import progress_bar
from fermibose.errors import InputError
from fermibose.machine import FermiBoseNet
from fermibose.summary import Summarised
from fermibose.threat import Images, ThreatModel, require

_BISECTIONS = 14  # radii come out within 2⁻¹⁴ of their upper limit, from below
_DOUBLINGS = 20  # of that limit, where a bound holds beyond the radius of the linearised margins
_ROUNDING = 1e-12  # relative, of a Lipschitz bound: thousands of terms in float64

Method = Literal["crown", "lipschitz"]
Bounds = tuple[float, float]
_ANYWHERE: Bounds = (-math.inf, math.inf)


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Summarised):
    """Certified radii of n images: no input closer than that is classified otherwise."""

    norm: Literal["linf", "l2"]
    radius: npt.NDArray[np.float64]  # (n,), 0 where the image is misclassified
    method: Method = "lipschitz"
    bounds: Bounds = _ANYWHERE  # of the inputs for which it holds

    @property
    def summary(self) -> str:
        """How far it reaches."""
        return (
            f"{self.norm} radii of {len(self.radius)} images by {self.method}: median "
            f"{np.median(self.radius):.4g}, largest {self.radius.max():.4g}"
        )

    def accuracy(self, epsilons: float | Sequence[float]) -> npt.NDArray[np.float64]:
        """Certified accuracy at each ε: a lower bound for every attack's robust accuracy."""
        return np.asarray(self._certain(epsilons).mean(1))

    def curve(self, epsilons: Sequence[float] | npt.NDArray[np.float64]) -> Curve:
        """Certified accuracy against strength, to be drawn beside the curves of attacks."""
        threat = ThreatModel(self.norm, 0.0, self.bounds)
        strengths = checked_strengths(epsilons)
        return Curve(self.method, threat, strengths, self._certain(strengths), {})

    def _certain(self, epsilons: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        strengths = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
        return np.asarray((self.radius > 0) & (self.radius >= strengths[:, None]))

    def as_dict(self) -> dict[str, Any]:
        """Numbers and versions, ready for JSON."""
        threat = ThreatModel(self.norm, 0.0, self.bounds).as_dict()
        return {
            "method": self.method,
            "norm": self.norm,
            "bounds": threat["bounds"],
            "radius": self.radius.tolist(),
            "versions": versions(),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Proof(Summarised):
    """What is proved of n images under one threat: no input it allows is classified otherwise."""

    threat: ThreatModel
    method: Method
    correct: npt.NDArray[np.bool_]  # (n,) classified correctly without attack
    margin: npt.NDArray[np.float64]  # (n,) lower bound of min_k (z_y − z_k) over the whole ball

    @property
    def summary(self) -> str:
        """How much is proved."""
        return (
            f"{100 * self.accuracy:.1f} % of {len(self.margin)} images withstand any attack within "
            f"{self.threat.norm} {self.threat.epsilon:g} (clean {100 * self.correct.mean():.1f} %)"
        )

    @property
    def certain(self) -> npt.NDArray[np.bool_]:
        """(n,) whether the image withstands every attack."""
        return np.asarray(self.correct & (self.margin > 0))

    @property
    def accuracy(self) -> float:
        """Certified accuracy: a lower bound for every attack's robust accuracy."""
        return float(self.certain.mean())

    def as_dict(self) -> dict[str, Any]:
        """Numbers and versions, ready for JSON."""
        return {
            "method": self.method,
            "threat": self.threat.as_dict(),
            "images": len(self.margin),
            "clean_accuracy": float(self.correct.mean()),
            "certified_accuracy": self.accuracy,
            "versions": versions(),
        }


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


def certify(
    net: FermiBoseNet,
    x: Images,
    y: Images,
    threat: ThreatModel,
    *,
    method: Method = "crown",
    batch_size: int = 100,
    show: bool | None = None,
) -> Proof:
    """Who provably withstands every attack under the threat, and by which margin.

    method: "crown", linear bounds carried back through the layers (:mod:`fermibose.attacks.crown`),
    or "lipschitz", as explained in :func:`certified_radius`, which makes no use of the bounds of
    the inputs.
    """
    require(threat, "a certificate", "linf", "l2")
    with _prover(net, x, y, threat, method, batch_size) as (victim, bounded):
        margin = np.empty(len(victim.y))
        chunks = victim.batches(torch.arange(len(victim.y), device=victim.y.device))
        with progress_bar(f"{method} {threat.norm}", len(chunks), show=show) as advance:
            for rows in chunks:
                epsilon = torch.full_like(victim.y[rows], threat.epsilon, dtype=victim.x.dtype)
                margin[rows.cpu().numpy()] = bounded(rows).lowest(epsilon).amin(1).cpu().numpy()
                advance()
        return Proof(threat, method, victim.correct.cpu().numpy(), margin)


def certified_radius(
    net: FermiBoseNet,
    x: Images,
    y: Images,
    *,
    norm: Literal["linf", "l2"] = "linf",
    method: Method = "crown",
    bounds: Bounds | None = None,
    batch_size: int = 100,
    show: bool | None = None,
) -> Certificate:
    r"""Radius around each image within which the net's answer provably stays correct.

    It is the largest ε, found by bisection in float64, at which a lower bound of every margin
    m_k = z_y − z_k over the ball is positive. method: "crown" bounds m_k by lines below and above
    every activation (:mod:`fermibose.attacks.crown`). "lipschitz" takes from m_k(x) what it can
    lose along any change δ with ‖δ‖ ≤ ε, ε times the largest dual norm of its gradient in the ball:

    .. math:: m_k(x + \delta) \ge m_k(x) - \varepsilon\, L_k(x, \varepsilon), \quad
              L_k = \sup_{\|\delta\| \le \varepsilon} \|\nabla m_k(x + \delta)\|_*

    L_k, the *local* Lipschitz constant, is bounded by interval arithmetic: the ball bounds every
    pre-activation, these bound the slopes φ', and a backward pass with intervals for slopes bounds
    ∇m_k.

    bounds: of every input, as in ``ThreatModel``; by default (0, 1) if all images lie within, else
    none. Only "crown" makes use of them, so that "lipschitz" holds for any.
    """
    choice("norm", norm, ("linf", "l2"))
    images, _ = ThreatModel(norm, 0.0, _ANYWHERE).check_images(x, y)
    if method == "lipschitz":
        bounds = _ANYWHERE
    elif bounds is None:
        inside = float(images.min()) >= 0 and float(images.max()) <= 1
        bounds = (0.0, 1.0) if inside else _ANYWHERE
    threat = ThreatModel(norm, 0.0, bounds)
    radius = np.zeros(len(images))
    with _prover(net, x, y, threat, method, batch_size) as (victim, bounded):
        chunks = victim.batches(victim.correct.nonzero()[:, 0])
        with progress_bar(f"certificate {norm}", len(chunks), show=show) as advance:
            for rows in chunks:
                x = victim.x[rows].flatten(1)
                start = _Bound(victim.model, x, victim.y[rows], norm).linear_radius()
                radius[rows.cpu().numpy()] = _bisect(bounded(rows), start).cpu().numpy()
                advance()
    return Certificate(norm, radius, method, threat.bounds)


def check_certifiable(net: Any) -> None:
    """InputError if there is no certificate for a net of that kind."""
    if not isinstance(net, FermiBoseNet):
        raise InputError(f"certificates are for FermiBoseNet, got {type(net).__name__}")
    if net.config["kernel"] or not all(isinstance(h, int) for h in net.config["hidden"]):
        raise InputError(
            "certificates are for dense layers under a linear readout; this net has a convolution, "
            "a threshold or a kernel, for which there are attacks only"
        )


class Bound(Protocol):
    """Lower bounds on the margins of a batch of images."""

    def lowest(self, epsilon: Tensor) -> Tensor:
        """Of m_k = z_y − z_k in the balls of radius ε (B,), for every rival k: (B, K−1)."""


@contextmanager
def _prover(
    net: FermiBoseNet,
    x: Images,
    y: Images,
    threat: ThreatModel,
    method: Method,
    batch_size: int,
) -> Iterator[tuple[Victim, Callable[[Tensor], Bound]]]:
    """The net in float64 with its images, and what bounds the margins of some of them."""
    check_certifiable(net)
    choice("method", method, get_args(Method))
    with (
        victim_of(net, x, y, threat, dtype=torch.float64, batch_size=batch_size) as victim,
        torch.no_grad(),
    ):

        def bounded(rows: Tensor) -> Bound:
            some = (victim.x[rows].flatten(1), victim.y[rows])
            if method == "crown":
                return Crown(victim.model, *some, threat.norm, threat.bounds)
            return _Bound(victim.model, *some, threat.norm)

        yield victim, bounded


def _bisect(bound: Bound, high: Tensor) -> Tensor:
    """(B,) the largest radius found at which all margins are positive, by bisection from below.

    A bound need not fall as ε grows, but wherever it is positive the whole ball is safe.
    """

    def certain(epsilon: Tensor) -> Tensor:
        return (bound.lowest(epsilon) > 0).all(1)

    low = torch.zeros_like(high)
    for _ in range(_DOUBLINGS):
        beyond = certain(high)
        if not beyond.any():
            break
        low, high = torch.where(beyond, high, low), torch.where(beyond, 2 * high, high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        safe = certain(middle)
        low, high = torch.where(safe, middle, low), torch.where(safe, high, middle)
    return low


class _Bound:
    """Bounds on the margins of a batch of images by local Lipschitz constants."""

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

    def linear_radius(self) -> Tensor:
        """(B,) where the linearised margins would vanish; L grows with ε: no more is certified."""
        zero = torch.zeros(len(self.x), dtype=self.x.dtype, device=self.x.device)
        slope = self.lipschitz(zero).clamp(min=torch.finfo(zero.dtype).tiny)
        radius: Tensor = (self.margins / slope).amin(1)
        return radius

    def lowest(self, epsilon: Tensor) -> Tensor:
        """m_k(x) − ε L_k(ε), (B, K−1)."""
        loss = epsilon[:, None] * self.lipschitz(epsilon)
        left: Tensor = self.margins - loss - _ROUNDING * (self.margins.abs() + loss)
        return left

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

    φ' rises up to z = 0 and does not rise beyond it, or never falls: its extremes are at the ends,
    or there if it lies between.
    """
    middle = activation.apply(torch.zeros_like(low))

    def slope(h: Tensor) -> Tensor:
        return activation.slope(h)  # type: ignore[no-any-return]

    ends = [slope(low), slope(high), slope(torch.clamp(middle, low, high))]
    least, most = torch.stack(ends[:2]).amin(0), torch.stack(ends).amax(0)
    return Interval((most + least) / 2, (most - least) / 2)
