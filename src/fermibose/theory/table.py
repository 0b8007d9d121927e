"""The pair energy H and its weight e^{−βH} on the nodes of the pair plane.

Along a curve the energy of a pair rarely changes, only what surrounds it: the last tables are kept.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fermibose.theory.grid import Axis, pair_values
from fermibose.theory.problem import Array, Problem

LIFT = 320.0  # added to the exponents −βH: most of the range of floating point is above 1

_ROWS = 32  # evaluated at a time: small arrays stay in the cache
_BLOCK = 64  # sizes of kept tables are multiples of this
_KEPT = 512  # nodes along an axis beyond which a table is too large to be kept


@dataclass(frozen=True)
class Table:
    """What a channel at inverse temperature β needs of the energy H of boson and fermion pairs."""

    weight: Array  # e^{LIFT − β(H − lowest)}, shape (2, r, t)
    weighted: Array  # H × weight
    lowest: float  # least H
    span: float  # greatest H − lowest

    @classmethod
    def of(cls, H: Array, beta: float) -> "Table":
        """From energies."""
        lowest, highest = float(H.min()), float(H.max())
        weight = H - lowest
        weight *= -beta
        weight += LIFT
        np.exp(weight, out=weight)
        return cls(weight, H * weight, lowest, highest - lowest)


def pair_table(problem: Problem, r: Axis, t: Axis) -> Array:
    """H of boson and fermion pairs on the nodes of the rotated plane, shape (2, r, t)."""
    phi1, phi2 = pair_values(problem.phi, r, t)
    H = np.empty((2, *phi1.shape))
    for i in range(0, r.nodes.size, _ROWS):
        rows = slice(i, i + _ROWS)
        H[:, rows] = problem.energies_apart((phi1[rows] - phi2[rows]) ** 2)
    return H


def kept_table(problem: Problem, r: Axis, t: Axis) -> Table:
    """The table of a problem on axes of equal steps, from one already made if there is one."""
    assert r.step is not None
    size = -(-r.nodes.size // _BLOCK) * _BLOCK
    if size > _KEPT:
        return Table.of(pair_table(problem, r, t), problem.beta)
    # All that H does not depend on.
    pair = replace(problem, alpha=1.0, delta=1.0, weight_decay=1.0, m=1.0, rho=0.5)
    whole = _whole_table(pair, r.step, size, t.folded)
    first = 0 if t.folded else size - 1 + round(t.nodes[0] / r.step)
    part = np.s_[:, : r.nodes.size, first : first + t.nodes.size]
    return replace(whole, weight=whole.weight[part], weighted=whole.weighted[part])


def forget_tables() -> None:
    """Let the kept tables go."""
    _whole_table.cache_clear()


@lru_cache(maxsize=6)
def _whole_table(pair: Problem, step: float, size: int, folded: bool) -> Table:
    reach = (size - 1.25) * step  # rounds up to size − 1 steps
    r, t = Axis.uniform(step, reach), Axis.uniform(step, reach, folded=folded)
    return Table.of(pair_table(pair, r, t), pair.beta)
