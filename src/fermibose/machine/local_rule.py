r"""The local rule: the force every representation of a batch feels from its pairs, in closed form.

With the squared distances :math:`D^2_{ij} = |h_i - h_j|^2/N` (mean over the N units), their forces
:math:`S_{ij} = \partial E/\partial D^2_{ij}` and P = B(B−1)/2 pairs, the gradient of
:math:`L = \frac1P \sum_{i<j} E(D^2_{ij})` is a graph Laplacian acting on the representations,

.. math:: \frac{\partial L}{\partial h} = \frac{2}{N P}\,(\mathrm{diag}(S\mathbf 1) - S)\,h .

No pair is ever materialised: everything is a block of the B×B matrix or a GEMM. The diagonal of S
cancels in the Laplacian; energies and counts leave it out, for a sample is no pair with itself.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fermibose.energy import PairEnergy
from fermibose.errors import InputError

BLOCK = 1 << 19  # entries of the B×B matrix treated at once, so that they stay in the cache


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


def pair_force(h: Tensor, labels: Tensor, energy: PairEnergy) -> tuple[Tensor, PairReport]:
    """∂L/∂h, shape (B, N), of the mean pair energy of a batch, and a report on its pairs.

    h: representations (B, N). labels: (B,) integers; equal labels make boson pairs, different
    labels fermion pairs. A batch of one sample has no pair and feels no force.
    """
    size, units = h.shape
    if labels.shape != (size,) or size == 0:
        raise InputError(f"{size} samples need one label each, got shape {tuple(labels.shape)}")
    if labels.is_floating_point() or labels.is_complex():  # NaN would equal no label, not its own
        raise InputError(f"labels must be whole numbers, got {labels.dtype}; give labels.long()")
    kinds = labels.numpy()  # NumPy's calls on small matrices cost a third of torch's
    n_boson, n_fermion = counts = count_pairs(kinds)
    pairs = max(n_boson + n_fermion, 1)
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
