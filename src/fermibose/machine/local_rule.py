r"""The local rule: the force every representation of a batch feels from its pairs, in closed form.

And what learns by it: the local layer.

With the squared distances :math:`D^2_{ij} = |h_i - h_j|^2/N` (mean over the N units), their forces
:math:`S_{ij} = \partial E/\partial D^2_{ij}` and P = B(B−1)/2 pairs, the gradient of
:math:`L = \frac1P \sum_{i<j} E(D^2_{ij})` is a graph Laplacian acting on the representations,

.. math:: \frac{\partial L}{\partial h} = \frac{2}{N P}\,(\mathrm{diag}(S\mathbf 1) - S)\,h .

No pair is ever materialised: everything is a block of the B×B matrix or a GEMM. The diagonal of S
cancels in the Laplacian; energies and counts leave it out, for a sample is no pair with itself.
``pair_force`` is this for one batch on a CPU; ``queries`` has the same rule for everything else.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fermibose import checks
from fermibose.energy import PairEnergy
from fermibose.errors import InputError
from fermibose.machine.cores import NARROW, cut, on_threads, pieces_of, product
from fermibose.machine.free_energy import FreeEnergy
from fermibose.machine.loop import ALONE, Adam, Sharing
from fermibose.machine.queries import BLOCK, Energy, batch_forces

# Entries of the B×B matrix that are held, 64 MB; rows of more are computed when their turn comes.
# (A layer in blocks holds one such matrix for each, and their sum.)
STRIP = 1 << 24
# Variance |h − ⟨h⟩|² per |h|² below which what samples have in common is taken off first: in the
# Gram matrix it would cost more than three digits (the test of near-duplicates fails without it).
COMMON = 1e-3
# Samples that pass a layer at once where it learns by its chain rule, and a net of convolutions: a
# bound of what they leave behind for the way back. 32 and 128 take about the same time; all of 400
# at once take the first layer of preset "robust" a quarter longer or more, not the second, all of
# 500 take the net 1.4 times as long (chunks() and together() in benchmarks/machine.py).
CHUNK = 64
# Multiplications of the product x W that are worth a block of its own (widths() in
# benchmarks/machine.py): fewer are less than threads lose by a meeting.
BLOCK_PRODUCTS = 3 << 22
VECTOR = 8  # units by which blocks may differ
# Fraction of dead inputs from which they are split off: choosing the others costs as much as the
# products with about one in a hundred (split() in benchmarks/machine.py).
WORTHWHILE = 0.03


class PairReport(NamedTuple):
    """What the pairs of one batch look like. A mean over no pairs is NaN."""

    energy: float  # mean of E over all pairs; 0 if there is none
    boson_distance: float  # mean D² of boson pairs
    fermion_distance: float  # mean D² of fermion pairs
    n_boson: int
    n_fermion: int

    @classmethod
    def of(cls, energy: float, bosons: float, fermions: float, counts: tuple[int, int]) -> Self:
        """From sums of D² over the pairs of each kind."""
        n_boson, n_fermion = counts
        return cls(
            energy,
            bosons / n_boson if n_boson else float("nan"),
            fermions / n_fermion if n_fermion else float("nan"),
            *counts,
        )

    @property
    def boson_share(self) -> float:
        """Boson pairs per pair."""
        pairs = self.n_boson + self.n_fermion
        return self.n_boson / pairs if pairs else float("nan")


def count_pairs(
    labels: Tensor | npt.NDArray[np.int64],
    *,
    perturbed: bool = False,
    extra: bool = False,
    own: bool = False,
) -> tuple[int, int]:
    """Numbers of boson and fermion pairs of a batch with these labels, (B,) integers.

    perturbed, extra, own: of queries and keys as in :meth:`LocalLayer.learn_from`.
    """
    size = len(labels)
    if isinstance(labels, Tensor):  # counted where they are
        members = labels.unique(return_counts=True)[1]
        n_boson = int((members * (members - 1)).sum())
    else:
        n_boson = sum(n * (n - 1) for n in Counter(labels.tolist()).values())
    n_fermion = size * (size - 1) - n_boson
    if not perturbed:
        return n_boson // 2, n_fermion // 2
    return n_boson * (1 + extra) + size * own, n_fermion * (1 + extra)


def check_labels(labels: Tensor, size: int) -> None:
    """Refuse labels that are not whole numbers, one for each of ``size`` samples."""
    if size == 0:
        raise InputError("there are no samples to learn from")
    if labels.shape != (size,):
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
            f"local layers learn from numbers in float32 or float64, got {h.dtype} on {h.device}: "
            "convert layer and inputs, or use PairLoss"
        )
    check_labels(labels, size)
    kinds = labels.numpy()  # NumPy's calls on small matrices cost a third of torch's
    counts = count_pairs(kinds)
    gram, squares, common = _gram(h)
    if nearly_one(squares, common):
        h = h - h.mean(0)
        gram, squares, _ = _gram(h)
    squares = squares / units
    force, sums = torch.empty_like(h), np.zeros(3)
    high = max(STRIP // size, 1)
    for top in range(0, size, high):  # the force on some rows needs no other rows' forces
        strip = product(h[top : top + high], h.T) if gram is None else gram
        sums += to_laplacian(strip.numpy(), squares, kinds, energy, counts, units, top)
        product(strip, h, out=force[top : top + high])
    return force, PairReport.of(float(sums[0]), float(sums[1]), float(sums[2]), counts)


def to_laplacian(
    gram: npt.NDArray[Any],
    squares: npt.NDArray[Any],
    kinds: npt.NDArray[np.int64],
    energy: PairEnergy,
    counts: tuple[int, int],
    units: int,
    top: int = 0,
) -> tuple[float, float, float]:
    """Turn rows of the Gram matrix, from the row ``top`` on, into those of (2/NP)(diag(S1) − S).

    squares: |h_i|²/N of all samples, kinds their labels. Returns what these rows have of L, and of
    D² summed over boson and over fermion pairs.
    """
    size, pairs = gram.shape[1], max(sum(counts), 1)
    pair_energy = total = bosons = 0.0
    rows = max(BLOCK // size, 1)
    for start in range(top, top + len(gram), rows):
        block = slice(start, min(start + rows, top + len(gram)))
        diagonal = slice(start, None, size + 1)  # of the flattened block
        same = kinds[block, None] == kinds
        d2 = gram[start - top : block.stop - top]
        d2 *= -2 / units
        d2 += squares
        d2 += squares[block, None]
        np.maximum(d2, 0, out=d2)
        d2.reshape(-1)[diagonal] = 0

        energies, laplacian = energy.energy_and_force(d2, same, counts)
        laplacian *= -2 / (units * pairs)
        laplacian.reshape(-1)[diagonal] -= laplacian.sum(1)

        energies.reshape(-1)[diagonal] = 0
        pair_energy += float(energies.sum()) / 2
        total += float(d2.sum()) / 2
        d2 *= same
        bosons += float(d2.sum()) / 2
        d2[:] = laplacian
    return pair_energy / pairs, bosons, total - bosons


def _gram(h: Tensor) -> tuple[Tensor | None, npt.NDArray[Any], float]:
    """The Gram matrix of h unless it is too large to be held, |h_i|², and |⟨h⟩|²."""
    size = h.shape[0]
    if size**2 > STRIP:
        return None, h.square().sum(1).numpy(), float(h.mean(0).square().sum())
    gram = product(h, h.T)
    return gram, *of_gram(gram.numpy())


def of_gram(gram: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], float]:
    """|h_i|², and |⟨h⟩|²."""
    return gram.diagonal().copy(), float(gram.sum()) / gram.size


def nearly_one(squares: npt.NDArray[Any], common: float) -> bool:
    """Whether samples with these |h_i|² and |⟨h⟩|² have nearly all in common."""
    return (1 - COMMON) * float(squares.sum()) < len(squares) * common


@dataclass(frozen=True)
class Activation:
    """An activation h = φ(z) = ψ(az) in the three forms that are needed.

    A local layer keeps only its output h, never the pre-activation z, so the rule that carries a
    force on h back must read the slope off h. Learning works in place, to touch little memory, and
    leaves the gain a to the products before and after.
    """

    name: str
    apply: Callable[[Tensor], Tensor]  # h = φ(z), differentiable
    gain: float  # a, a power of 2: whoever multiplies by it, the bits are the same
    apply_: Callable[[Tensor], Tensor]  # h = ψ(az), in place of az
    pull_back_: Callable[[Tensor, Tensor], Tensor]  # (∂L/∂h, h) → ∂L/∂(az), in place of ∂L/∂h

    def slope(self, h: Tensor) -> Tensor:
        """φ'(z) where the output is h."""
        return self.pull_back_(torch.ones_like(h), h).mul_(self.gain)


