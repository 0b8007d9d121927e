r"""The local rule: the force every representation of a batch feels from its pairs, in closed form.

And what learns by it: the local layer, and the pair energy as a loss for any PyTorch model.

With the squared distances :math:`D^2_{ij} = |h_i - h_j|^2/N` (mean over the N units), their forces
:math:`S_{ij} = \partial E/\partial D^2_{ij}` and P = B(B−1)/2 pairs, the gradient of
:math:`L = \frac1P \sum_{i<j} E(D^2_{ij})` is a graph Laplacian acting on the representations,

.. math:: \frac{\partial L}{\partial h} = \frac{2}{N P}\,(\mathrm{diag}(S\mathbf 1) - S)\,h .

No pair is ever materialised: everything is a block of the B×B matrix or a GEMM. The diagonal of S
cancels in the Laplacian; energies and counts leave it out, for a sample is no pair with itself.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fermibose import checks
from fermibose.energy import PairEnergy
from fermibose.errors import InputError

# Entries of the B×B matrix treated at once: they stay in the cache, and the time of a step per
# operation does not grow with the batch (scaling() in benchmarks/machine.py).
BLOCK = 1 << 19
# Spread |h − ⟨h⟩|² per |h|² below which what all samples have in common is taken off first: in the
# Gram matrix it would cost more than three digits (the test of near-duplicates fails without it).
COMMON = 1e-3


class PairReport(NamedTuple):
    """What the pairs of one batch look like. A mean over no pairs is NaN."""

    energy: float  # mean of E over all pairs; 0 if there is none
    boson_distance: float  # mean D² of boson pairs
    fermion_distance: float  # mean D² of fermion pairs
    n_boson: int
    n_fermion: int

    @property
    def boson_share(self) -> float:
        """Boson pairs per pair."""
        pairs = self.n_boson + self.n_fermion
        return self.n_boson / pairs if pairs else float("nan")


def count_pairs(labels: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Numbers of boson and fermion pairs among samples with these labels, (B,) integers."""
    size = len(labels)
    n_boson = sum(n * (n - 1) // 2 for n in Counter(labels.tolist()).values())
    return n_boson, size * (size - 1) // 2 - n_boson


def check_labels(labels: Tensor, size: int) -> None:
    """Refuse labels that are not whole numbers, one for each of ``size`` samples."""
    if labels.shape != (size,) or size == 0:
        raise InputError(f"{size} samples need one label each, got shape {tuple(labels.shape)}")
    if labels.is_floating_point() or labels.is_complex():  # NaN would equal no label, not its own
        raise InputError(f"labels must be whole numbers, got {labels.dtype}; give labels.long()")


def pair_force(h: Tensor, labels: Tensor, energy: PairEnergy) -> tuple[Tensor, PairReport]:
    """∂L/∂h, shape (B, N), of the mean pair energy of a batch, and a report on its pairs.

    h: representations (B, N). labels: (B,) integers; equal labels make boson pairs, different
    labels fermion pairs. A batch of one sample has no pair and feels no force.
    """
    size, units = h.shape
    if h.device.type != "cpu" or h.dtype not in (torch.float32, torch.float64):
        raise InputError(
            f"local layers learn on the CPU, in float32 or float64, got {h.dtype} on {h.device}: "
            "convert layer and inputs, or use PairLoss"
        )
    check_labels(labels, size)
    kinds = labels.numpy()  # NumPy's calls on small matrices cost a third of torch's
    n_boson, n_fermion = counts = count_pairs(kinds)
    pairs = max(n_boson + n_fermion, 1)
    gram = (h @ h.T).numpy()
    own = float(gram.diagonal().sum()) / size
    if own - float(gram.sum()) / size**2 < COMMON * own:
        h = h - h.mean(0)
        gram = (h @ h.T).numpy()
    squares = gram.diagonal() / units
    force = torch.empty_like(h)
    pair_energy = total = bosons = 0.0
    rows = max(BLOCK // size, 1)
    for start in range(0, size, rows):  # the force on a block of rows needs no other rows' forces
        block = slice(start, start + rows)
        diagonal = slice(start, None, size + 1)  # of the flattened block
        same = kinds[block, None] == kinds
        d2 = gram[block]
        d2 *= -2 / units
        d2 += squares
        d2 += squares[block, None]
        np.maximum(d2, 0, out=d2)
        d2.reshape(-1)[diagonal] = 0

        energies, laplacian = energy.energy_and_force(d2, same, counts)
        laplacian *= -2 / (units * pairs)
        laplacian.reshape(-1)[diagonal] -= laplacian.sum(1)
        torch.mm(torch.from_numpy(laplacian), h, out=force[block])

        energies.reshape(-1)[diagonal] = 0
        pair_energy += float(energies.sum()) / 2
        total += float(d2.sum()) / 2
        d2 *= same
        bosons += float(d2.sum()) / 2
    report = PairReport(
        energy=pair_energy / pairs,
        boson_distance=bosons / n_boson if n_boson else float("nan"),
        fermion_distance=(total - bosons) / n_fermion if n_fermion else float("nan"),
        n_boson=n_boson,
        n_fermion=n_fermion,
    )
    return force, report


@dataclass(frozen=True)
class Activation:
    """An activation h = φ(z) in the three forms that are needed.

    A local layer keeps only its output h, never the pre-activation z, so the rule that carries a
    force on h back to z must read the slope φ'(z) off h. Learning works in place, to touch little
    memory.
    """

    name: str
    apply: Callable[[Tensor], Tensor]  # h = φ(z), differentiable
    apply_: Callable[[Tensor], Tensor]  # the same in place of z
    pull_back_: Callable[[Tensor, Tensor], Tensor]  # (∂L/∂h, h) → ∂L/∂z, in place of ∂L/∂h


def _half_tanh(z: Tensor) -> Tensor:
    return torch.sigmoid(2 * z)  # (1 + tanh z)/2, without the cancellation at z → −∞


def _half_tanh_(z: Tensor) -> Tensor:
    return z.mul_(2).sigmoid_()


def _half_tanh_pull_back_(grad: Tensor, h: Tensor) -> Tensor:
    torch.ops.aten.sigmoid_backward(grad, h, grad_input=grad)
    return grad.mul_(2)  # φ' = 2h(1−h)


def _tanh_pull_back_(grad: Tensor, h: Tensor) -> Tensor:
    torch.ops.aten.tanh_backward(grad, h, grad_input=grad)  # φ' = 1−h²
    return grad


ACTIVATIONS = {
    "half_tanh": Activation("half_tanh", _half_tanh, _half_tanh_, _half_tanh_pull_back_),
    "tanh": Activation("tanh", torch.tanh, torch.tanh_, _tanh_pull_back_),
}


class Dense(nn.Module):
    """The map x → xW + b. Its parameters are frozen: none requires a gradient."""

    weight: nn.Parameter  # W, (inputs, units): the layout for which both GEMMs are fastest
    bias: nn.Parameter | None  # b, (units,)

    def __init__(self, inputs: int, units: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, units), requires_grad=False)
        self.register_parameter(
            "bias", nn.Parameter(torch.zeros(units), requires_grad=False) if bias else None
        )

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw W ~ N(0, 1/fan_in) and set the bias to 0."""
        self.weight.normal_(0.0, self.weight.shape[0] ** -0.5, generator=generator)
        if self.bias is not None:
            self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """xW + b, shape (B, units)."""
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)


class LocalDense(Dense):
    r"""A layer h = φ(xW + b) that learns from the pairs of its own output.

    It minimises, for one batch,

    .. math:: L = \langle E(D^2)\rangle_{pairs} + \frac{\lambda}{2N}|W|^2 + \mu \langle|h|\rangle

    with the pair energy E, D² and ⟨|h|⟩ means over the N units, weight decay λ (applied by the
    optimiser) and activity penalty μ. ``forward`` is differentiable in x; learning needs no
    automatic differentiation and nothing from other layers.
    """

    def __init__(
        self, inputs: int, units: int, *, activation: str = "half_tanh", bias: bool = False
    ) -> None:
        super().__init__(inputs, units, bias=bias)
        self.activation = ACTIVATIONS[checks.choice("activation", activation, ACTIVATIONS)]

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw W ~ N(0, 1/fan_in) and the bias, if there is one, from N(0, 1).

        Units whose thresholds all start at 0 are odd functions of the inputs, and would have to
        find their thresholds by chance: see the row without them in :func:`choice` of
        benchmarks/tables.py.
        """
        super().initialise(generator)
        if self.bias is not None:
            self.bias.normal_(generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """h = φ(xW + b), shape (B, units)."""
        return self.activation.apply(super().forward(x))

    @torch.no_grad()
    def learn_from(
        self, x: Tensor, labels: Tensor, energy: PairEnergy, *, activity: float = 0.0
    ) -> PairReport:
        """Write the gradient of L (without weight decay) for the batch x into ``.grad``.

        x: (B, inputs). labels: (B,) integers that say which pairs are bosons. Computed in the
        precision of the weights, under autocast too.
        """
        if torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):
                return self.learn_from(x, labels, energy, activity=activity)
        h = self.activation.apply_(super().forward(x))
        force, report = pair_force(h, labels, energy)
        if activity:
            force.add_(h.sign(), alpha=activity / h.numel())
        delta = self.activation.pull_back_(force, h)
        if self.weight.grad is None:
            self.weight.grad = torch.empty_like(self.weight)
        torch.mm(x.T, delta, out=self.weight.grad)
        if self.bias is not None:
            self.bias.grad = delta.sum(0)
        return report


class PairLoss(nn.Module):
    """Mean pair energy of a batch of representations, to train layers of your own with.

    ``PairLoss(energy)(h, labels)``: h (B, …) is flattened to (B, N), distances are means over its N
    entries; labels (B,) are integers, equal for boson pairs. Detach what enters a layer to keep its
    learning local. Everything is done by torch, on the device of h and in float64 (float32 on mps,
    which has no more), whatever the type of h and under autocast too; the loss has the type of h,
    or float32 if that is coarser. It can be differentiated any number of times, mapped
    (``torch.func``) and compiled, and holds some ten B×B matrices.
    """

    def __init__(self, energy: PairEnergy | None = None) -> None:
        super().__init__()
        self.energy = energy or PairEnergy()

    def forward(self, h: Tensor, labels: Tensor) -> Tensor:
        """The scalar loss, mean of E(D²) over all pairs of the batch."""
        if h.ndim < 2 or not h.is_floating_point() or not h.numel():
            raise InputError(
                f"representations must be real numbers of shape (samples, …), got {h.dtype} of "
                f"shape {tuple(h.shape)}"
            )
        labels, size = torch.as_tensor(labels), len(h)
        check_labels(labels, size)
        if labels.is_meta and not h.is_meta:
            raise InputError("the labels are on the device meta, which holds no numbers: give some")
        labels = labels.to(h.device, torch.int64)
        d2 = _squared_distances(h.flatten(1))
        same = labels[:, None] == labels
        itself = torch.eye(size, dtype=torch.bool, device=h.device)
        bosons, fermions = (pairs.sum().to(d2.dtype) / 2 for pairs in (same & ~itself, ~same))
        energies: Tensor = self.energy.energy(d2, same, (bosons, fermions))
        mean = energies.masked_fill(itself, 0).sum() / max(size * (size - 1), 1)
        return mean.to(torch.promote_types(h.dtype, torch.float32))


def _squared_distances(h: Tensor) -> Tensor:
    """D² of all pairs, (B, B), in float64: from a Gram matrix small ones lose half their digits."""
    wide = h.to(torch.float32 if h.device.type == "mps" else torch.float64)
    wide = wide - wide.mean(0)  # a common offset would cost digits too
    gram = wide @ wide.T
    squares = gram.diagonal()
    d2 = (squares[:, None] + squares - 2 * gram) / h.shape[1]
    # Rounding may leave it below 0; but it is d2 whose derivatives are those of the distance.
    return d2 - d2.detach().clamp(max=0)
