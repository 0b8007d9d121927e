r"""The local rule: the force every representation of a batch feels from its pairs, in closed form.

With the squared distances :math:`D^2_{ij} = |h_i - h_j|^2/N` (mean over the N units), their forces
:math:`S_{ij} = \partial E/\partial D^2_{ij}` and P = B(B−1)/2 pairs, the gradient of
:math:`L = \frac1P \sum_{i<j} E(D^2_{ij})` is a graph Laplacian acting on the representations,

.. math:: \frac{\partial L}{\partial h} = \frac{2}{N P}\,(\mathrm{diag}(S\mathbf 1) - S)\,h .

No pair is ever materialised: everything is a B×B matrix or a GEMM. A diagonal entry of S cancels in
the Laplacian, and a sample is at distance 0 from itself, so only the *counts* must leave it out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fermibose.energy import PairEnergy


@dataclass(frozen=True)
class PairReport:
    """What the pairs of one batch look like. A mean over no pairs is NaN."""

    energy: float  # mean of E over all pairs; 0 if there is none
    boson_distance: float  # mean D² of boson pairs
    fermion_distance: float  # mean D² of fermion pairs
    n_boson: int
    n_fermion: int


def count_pairs(same: Tensor) -> tuple[int, int]:
    """Numbers of boson and fermion pairs, from the symmetric (B, B) matrix of equal labels."""
    size = len(same)
    n_boson = (int(same.sum()) - size) // 2
    return n_boson, size * (size - 1) // 2 - n_boson


def squared_distances(h: Tensor) -> Tensor:
    """D²_ij = |h_i − h_j|²/N for all pairs, shape (B, B), from one Gram matrix."""
    centred = h - h.mean(0)  # distances do not change, rounding errors shrink
    gram = centred @ centred.T
    squares = gram.diagonal()
    d2 = torch.add(squares[:, None], squares).sub_(gram, alpha=2)
    return d2.div_(h.shape[1]).clamp_(min=0)


def pair_force(h: Tensor, labels: Tensor, energy: PairEnergy) -> tuple[Tensor, PairReport]:
    """∂L/∂h, shape (B, N), of the mean pair energy of a batch, and a report on its pairs.

    h: representations (B, N). labels: (B,) integers; equal labels make boson pairs, different
    labels fermion pairs. A batch of one sample has no pair and feels no force.
    """
    same = labels[:, None] == labels
    n_boson, n_fermion = counts = count_pairs(same)
    pairs = max(n_boson + n_fermion, 1)
    d2 = squared_distances(h)
    pair_energy, force = energy.energy_and_force(d2, same, counts)

    laplacian = force.mul_(-2 / (h.shape[1] * pairs))
    laplacian.diagonal().sub_(laplacian.sum(1))

    total, bosons = float(d2.sum()) / 2, float((d2 * same).sum()) / 2
    report = PairReport(
        energy=float(pair_energy.fill_diagonal_(0).sum()) / 2 / pairs,
        boson_distance=bosons / n_boson if n_boson else float("nan"),
        fermion_distance=(total - bosons) / n_fermion if n_fermion else float("nan"),
        n_boson=n_boson,
        n_fermion=n_fermion,
    )
    return laplacian @ h, report
