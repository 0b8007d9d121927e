"""The lattice that the integrals of a pair are summed on: its steps, and how large it may be."""

import math

import numpy as np

from fermibose.errors import InputError
from fermibose.theory import Array, Problem

_HARDEST = 1e-3  # softness of the hinge below which steps stop shrinking (and errors grow)
_MOST = 4_000_000  # nodes of a table: beyond, every sweep takes a second or more
_REACH, _STEP = 4.0, 0.06  # of the lattices of the default problem, by which others are judged


class LatticeError(InputError):
    """Fields so wide, or so sharp, that their integrals need more nodes than can be handled."""


def lattice_steps(problem: Problem, kind: int, s: float) -> Array:
    """Steps along r and t for bosons (kind 0) or fermions (1) with fields of width s.

    Equal steps converge exponentially: along t as fast as the Gaussian allows, along r at the
    rate of the ridge of bosons, and of the corner of the hinge for fermions; none is longer than
    what φ takes to change.
    """
    z, steep = np.linspace(-6, 6, 241), problem.steepness
    slope = steep if steep > 1 else float(np.abs(np.gradient(problem.phi(z), z)).max())
    ridge = 0.6 / math.sqrt(2 * problem.beta * slope**2 + 1 / s**2)
    if kind == 0:
        return np.array([min(ridge, 0.5 * s), min(0.5 * s, 0.35 / steep)])
    soft = math.sqrt(max(problem.softness, _HARDEST))
    corner = min(0.3 * soft, 0.57 * math.sqrt(soft / problem.beta))
    corner /= slope * max(1.0, math.sqrt(problem.d_f))
    return np.array([min(ridge, corner, 0.5 * s), min(0.45 * s, 0.3 / steep)])


def check_size(reach: Array, steps: Array) -> None:
    """Refuse a lattice of too many nodes, 2·reach/steps along r times the same along t.

    What to do about it follows from which is further from the usual: the reach or the steps.
    """
    nodes = float(np.prod(2 * reach / steps))
    if nodes <= _MOST:
        return
    if np.prod(reach / _REACH) > np.prod(_STEP / steps):
        remedy = (
            "the fields are too wide or too far out: use a smaller delta or m, a larger "
            "weight_decay, or, where means to start from were given, means of order 1"
        )
    else:
        remedy = (
            "the fields are too sharp: use a larger delta, a smaller beta or weight_decay, a less "
            "steep activation, or a larger n (the patterns of a pair are nearly parallel at few "
            "weights)"
        )
    raise LatticeError(
        f"the integrals of a pair need a lattice of {nodes:.2g} nodes, more than the {_MOST:.0e} "
        f"that can be handled, to reach {reach.max():.2g} in steps of {steps.min():.1g}; {remedy}; "
        "sampling (hmc) and descent (ground) take no integrals"
    )
