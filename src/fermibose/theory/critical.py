"""Where phases end: the onset of order along any parameter, and of broken replica symmetry."""

import math
from typing import Literal

from scipy.optimize import brentq

from fermibose.errors import InputError
from fermibose.theory.checks import check_interval, check_parameter, check_problem, check_tol
from fermibose.theory.curves import at_value
from fermibose.theory.problem import Problem
from fermibose.theory.solution import Solution
from fermibose.theory.solver import disordered, solve

Kind = Literal["order", "at"]


def critical_point(
    problem: Problem,
    parameter: str,
    *,
    between: tuple[float, float],
    kind: Kind = "order",
    tol: float = 1e-5,
) -> float:
    """The value of ``parameter`` in the interval ``between`` at which a phase ends, to ``tol``.

    ``order``: the solution with M = 0 starts to grow a magnetisation, 1 + χαm² E[y·∇²F y] = 0: the
    continuous transition to M > 0 (α_c, Δ_c, ρ_c). ``at``: the de Almeida-Thouless eigenvalue of
    the solution of lowest free energy is 1; refused where it is infinite (zero temperature), for
    the weight of the jumps that make it so fades gradually.
    """
    check_problem(problem)
    check_parameter(parameter)
    check_tol(tol, below=math.inf)
    ends = check_interval(parameter, between)
    if kind not in ("order", "at"):
        raise InputError(f"kind must be 'order' or 'at', got {kind!r}")
    last: list[Solution] = []

    def margin(value: float) -> float:
        there = at_value(problem, parameter, value)
        if kind == "order":
            return disordered(there).label_stiffness
        last[:] = [solve(there, last[0] if last else None)]
        if math.isinf(last[0].at_eigenvalue):
            raise InputError(
                f"the AT eigenvalue is infinite at {parameter} = {value:g}, and passes 1 nowhere: "
                "it grows with beta wherever forces jump at zero temperature; ask for a finite "
                "beta, or for another interval"
            )
        return 1 - last[0].at_eigenvalue

    low, high = (margin(value) for value in ends)
    if not low * high < 0:
        raise InputError(
            f"no transition of kind {kind!r} between {parameter} = {ends[0]:g} and "
            f"{ends[1]:g}: the margin is {low:.3g} and {high:.3g} there; widen the interval"
        )
    return float(brentq(margin, *ends, xtol=tol))
