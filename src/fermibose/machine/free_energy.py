r"""The free energy of pairs: soft nearest neighbours instead of a hinge at a fixed distance."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from fermibose import checks

Total: TypeAlias = Callable[..., tuple[Tensor, ...]]  # sums of some tensors
COLLAPSED = 1e-30  # mean D² of representations that are all one point, where no force is left


@dataclass(frozen=True)
class FreeEnergy:
    r"""How surely the nearest neighbour of a query, at some temperature, is of its own class.

    .. math:: L = \Big\langle -\ln \frac{Z_B}{Z_B + Z_F} \Big\rangle, \quad
        Z_B = b \sum_{k\in\text{bosons}} e^{-r D^2_{ik}/\langle D^2\rangle}, \quad
        Z_F = f \sum_{k\in\text{fermions}} e^{-r D^2_{ik}/\langle D^2\rangle} ,

    the free energy of a query's boson pairs minus that of all its pairs, averaged over the queries
    that have a boson pair. The temperature ⟨D²⟩/r is relative to the mean over all pairs, so no
    scale of the representations is preferred: nothing collapses and nothing grows. The weights b
    and f are degeneracies, how often a pair of each kind counts; only their ratio matters.
    """

    sharpness: float = 2.0  # r, the inverse temperature in units of 1/⟨D²⟩
    boson_weight: float = 1.0  # b
    fermion_weight: float = 1.0  # f

    def __post_init__(self) -> None:
        for name in ("sharpness", "boson_weight", "fermion_weight"):
            object.__setattr__(self, name, checks.number(name, getattr(self, name), above=0))

    def between(
        self, d2: Tensor, same: Tensor, pairs: Tensor, *, total: Total = lambda *parts: parts
    ) -> tuple[Tensor, Tensor]:
        """L and S = ∂L/∂D² of the squared distances d2 (queries, keys).

        same: True for boson pairs. pairs: False where query and key make no pair. total: sums over
        the ranks that hold the other queries, if these are not all.
        """
        counted = (same & pairs).any(1, keepdim=True)
        apart, count, queries = total((d2 * pairs).sum(), pairs.sum(), counted.sum())
        count, queries = count.clamp(min=1), queries.clamp(min=1)
        mean = (apart / count).clamp(min=COLLAPSED)
        degeneracy = d2.new_tensor([math.log(self.fermion_weight), math.log(self.boson_weight)])
        exponents = degeneracy[same.long()] - d2 * (self.sharpness / mean)
        exponents = exponents.masked_fill(~pairs, -torch.inf)
        of_all = exponents.logsumexp(1, keepdim=True).masked_fill(~counted, 0)
        bosons = exponents.masked_fill(~same, -torch.inf)
        of_bosons = bosons.logsumexp(1, keepdim=True).masked_fill(~counted, 0)
        unlike = (of_all - of_bosons).sum()
        # ∂L/∂exponent: by how much a key is chosen more often than among bosons alone
        excess = (exponents - of_all).exp() - (bosons - of_bosons).exp()
        excess = excess.masked_fill(~counted, 0) / queries
        unlike, moved = total(unlike, (excess * d2).sum())
        free, through_mean = unlike / queries, moved / (mean * count)
        return free, (through_mean * pairs - excess) * (self.sharpness / mean)
