"""The statistical mechanics of one Fermi-Bose unit: replica theory at any temperature."""

from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.problem import Problem
from fermibose.theory.replica import Conjugates, Overlaps
from fermibose.theory.solution import Solution
from fermibose.theory.solver import branches, solve

__all__ = [
    "Conjugates",
    "ConvergenceError",
    "Overlaps",
    "Problem",
    "Solution",
    "branches",
    "solve",
]
