"""The statistical mechanics of one Fermi-Bose unit: replica theory at any temperature.

Beside the functions that solve a problem, the parts that single instances are built from too: the
saddle-point equations as a map, and what overlaps predict.
"""

from fermibose.theory import dynamics
from fermibose.theory.archive import load, save
from fermibose.theory.broken import BrokenSolution, StableError, solve_broken
from fermibose.theory.broken_curves import BrokenCurve, critical_point_broken, trace_broken
from fermibose.theory.curves import SYMBOLS, Curve, draw_stability, missing, trace
from fermibose.theory.dynamics import times
from fermibose.theory.fixed_point import ConvergenceError, Steps
from fermibose.theory.flow import check_batch, check_start
from fermibose.theory.learning import DataTheory, Prediction
from fermibose.theory.phases import PhaseDiagram, phase_diagram
from fermibose.theory.points import Failure, Solutions, check_quantity, solve_many
from fermibose.theory.population import Population, population
from fermibose.theory.problem import Array, Problem, activation_derivatives
from fermibose.theory.real_data import from_dataset
from fermibose.theory.replica import SaddleEquations
from fermibose.theory.replica import distance as saddle_distance
from fermibose.theory.replica import update as saddle_update
from fermibose.theory.rsb import Clusters
from fermibose.theory.sketch import Sketch, sketch
from fermibose.theory.solution import (
    LABELS,
    QUANTITIES,
    Conjugates,
    Overlaps,
    Predictions,
    Solution,
    Stability,
    generalization_loss,
)
from fermibose.theory.solve import branches, disordered, solve
from fermibose.theory.susceptibility import Slope, specific_heat, susceptibility
from fermibose.theory.transitions import TransitionWarning, critical_point

__all__ = [
    "LABELS",
    "QUANTITIES",
    "SYMBOLS",
    "Array",
    "BrokenCurve",
    "BrokenSolution",
    "Clusters",
    "Conjugates",
    "ConvergenceError",
    "Curve",
    "DataTheory",
    "Failure",
    "Overlaps",
    "PhaseDiagram",
    "Population",
    "Prediction",
    "Predictions",
    "Problem",
    "SaddleEquations",
    "Sketch",
    "Slope",
    "Solution",
    "Solutions",
    "Stability",
    "StableError",
    "Steps",
    "TransitionWarning",
    "activation_derivatives",
    "branches",
    "check_batch",
    "check_quantity",
    "check_start",
    "critical_point",
    "critical_point_broken",
    "disordered",
    "draw_stability",
    "dynamics",
    "from_dataset",
    "generalization_loss",
    "load",
    "missing",
    "phase_diagram",
    "population",
    "saddle_distance",
    "saddle_update",
    "save",
    "sketch",
    "solve",
    "solve_broken",
    "solve_many",
    "specific_heat",
    "susceptibility",
    "times",
    "trace",
    "trace_broken",
]
