"""The statistical mechanics of one Fermi-Bose unit: replica theory at any temperature.

Beside the functions that solve a problem, the parts that single instances are built from too: the
saddle-point equations as a map, and what overlaps predict.
"""

from fermibose.theory.curves import (
    QUANTITIES,
    SYMBOLS,
    Curve,
    check_quantity,
    draw_stability,
    missing,
    trace,
)
from fermibose.theory.fixed_point import ConvergenceError, Steps
from fermibose.theory.phases import PhaseDiagram, phase_diagram
from fermibose.theory.problem import Array, Problem
from fermibose.theory.replica import SaddlePoint
from fermibose.theory.replica import distance as saddle_distance
from fermibose.theory.replica import update as saddle_update
from fermibose.theory.rsb import BrokenSolution, solve_broken
from fermibose.theory.solution import (
    Conjugates,
    Overlaps,
    Predictions,
    Solution,
    Stability,
    generalization_loss,
)
from fermibose.theory.solve import branches, disordered, solve
from fermibose.theory.transitions import TransitionWarning, critical_point

__all__ = [
    "QUANTITIES",
    "SYMBOLS",
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
    "Stability",
    "Steps",
    "TransitionWarning",
    "branches",
    "check_quantity",
    "critical_point",
    "disordered",
    "draw_stability",
    "generalization_loss",
    "missing",
    "phase_diagram",
    "saddle_distance",
    "saddle_update",
    "solve",
    "solve_broken",
    "trace",
]
