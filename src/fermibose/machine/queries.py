r"""Queries and keys: the local rule where those who feel and those who are felt differ.

*Queries* h (perturbed copies, say, or the rows that one of several processes has) meet *keys* g.
With :math:`D^2_{ik} = |h_i - g_k|^2/N` and :math:`S = \partial L/\partial D^2` the graph is
bipartite,

.. math:: \frac{\partial L}{\partial h} = \frac2N\,(\mathrm{diag}(S\mathbf 1)\,h - S g), \qquad
    \frac{\partial L}{\partial g} = \frac2N\,(\mathrm{diag}(S^\top\mathbf 1)\,g - S^\top h) .
"""

from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from fermibose.energy import PairEnergy
from fermibose.machine.free_energy import FreeEnergy
from fermibose.machine.loop import ALONE, Sharing

Energy: TypeAlias = PairEnergy | FreeEnergy

# Entries of the B×B matrix treated at once: they stay in the cache, and the time of a step per
# operation does not grow with the batch (scaling() in benchmarks/machine.py). At B = 4096 a step
# takes as long with 2¹⁶, a fifth longer with 2²² (blocks() there).
BLOCK = 1 << 19


def mean_energy(
    energy: Energy,
    d2: Tensor,
    same: Tensor,
    pairs: Tensor,
    *,
    times: int = 1,
    counts: tuple[int, int] | None = None,
    ranks: Sharing = ALONE,
) -> tuple[Tensor, Tensor]:
    """L and ∂L/∂D² of the squared distances d2 (queries, keys); of L the part of this rank.

    same: True for boson pairs. pairs: False where query and key make no pair. times: how often
    each pair stands there; twice, if the queries are the keys. counts: boson and fermion pairs,
    where ranks have the other queries.
    """
    if isinstance(energy, FreeEnergy):
        value, forces = energy.between(d2, same, pairs, total=ranks.total)
        return value / ranks.count, forces  # every rank has all of it
    count: Any
    kinds: tuple[Any, Any]
    if counts is None:
        count, bosons = (p.sum().to(d2.dtype) for p in (pairs, same & pairs))
        count = count.clamp(min=1)
        kinds = bosons / times, (count - bosons) / times
    else:
        count, kinds = times * max(sum(counts), 1), counts
    energies, forces = energy.energy_and_force(d2, same, kinds)
    return energies.masked_fill(~pairs, 0).sum() / count, forces.masked_fill(~pairs, 0) / count


class QueryForces(NamedTuple):
    """What queries and keys do to each other; of many ranks, what the queries of this one do."""

    on_queries: Tensor  # ∂L/∂h, (queries, N)
    on_keys: Tensor | None  # ∂L/∂g, (keys, N), if they are others and feel anything
    sums: Tensor  # L, and D² summed over boson and over fermion pairs


def query_forces(
    h: Tensor,
    g: Tensor | None,
    same: Tensor,
    pairs: Tensor,
    energy: Energy,
    *,
    fixed: bool = False,
    times: int = 1,
    **of: Any,
) -> QueryForces:
    """The forces on queries h (queries, N) and keys g (keys, N). The rest: :func:`mean_energy`.

    g: None if the queries are the keys; they feel both forces then, by S + Sᵀ. fixed: the keys
    feel nothing.
    """
    keys = h if g is None else g
    centre = keys.mean(0)  # what all have in common would cost digits in the Gram matrix
    h, keys = h - centre, keys - centre
    d2 = torch.addmm(keys.square().sum(1) + h.square().sum(1, keepdim=True), h, keys.T, alpha=-2)
    d2.mul_(1 / h.shape[1]).clamp_(min=0)
    value, s = mean_energy(energy, d2, same, pairs, times=times, **of)
    on_queries = _pull(s + s.T if g is None else s, h, keys)
    on_keys = None if fixed or g is None else _pull(s.T, keys, h)
    apart = [(d2 * (kind & pairs)).sum() / times for kind in (same, ~same)]
    return QueryForces(on_queries, on_keys, torch.stack([value, *apart]))


def _pull(s: Tensor, h: Tensor, g: Tensor) -> Tensor:
    """(2/N)(diag(S1) h − S g)."""
    return torch.addmm(s.sum(1, keepdim=True) * h, s, g, alpha=-1).mul_(2 / h.shape[1])


def own_pairs(
    labels: Tensor, ranks: Sharing = ALONE, *, own: bool = False
) -> tuple[Tensor, Tensor]:
    """Of each own row (those added too) and each key: same class, and whether they are a pair.

    own: a row and the key of the same number are one. Rows that were added have no pair.
    """
    here = ranks.share(len(labels))
    same = ranks.part(labels)[:, None] == labels
    pairs = torch.zeros_like(same)
    pairs[: here.stop - here.start] = True
    if not own and here.start < len(labels):
        pairs.diagonal(here.start).fill_(False)
    return same, pairs


def row_forces(
    keys: Tensor, here: slice, labels: Tensor, energy: PairEnergy, counts: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """∂L/∂h of the rows ``here`` of all representations, and their part of what is reported.

    As :func:`pair_force`, on any device, and of some rows.
    """
    units, pairs = keys.shape[1], max(sum(counts), 1)
    keys = keys - keys.mean(0)
    squares = keys.square().sum(1)
    force, sums = torch.empty_like(keys[here]), keys.new_zeros(3)
    each = max(BLOCK // len(keys), 1)
    for start in range(here.start, here.stop, each):
        rows = slice(start, min(start + each, here.stop))
        block, part = keys[rows], force[start - here.start : rows.stop - here.start]
        d2 = torch.addmm(squares + squares[rows, None], block, keys.T, alpha=-2)
        d2.mul_(1 / units).clamp_(min=0).diagonal(start).fill_(0)
        same = labels[rows, None] == labels
        energies, s = energy.energy_and_force(d2, same, counts)
        for matrix in (energies, s):  # a sample is no pair with itself
            matrix.diagonal(start).fill_(0)
        torch.addmm(s.sum(1, keepdim=True) * block, s, keys, alpha=-1, out=part)
        bosons = (d2 * same).sum()
        sums += torch.stack([energies.sum() / pairs, bosons, d2.sum() - bosons]) / 2
    return force.mul_(2 / (units * pairs)), sums


def batch_forces(
    copies: Tensor,
    labels: Tensor,
    energy: Energy,
    ranks: Sharing,
    counts: tuple[int, int],
    *,
    perturbed: bool,
    extra: bool,
    own: bool,
) -> tuple[Tensor, Tensor]:
    """∂L/∂h of this rank's representations (copies, rows, N), and its part of what is reported."""
    size, here = len(labels), ranks.share(len(labels))
    rows = here.stop - here.start  # without those added
    keys = ranks.gather(copies[-1], size)
    force = torch.zeros_like(copies)
    if not perturbed and isinstance(energy, PairEnergy):
        force[0, :rows], sums = row_forces(keys, here, labels, energy, counts)
        return force, sums
    queries = copies[0]
    same, pairs = own_pairs(labels, ranks, own=own and perturbed)
    if perturbed and extra:
        queries, same = copies.flatten(0, 1), same.repeat(2, 1)
        pairs = torch.cat([pairs, own_pairs(labels, ranks)[1]])
    times = 1 if perturbed else 2
    others = keys if perturbed or ranks.count > 1 else None
    found = query_forces(
        queries, others, same, pairs, energy, times=times, counts=counts, ranks=ranks
    )
    force.view(-1, force.shape[2])[: len(queries)] += found.on_queries
    if found.on_keys is not None:
        force[-1, :rows] += ranks.total(found.on_keys)[0][here]
    return force, found.sums
