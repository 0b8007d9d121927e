r"""Readouts in closed form on frozen representations: ridge, nearest prototype, kernel ridge."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn

from fermibose import checks
from fermibose.compute import widest
from fermibose.errors import FermiboseError
from fermibose.machine.cores import product
from fermibose.machine.inputs import Source
from fermibose.machine.local_rule import Dense

EXACT = 8000  # keys whose kernel matrix is solved as it is: half a gigabyte, some seconds
BATCH = 2048  # samples whose kernel values are held at once: 131 MB in double, of EXACT keys
NOTHING = 1e-10  # variance along a direction, per largest, that float32 cannot tell from rounding
TINY = 1e-30  # in place of 0, by which nothing can be divided; float32 still has it


def gaussian_kernel(x: Tensor, centres: Tensor, gamma: Tensor | float) -> Tensor:
    """exp(−γ|x − x_s|²), (B, centres), from one GEMM; rounding may leave |x − x_s|² below 0."""
    squares = centres.square().sum(1) + x.square().sum(1, keepdim=True)
    return torch.exp(-gamma * torch.addmm(squares, x, centres.T, alpha=-2).clamp(min=0))


def targets_of(y: Tensor, classes: int) -> Tensor:
    """t_{ik} = 1 for the class of sample i and −1 for the others, (samples, classes), float64."""
    return 2.0 * nn.functional.one_hot(y, classes).to(widest(y.device)) - 1


def shares(h: Tensor | Source, weights: Tensor | None) -> Tensor:
    """Weights of the samples h (n, …) with the mean 1, (n,), float64; without any, all are 1."""
    wide = widest(h.device)
    if weights is None:
        return torch.ones(len(h), dtype=wide, device=h.device)
    return weights.to(wide) * (len(h) / weights.to(wide).sum())


@torch.no_grad()
def solve_ridge(
    readout: Dense, h: Tensor | Source, y: Tensor, *, ridge: float, weights: Tensor | None = None
) -> None:
    r"""Set the readout to the minimum of the ridge regression on targets ±1.

    .. math:: \frac1n \sum_i |h_i V + c - t_i|^2 + r |V|^2, \quad t_{ik} = 2\,\mathbb 1[y_i = k] - 1

    Solved in float64 in the smaller of sample space and unit space; representations h (n, units)
    that are not held are met in two passes, for their means and their covariances. The intercept c
    is free if the readout has a bias, else 0. weights: of the samples, (n,); the mean over them is
    weighted.
    """
    n, units = h.shape
    targets = targets_of(y, readout.weight.shape[1])
    share = shares(h, weights)[:, None]
    h_mean, t_mean = targets.new_zeros(units), targets.new_zeros(targets.shape[1])
    if readout.bias is not None:
        h_mean = _total((s * part).sum(0) for part, s in _beside(h, share)) / n
        t_mean = (share * targets).mean(0)
    targets = share.sqrt() * (targets - t_mean)
    if units <= n:
        gram, outer = targets.new_zeros(()), targets.new_zeros(())
        for part, s, t in _beside(h, share, targets):
            part = s.sqrt() * (part - h_mean)
            gram, outer = gram + part.T @ part, outer + part.T @ t
        gram.diagonal().add_(n * ridge)
        found = torch.linalg.solve(gram, outer)
    else:
        parts = [s.sqrt() * (part - h_mean) for part, s in _beside(h, share)]
        rows = torch.cat(parts)
        gram = rows @ rows.T
        gram.diagonal().add_(n * ridge)
        found = rows.T @ torch.linalg.solve(gram, targets)
    readout.weight.copy_(found)
    if readout.bias is not None:
        readout.bias.copy_(t_mean - h_mean @ found)


def _total(parts: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, parts)


def blocks_of(h: Tensor | Source) -> Iterator[Tensor]:
    """Rows in order, some at a time: those of a tensor all at once."""
    return iter((h,)) if isinstance(h, Tensor) else h.blocks()


def _beside(h: Tensor | Source, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Blocks of h in float64, each with the same rows of the others."""
    start = 0
    for block in blocks_of(h):
        rows = slice(start, start + len(block))
        yield block.to(widest(block.device)), *(other[rows] for other in others)
        start = rows.stop