def _half_tanh(z: Tensor) -> Tensor:
    return torch.sigmoid(2 * z)  # (1 + tanh z)/2, without the cancellation at z → −∞


def _sigmoid_pull_back_(grad: Tensor, h: Tensor) -> Tensor:
    torch.ops.aten.sigmoid_backward(grad, h, grad_input=grad)  # ψ' = h(1−h)
    return grad


def _tanh_pull_back_(grad: Tensor, h: Tensor) -> Tensor:
    torch.ops.aten.tanh_backward(grad, h, grad_input=grad)  # ψ' = 1−h²
    return grad


def _relu_pull_back_(grad: Tensor, h: Tensor) -> Tensor:
    return grad.mul_(h > 0)


ACTIVATIONS = {
    "half_tanh": Activation("half_tanh", _half_tanh, 2, torch.sigmoid_, _sigmoid_pull_back_),
    "tanh": Activation("tanh", torch.tanh, 1, torch.tanh_, _tanh_pull_back_),
    "relu": Activation("relu", torch.relu, 1, torch.relu_, _relu_pull_back_),
}


class LocalLayer(nn.Module, ABC):
    """A layer that learns from the pairs of its own output.

    ``forward`` maps inputs to the output h, ``head`` what of h the pair energy sees, (B, N). Its
    parameters are frozen: none requires a gradient, but while the layer learns.
    """

    units: int  # N of the weight decay (λ/2N)|W|²

    def head(self, h: Tensor) -> Tensor:
        """The representation on which the energy acts: all of h."""
        return h.flatten(1)

    @abstractmethod
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the first weights."""

    def constrain(self) -> None:
        """Bring the parameters back to where they may be, after the optimiser moved them."""

    @torch.no_grad()
    def learn_from(
        self,
        x: Tensor,
        labels: Tensor,
        energy: Energy,
        *,
        activity: float = 0.0,
        perturbed: Tensor | None = None,
        extra: bool = False,
        own: bool = False,
        ranks: Sharing = ALONE,
    ) -> PairReport:
        """Write the gradient of L (without weight decay) for the batch x into ``.grad``.

        x: (B, …). labels: (B,) integers that say which pairs are bosons. perturbed: the same inputs
        as an adversary or a camera changed them, (B, …); they are the queries then, and x the keys.
        extra: x are queries too. own: a perturbed input and its own x are a boson pair. ranks: who
        shares the batch; x and perturbed are this rank's part of it, labels those of all.

        The forces on the output are in closed form, and the chain rule carries them through this
        layer only.
        """
        check_labels(ranks.part(labels), len(x))
        inputs = x if perturbed is None else torch.cat([perturbed, x])
        parameters = list(self.requires_grad_(True).parameters())
        # Halves would break the closed forms; the way back is in the precision of the way there.
        try:
            with torch.autocast(x.device.type, enabled=False):
                with torch.enable_grad():
                    heads = on_threads(lambda part: self.head(self(part)), inputs.split(CHUNK))
                h = torch.cat([head.detach() for head in heads])
                copies = h.view(-1, len(x), h.shape[1])  # perturbed rows, rows themselves
                roles = {"perturbed": perturbed is not None, "extra": extra, "own": own}
                counts = count_pairs(labels, **roles)
                force, sums = batch_forces(copies, labels, energy, ranks, counts, **roles)
                if activity:
                    here = ranks.share(len(labels))
                    acting = force[:, : here.stop - here.start]
                    size = len(copies) * len(labels) * h.shape[1]
                    acting.add_(copies[:, : acting.shape[1]].sign(), alpha=activity / size)
                gradients = on_threads(
                    lambda part: torch.autograd.grad(part[0], parameters, part[1]),
                    zip(heads, force.flatten(0, 1).split(CHUNK), strict=True),
                )
        finally:
            self.requires_grad_(False)
        # The last samples first, as the tape of all of them would go back
        summed = [reduce(torch.add, reversed(parts)) for parts in zip(*gradients, strict=True)]
        *summed, sums = ranks.total(*summed, sums)
        for parameter, gradient in zip(parameters, summed, strict=True):
            parameter.grad = gradient
        value, bosons, fermions = (float(part) for part in sums)
        return PairReport.of(value, bosons, fermions, counts)


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
        if torch.is_grad_enabled():  # a tape knows no result in place, nor do torch.func's maps
            return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)
        return product(x, self.weight, bias=self.bias)


class LocalDense(LocalLayer, Dense):
    r"""A layer h = φ(xW + b) that learns from the pairs of its own output.

    It minimises, for one batch,

    .. math:: L = \langle E(D^2)\rangle_{pairs} + \frac{\lambda}{2N}|W|^2 + \mu \langle|h|\rangle

    with the pair energy E, D² and ⟨|h|⟩ means over the N units, weight decay λ (applied by the
    optimiser) and activity penalty μ. ``forward`` is differentiable in x; learning needs nothing
    from other layers, and no gradient crosses one. It is in closed form; with a free energy,
    perturbed inputs, on other devices and with several ranks the derivative within the layer is
    left to torch.
    """

    def __init__(
        self, inputs: int, units: int, *, activation: str = "half_tanh", bias: bool = False
    ) -> None:
        super().__init__(inputs, units, bias=bias)
        self.units = units
        self.activation = ACTIVATIONS[checks.choice("activation", activation, ACTIVATIONS)]

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw W ~ N(0, 1/fan_in) and the bias, if there is one, from N(0, 1).

        Units whose thresholds all start at 0 are odd functions of the inputs, and would have to
        find their thresholds by chance: see the row without them in :func:`choice` of
        benchmarks/tables.py.
        """
        Dense.initialise(self, generator)
        if self.bias is not None:
            self.bias.normal_(generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """h = φ(xW + b), shape (B, units)."""
        return self.activation.apply(Dense.forward(self, x))

    @torch.no_grad()
    def learn_from(
        self,
        x: Tensor,
        labels: Tensor,
        energy: Energy,
        *,
        activity: float = 0.0,
        **queries: Any,
    ) -> PairReport:
        """Write the gradient of L (without weight decay) for the batch x into ``.grad``.

        As in :meth:`LocalLayer.learn_from`; the paper's energy of the pairs of one batch is done in
        place, without a tape, on a CPU. Computed in the precision of the weights, also under
        autocast, which leaves products into a given place alone.
        """
        elsewhere = x.device.type not in ("cpu", "meta")
        shared = queries.get("ranks", ALONE).count > 1
        asked = queries.get("perturbed") is not None
        if elsewhere or shared or asked or isinstance(energy, FreeEnergy):
            return super().learn_from(x, labels, energy, activity=activity, **queries)
        h = self.represent(x)
        force, report = pair_force(h, labels, energy)
        self.descend(x, h, force, activity / h.numel())
        return report

    def represent(self, x: Tensor, *, out: Tensor | None = None) -> Tensor:
        """As ``forward``, where no tape is kept."""
        gain = self.activation.gain
        return self.activation.apply_(product(x, self.weight, bias=self.bias, factor=gain, out=out))

    def descend(self, x: Tensor, h: Tensor, force: Tensor, activity: float) -> None:
        """Write the gradient of the parameters for a force ∂L/∂h, which is used up, into ``.grad``.

        h: the output for inputs x. activity: penalty of each number in it.
        """
        if activity:
            force.add_(h.sign(), alpha=activity)
        gain = self.activation.gain
        delta = self.activation.pull_back_(force, h)
        if self.bias is not None:
            self.bias.grad = delta.sum(0).mul_(gain)
        if self.weight.grad is None:
            self.weight.grad = torch.empty_like(self.weight)
        product(x.T, delta, factor=gain, out=self.weight.grad)


@dataclass(frozen=True)
class Block:
    """Some units of a layer."""

    units: slice
    learner: LocalDense  # of the live inputs
    resting: nn.Parameter  # weights of the dead ones, (dead, units)
    rooms: dict[int, "Room"] = field(default_factory=dict)  # by B

    def parameters(self) -> Iterator[nn.Parameter]:
        """All that the optimiser moves."""
        yield from self.learner.parameters()
        yield self.resting

    def see(self, x: Tensor) -> None:
        """Find the outputs for a mini-batch, and their Gram matrix."""
        room = self.room(len(x))
        self.learner.represent(x, out=room.h)
        torch.mm(room.h, room.lying, out=room.gram)

    def room(self, size: int) -> "Room":
        """Where it works on mini-batches of this size."""
        if size not in self.rooms:
            h = self.learner.weight.new_empty(size, self.learner.units)
            self.rooms[size] = Room(h, h.T, h.new_empty(size, size), torch.empty_like(h))
        return self.rooms[size]


class Room(NamedTuple):
    """What a block makes of a mini-batch, always in the same place.

    Whatever asks torch for anything, if only for a view, gives Python's lock away and has to get it
    back from the other threads.
    """

    h: Tensor  # (B, units of the block)
    lying: Tensor  # hᵀ
    gram: Tensor  # h hᵀ
    force: Tensor  # ∂L/∂h


def blocks_of(size: int, inputs: int, units: int) -> int:
    """Blocks of units for mini-batches of this size; each has a Gram matrix of its own."""
    return min(pieces_of(size * inputs * units, BLOCK_PRODUCTS), pieces_of(units, NARROW))


class Columns:
    r"""A dense layer while it learns: in blocks of units, without its dead inputs.

    Blocks need each other in one place only, the Gram matrix of all representations. With the
    matrix Λ of the Laplacian,

    .. math:: h h^\top = \sum_b h_b h_b^\top, \qquad
        \frac{\partial L}{\partial h_b} = \Lambda\,h_b, \qquad
        \frac{\partial L}{\partial W_b} = x^\top [\Lambda h_b \odot \varphi'(z_b)] .

    So all that is work in a step, from the force on a block to its outputs for the next mini-batch,
    is done by one thread, and threads meet once a step.

    Dead inputs are 0 in every training sample; of the paper's 1000 digits 22 % of the pixels are
    never lit. Their weights feel no pair, and nothing feels them, so they need no GEMM, only their
    weight decay: the optimiser moves them with gradient 0, as it would anyway.

    The weights live here meanwhile; :meth:`join` writes them back.

    lit: which inputs are ever other than 0. number: of blocks, at the most. closed: whether the
    layer learns by :meth:`learn`; else it is one block, whose learner does. adam: how it moves.
    """

    @classmethod
    def of(
        cls,
        layer: LocalDense,
        lit: Tensor | None,
        energy: Energy,
        size: int,
        ranks: Sharing,
        **adam: Any,
    ) -> Self | None:
        """For mini-batches of this size, if it is worthwhile; lit: None if that is not known."""
        inputs, units = layer.weight.shape
        if lit is None or not 0 < lit.sum() <= (1 - WORTHWHILE) * inputs:
            lit = torch.ones(inputs, dtype=torch.bool, device=layer.weight.device)
        closed = isinstance(energy, PairEnergy) and ranks.count == 1 and size**2 <= STRIP
        if not (closed and layer.weight.device.type == "cpu"):
            return None if lit.all() else cls(layer, lit, 1, closed=False, **adam)
        return cls(layer, lit, blocks_of(size, int(lit.sum()), units), **adam)

    @torch.no_grad()
    def __init__(
        self, layer: LocalDense, lit: Tensor, number: int, *, closed: bool = True, **adam: Any
    ) -> None:
        self.layer, self.closed = layer, closed
        self.live, self.dead = lit.nonzero()[:, 0], (~lit).nonzero()[:, 0]
        weight, bias, name = layer.weight, layer.bias, layer.activation.name
        self.blocks: list[Block] = []
        for units in cut(layer.units, number, VECTOR):
            learner = LocalDense(
                len(self.live), units.stop - units.start, activation=name, bias=bias is not None
            ).to(weight)
            learner.weight.copy_(weight[self.live, units])
            if bias is not None and learner.bias is not None:
                learner.bias.copy_(bias[units])
            resting = nn.Parameter(weight[self.dead, units].clone(), requires_grad=False)
            resting.grad = torch.zeros_like(resting)
            self.blocks.append(Block(units, learner, resting))
        self.optimiser = Adam([p for block in self.blocks for p in block.parameters()], **adam)
        self.pieces = [self.optimiser.whole(block.parameters()) for block in self.blocks]
        self.seen: Tensor | None = None  # inputs for which the blocks have their outputs

    @torch.no_grad()
    def join(self) -> None:
        """Write the weights of all blocks into the layer."""

        def write(block: Block) -> None:
            self.layer.weight[self.live, block.units] = block.learner.weight
            self.layer.weight[self.dead, block.units] = block.resting
            if self.layer.bias is not None and block.learner.bias is not None:
                self.layer.bias[block.units] = block.learner.bias

        on_threads(write, self.blocks)

    @torch.no_grad()
    def learn(
        self,
        x: Tensor,
        labels: Tensor,
        energy: PairEnergy,
        *,
        activity: float = 0.0,
        following: Tensor | None = None,
    ) -> PairReport:
        """One step on the live inputs x, as :meth:`LocalDense.learn_from` and one of Adam would.

        following: inputs of the next mini-batch, if it is known; the step ends with their outputs.
        """
        if x is not self.seen:
            on_threads(lambda block: block.see(x), self.blocks)
        rooms = [block.room(len(x)) for block in self.blocks]
        heads = [room.h for room in rooms]
        gram = sum((room.gram for room in rooms[1:]), rooms[0].gram)
        squares, common = of_gram(gram.numpy())
        if nearly_one(squares, common):  # as in pair_force
            heads = [h - h.mean(0) for h in heads]
            gram = sum((h @ h.T for h in heads), torch.zeros_like(gram))
            squares, _ = of_gram(gram.numpy())
        kinds, units = labels.numpy(), self.layer.units
        counts = count_pairs(kinds)
        sums = to_laplacian(gram.numpy(), squares / units, kinds, energy, counts, units)
        penalty = activity / (len(x) * units)

        def learn(number: int) -> None:
            block, room = self.blocks[number], rooms[number]
            torch.mm(gram, heads[number], out=room.force)
            block.learner.descend(x, room.h, room.force, penalty)
            self.optimiser.move(self.pieces[number])
            if following is not None:
                block.see(following)

        self.optimiser.begin()
        on_threads(learn, range(len(self.blocks)))
        self.optimiser.end()
        self.seen = following
        return PairReport.of(*sums, counts)
