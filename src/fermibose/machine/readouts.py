r"""Readouts in closed form on frozen representations: ridge, nearest prototype, kernel ridge."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fermibose import checks
from fermibose.machine.local_rule import Dense

BATCH = 2048  # samples whose kernel values are held at once
NOTHING = 1e-10  # variance along a direction, per largest, that float32 cannot tell from rounding
TINY = 1e-30


def gaussian_kernel(x: Tensor, centres: Tensor, gamma: Tensor | float) -> Tensor:
    """exp(−γ|x − x_s|²), (B, centres), from one GEMM; rounding may leave |x − x_s|² below 0."""
    squares = centres.square().sum(1) + x.square().sum(1, keepdim=True)
    return torch.exp(-gamma * torch.addmm(squares, x, centres.T, alpha=-2).clamp(min=0))


def targets_of(y: Tensor, classes: int) -> Tensor:
    """t_{ik} = 1 for the class of sample i and −1 for the others, (samples, classes), float64."""
    return 2.0 * nn.functional.one_hot(y, classes).double() - 1


@torch.no_grad()
def solve_ridge(readout: Dense, h: Tensor, y: Tensor, *, ridge: float) -> None:
    r"""Set the readout to the minimum of the ridge regression on targets ±1.

    .. math:: \frac1n \sum_i |h_i V + c - t_i|^2 + r |V|^2, \quad t_{ik} = 2\,\mathbb 1[y_i = k] - 1

    Solved in float64 in the smaller of sample space and unit space. The intercept c is free if the
    readout has a bias, else 0.
    """
    n, units = h.shape
    targets = targets_of(y, readout.weight.shape[1])
    h = h.double()
    if readout.bias is not None:
        h_mean, t_mean = h.mean(0), targets.mean(0)
        h, targets = h - h_mean, targets - t_mean
    if units <= n:
        weights = torch.linalg.solve(h.T @ h + n * ridge * torch.eye(units).double(), h.T @ targets)
    else:
        weights = h.T @ torch.linalg.solve(h @ h.T + n * ridge * torch.eye(n).double(), targets)
    readout.weight.copy_(weights)
    if readout.bias is not None:
        readout.bias.copy_(t_mean - h_mean @ weights)


@torch.no_grad()
def solve_prototypes(readout: Dense, h: Tensor, y: Tensor) -> None:
    r"""Set the readout to the nearest prototype, the mean representation c_k of each class.

    The logits −|h − c_k|²/N without the |h|²/N that all have in common: linear, V = 2c/N and a bias
    of −|c_k|²/N. A class that does not occur is never the nearest.
    """
    units, classes = readout.weight.shape
    members = nn.functional.one_hot(y, classes).double()
    counts = members.sum(0)
    prototypes = members.T @ h.double() / counts.clamp(min=1)[:, None]
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
    random, stand in the sum, and a minimises |K_{nm}a − t|² + penalty·aᵀK_{mm}a over all keys.
    """

    width: float = 2.0  # w, in units of the inverse mean squared distance of keys
    penalty: float = 0.3
    components: int = 400
    copies: int = 3
    centres: int | None = None  # None: all keys

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
        return min(self.components, keys), min(self.centres or keys, keys)


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
    def solve(self, h: Tensor, y: Tensor, spec: KernelRidge, generator: torch.Generator) -> None:
        """Set all numbers from the keys' representations h (keys, units) and labels y."""
        components, n = self.directions.shape[1], len(h)
        self.mean.copy_(h.mean(0))
        self.directions.copy_(_principal(h - self.mean, components))
        keys = self.project(h)
        # Mean over all pairs of keys of |u − u'|² = 2 (⟨|u|²⟩ − |⟨u⟩|²)
        spread = 2 * (keys.square().sum(1).mean() - keys.mean(0).square().sum())
        self.gamma.copy_(spec.width / spread.clamp(min=TINY))  # of keys that are all one point
        t, m = targets_of(y, self.coefficients.shape[1]), len(self.centres)
        if m == n:
            self.centres.copy_(keys)
            gram = gaussian_kernel(keys.double(), keys.double(), self.gamma)
            gram.diagonal().add_(spec.penalty)
            self.coefficients.copy_(_solve(gram, t))
            return
        self.centres.copy_(keys[torch.randperm(n, generator=generator)[:m]])
        centres = self.centres.double()
        inner = gaussian_kernel(centres, centres, self.gamma) * spec.penalty
        outer = torch.zeros(m, t.shape[1], dtype=torch.float64)
        for u, target in zip(keys.split(BATCH), t.split(BATCH), strict=True):
            k = gaussian_kernel(u, self.centres, self.gamma)
            inner += (k.T @ k).double()
            outer += k.double().T @ target
        self.coefficients.copy_(_solve(inner, outer))


def _principal(h: Tensor, components: int) -> Tensor:
    """The leading principal directions of centred h (n, units), from the smaller Gram matrix."""
    n, units = h.shape
    if n < units:
        values, vectors = torch.linalg.eigh((h @ h.T).double())
        values, vectors = values[-components:], vectors[:, -components:]
        # Directions in which nothing varies, such as one that centring takes away, stay 0.
        varies = values > NOTHING * values[-1:].clamp(min=TINY)
        left: Tensor = vectors * torch.where(varies, values, torch.inf).rsqrt()
        return h.T @ left.to(h.dtype)
    gram = torch.zeros(units, units, dtype=torch.float64)
    for part in h.split(BATCH):
        gram += (part.T @ part).double()
    directions: Tensor = torch.linalg.eigh(gram).eigenvectors[:, -components:]
    return directions.to(h.dtype)


def _solve(a: Tensor, b: Tensor) -> Tensor:
    """a⁻¹b for a positive matrix, lifted by rounding's worth where it is not quite."""
    lift = torch.finfo(torch.float32).eps * a.diagonal().mean()
    factor, info = torch.linalg.cholesky_ex(a)
    if int(info):
        factor = torch.linalg.cholesky(a + lift * torch.eye(len(a), dtype=a.dtype))
    return torch.cholesky_solve(b, factor)
