"""The statistical mechanics of one Fermi-Bose unit: replica theory at any temperature."""

from fermibose.theory.critical import critical_point
from fermibose.theory.curves import Curve, trace
from fermibose.theory.diagram import PhaseDiagram, phase_diagram
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.problem import Problem
from fermibose.theory.quantities import check_quantity
from fermibose.theory.replica import Conjugates, Overlaps
from fermibose.theory.rsb import BrokenSolution, solve_broken
from fermibose.theory.solution import Solution
from fermibose.theory.solver import branches, disordered, solve

__all__ = [
    "BrokenSolution",
    "Conjugates",
    "ConvergenceError",
    "Curve",
    "Overlaps",
    "PhaseDiagram",
    "Problem",
    "Solution",
    "branches",
    "check_quantity",
    "critical_point",
    "disordered",
    "phase_diagram",
    "solve",
    "solve_broken",
    "trace",
]
