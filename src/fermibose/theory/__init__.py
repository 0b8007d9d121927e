"""The statistical mechanics of one Fermi-Bose unit: replica theory at any temperature."""

from fermibose.theory.checks import SYMBOLS
from fermibose.theory.critical import critical_point
from fermibose.theory.curves import Curve, trace
from fermibose.theory.diagram import PhaseDiagram, phase_diagram
from fermibose.theory.drawing import draw_stability, missing
from fermibose.theory.figures import figure_values
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.problem import Problem
from fermibose.theory.replica import Conjugates, Overlaps
from fermibose.theory.rsb import BrokenSolution, solve_broken
from fermibose.theory.solution import Solution
from fermibose.theory.solver import branches, disordered, solve

__all__ = [
    "SYMBOLS",
    "BrokenSolution",
    "Conjugates",
    "ConvergenceError",
    "Curve",
    "Overlaps",
    "PhaseDiagram",
    "Problem",
    "Solution",
    "branches",
    "critical_point",
    "disordered",
    "draw_stability",
    "figure_values",
    "missing",
    "phase_diagram",
    "solve",
    "solve_broken",
    "trace",
]
