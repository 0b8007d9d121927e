"""The pair energy of a batch and its gradient, one pair and one unit at a time."""

import itertools
import math

import torch


def batch(seed, size, units, classes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    h = torch.rand(size, units, generator=generator, dtype=dtype)
    return h, torch.randint(classes, (size,), generator=generator)


def hinge(x, a):
    return max(x, 0.0) if a == 0 else (x + math.sqrt(x * x + a)) / 2


def hinge_slope(x, a):
    return float(x > 0) if a == 0 else (1 + x / math.sqrt(x * x + a)) / 2


def loop_over_pairs(h, labels, pair):
    """Energy and its gradient, one pair and one unit at a time, in plain Python numbers."""
    rows, kinds = h.double().tolist(), labels.tolist()
    pairs = list(itertools.combinations(range(len(rows)), 2))
    n_boson = sum(kinds[i] == kinds[j] for i, j in pairs)
    n_fermion = len(pairs) - n_boson
    gradient = [[0.0] * len(rows[0]) for _ in rows]
    total = 0.0
    for i, j in pairs:
        difference = [a - b for a, b in zip(rows[i], rows[j], strict=True)]
        d2 = sum(d * d for d in difference) / len(difference)
        if pair.coupling == "averaged":
            boson, fermion = n_boson, n_fermion
        else:
            boson, fermion = (1, 0) if kinds[i] == kinds[j] else (0, 1)
        boson, fermion = boson * pair.boson_weight, fermion * pair.fermion_weight
        total += boson * d2 + fermion * hinge(pair.d_f - d2, pair.softness)
        slope = boson - fermion * hinge_slope(pair.d_f - d2, pair.softness)
        for k, d in enumerate(difference):
            gradient[i][k] += slope * 2 * d / len(difference) / len(pairs)
            gradient[j][k] -= slope * 2 * d / len(difference) / len(pairs)
    return total / len(pairs), torch.tensor(gradient, dtype=torch.float64)