@torch.no_grad()
def solve_prototypes(readout: Dense, h: Tensor | Source, y: Tensor) -> None:
    r"""Set the readout to the nearest prototype, the mean representation c_k of each class.

    The logits −|h − c_k|²/N without the |h|²/N that all have in common: linear, V = 2c/N and a bias
    of −|c_k|²/N. A class that does not occur is never the nearest.
    """
    units, classes = readout.weight.shape
    members = nn.functional.one_hot(y, classes).to(widest(h.device))
    counts = members.sum(0)
    sums = _total(some.T @ part for part, some in _beside(h, members))
    prototypes = sums / counts.clamp(min=1)[:, None]
    distance = prototypes.square().sum(1) / units
    distance[counts == 0] = torch.finfo(readout.weight.dtype).max / 2
    readout.weight.copy_(2 * prototypes.T / units)
    assert readout.bias is not None  # of a readout made for prototypes
    readout.bias.copy_(-distance)


@dataclass(frozen=True)
class KernelRidge:
    r"""Kernel ridge regression on frozen representations, in a recipe.

    .. math:: z_k(x) = \sum_s a_{sk}\, e^{-w |u - u_s|^2 / \langle|u - u'|^2\rangle}

    with u the leading ``components`` principal components of the representation. The keys u_s are
    the training samples and ``copies`` transformed copies of each (if inputs are augmented).
    Exact: a = (K + penalty)⁻¹ t on targets ±1. With ``centres`` m (Nyström) only m keys, drawn at
    random, stand in the sum, and a minimises |K_{nm}a − t|² + penalty·aᵀK_{mm}a over all keys; so
    it is with m = 8000 if there are more keys than that.
    """

    width: float = 2.0  # w, in units of the inverse mean squared distance of keys
    penalty: float = 0.3
    components: int = 400
    copies: int = 3
    centres: int | None = None  # None: all keys, but no more than EXACT

    def __post_init__(self) -> None:
        for name in ("width", "penalty"):
            object.__setattr__(self, name, checks.number(name, getattr(self, name), above=0))
        checks.whole("components", self.components, least=1)
        checks.whole("copies", self.copies, least=0)
        if self.centres is not None:
            checks.whole("centres", self.centres, least=1)

    def sizes(self, samples: int, *, augmented: bool) -> tuple[int, int]:
        """How many components and centres there are at most, for so many samples."""
        keys = samples * (1 + self.copies) if augmented else samples
        return min(self.components, keys), min(self.centres or EXACT, keys)


