"""The statistical mechanics of one Fermi-Bose unit: replica theory at any temperature."""

from fermibose.theory.critical import critical_point
from fermibose.theory.curves import Curve, trace
from fermibose.theory.diagram import PhaseDiagram, phase_diagram
from fermibose.theory.fixed_point import ConvergenceError
from fermibose.theory.fixed_point import History as Steps
from fermibose.theory.observables import generalization_loss
from fermibose.theory.problem import Array, Problem
from fermibose.theory.quantities import check_quantity
from fermibose.theory.replica import Conjugates, Overlaps
from fermibose.theory.rsb import BrokenSolution, solve_broken
from fermibose.theory.saddle import SaddlePoint
from fermibose.theory.saddle import distance as saddle_distance
from fermibose.theory.saddle import update as saddle_update
from fermibose.theory.solution import Predictions, Solution
from fermibose.theory.solver import branches, disordered, solve

__all__ = [
    "Array",
    "BrokenSolution",
    "Conjugates",
    "ConvergenceError",
    "Curve",
    "Overlaps",
    "PhaseDiagram",
    "Predictions",
    "Problem",
    "SaddlePoint",
    "Solution",
    "Steps",
    "branches",
    "check_quantity",
    "critical_point",
    "disordered",
    "generalization_loss",
    "phase_diagram",
    "saddle_distance",
    "saddle_update",
    "solve",
    "solve_broken",
    "trace",
]