class KernelReadout(nn.Module):
    """Logits z = exp(−γ|u − u_s|²) a, u = (h − mean)·directions; see :class:`KernelRidge`."""

    mean: Tensor  # (units,)
    directions: Tensor  # (units, components)
    centres: Tensor  # u_s, (centres, components)
    coefficients: Tensor  # a, (centres, classes)
    gamma: Tensor  # ()

    def __init__(self, units: int, outputs: int, components: int, centres: int) -> None:
        super().__init__()
        for name, shape in {
            "mean": (units,),
            "directions": (units, components),
            "centres": (centres, components),
            "coefficients": (centres, outputs),
            "gamma": (),
        }.items():
            self.register_buffer(name, torch.zeros(shape))

    @property
    def weight(self) -> Tensor:
        """The coefficients, whose type and device are the readout's."""
        return self.coefficients

    def initialise(self, generator: torch.Generator) -> None:
        """Nothing is random here."""

    def project(self, h: Tensor) -> Tensor:
        """The principal components u of representations, (B, components)."""
        return (h - self.mean) @ self.directions

    def forward(self, h: Tensor) -> Tensor:
        """Logits, (B, classes)."""
        return gaussian_kernel(self.project(h), self.centres, self.gamma) @ self.coefficients

    @torch.no_grad()
    def solve(
        self,
        h: Tensor | Source,
        y: Tensor,
        spec: KernelRidge,
        generator: torch.Generator,
        weights: Tensor | None = None,
    ) -> None:
        """Set all numbers from the keys' representations h (keys, units) and labels y.

        Keys that are not held are met in passes: for mean, covariance, distance and regression.
        weights: of the keys, (keys,), in the sum of squared errors; only their ratios count.
        """
        self.mean.copy_(_total(part.sum(0) for part in blocks_of(h)) / len(h))
        self.directions.copy_(_principal(h, self.mean, self.directions.shape[1]))
        self.regress(self.projected(h), y, spec, generator, weights)

    def projected(self, h: Tensor | Source) -> Tensor | Source:
        """The principal components of all keys, held or met in passes as the keys are."""
        if isinstance(h, Tensor):
            return self.project(h)
        return h.map(self.project, self.directions.shape[1])

    @torch.no_grad()
    def regress(
        self,
        keys: Tensor | Source,
        y: Tensor,
        spec: KernelRidge,
        generator: torch.Generator,
        weights: Tensor | None = None,
    ) -> None:
        """Set γ, centres and coefficients from the keys' principal components."""
        n, wide = len(keys), widest(keys.device)
        # Mean over all pairs of keys of |u − u'|² = 2 (⟨|u|²⟩ − |⟨u⟩|²)
        squares = _total(u.square().sum(1).sum() for u in blocks_of(keys)) / n
        mean = _total(u.sum(0) for u in blocks_of(keys)) / n
        apart = 2 * (squares - mean.square().sum())
        self.gamma.copy_(spec.width / apart.clamp(min=TINY))  # of keys that are all one point
        t, m = targets_of(y, self.coefficients.shape[1]), len(self.centres)
        if m == n:
            keys = torch.cat(list(blocks_of(keys)))
            self.centres.copy_(keys)
            gram = gaussian_kernel(keys.to(wide), keys.to(wide), self.gamma)
            gram.diagonal().add_(spec.penalty / shares(keys, weights).clamp(min=TINY))
            self.coefficients.copy_(_solve(gram, t))
            return
        chosen = torch.full((n,), -1, device=keys.device)  # where in the sum a key stands
        drawn = torch.randperm(n, generator=generator, device=keys.device)[:m]
        chosen[drawn] = torch.arange(m, device=keys.device)
        root = shares(keys, weights).sqrt()[:, None]
        for u, place in _batches(keys, chosen):
            self.centres[place[place >= 0]] = u[place >= 0]
        centres = self.centres.to(wide)
        inner = gaussian_kernel(centres, centres, self.gamma) * spec.penalty
        outer = torch.zeros(m, t.shape[1], dtype=wide, device=keys.device)
        for u, target, r in _batches(keys, root * t, root):
            k = gaussian_kernel(u, self.centres, self.gamma) * r.to(u.dtype)
            inner += product(k.T, k).to(wide)
            outer += k.to(wide).T @ target
        self.coefficients.copy_(_solve(inner, outer))


def _batches(keys: Tensor | Source, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Keys in order, some at a time, each with the same rows of the others."""
    start = 0
    for block in blocks_of(keys):
        for u in block.split(BATCH):
            rows = slice(start, start + len(u))
            yield u, *(other[rows] for other in others)
            start = rows.stop


def _principal(h: Tensor | Source, mean: Tensor, components: int) -> Tensor:
    """The leading principal directions of h (n, units), from the smaller Gram matrix."""
    (n, units), wide = h.shape, widest(h.device)
    if n < units:
        h = torch.cat(list(blocks_of(h))) - mean
        values, vectors = torch.linalg.eigh((h @ h.T).to(wide))
        values, vectors = values[-components:], vectors[:, -components:]
        # Directions in which nothing varies, such as one that centring takes away, stay 0.
        varies = values > NOTHING * values[-1:].clamp(min=TINY)
        left: Tensor = vectors * torch.where(varies, values, torch.inf).rsqrt()
        return h.T @ left.to(h.dtype)
    gram = torch.zeros(units, units, dtype=wide, device=h.device)
    for (part,) in _batches(h):
        part = part - mean
        gram += product(part.T, part).to(wide)
    directions: Tensor = torch.linalg.eigh(gram).eigenvectors[:, -components:]
    return directions.to(mean.dtype)


def _solve(a: Tensor, b: Tensor) -> Tensor:
    """a⁻¹b for a positive matrix, lifted by as much as float32 has rounded it below 0.

    A product of many keys in float32 errs by its largest eigenvalue times eps, which is between the
    mean and the sum of the diagonal times eps.
    """
    lift = torch.finfo(torch.float32).eps * a.diagonal().mean()
    most = 10 * len(a) * lift
    factor, info = torch.linalg.cholesky_ex(a)
    while int(info):
        if not lift <= most:  # nor if it is not a number
            raise FermiboseError(
                "the kernel of the readout cannot be inverted: its representations are not finite, "
                "or far too large; use a smaller learning rate, or another readout"
            )
        a.diagonal().add_(lift)
        lift = 10 * lift
        factor, info = torch.linalg.cholesky_ex(a)
    return torch.cholesky_solve(b, factor)
