"""Solutions on a grid of two parameters: lines by continuation, searched and compared across.

Two lines along one parameter are continued from point to point, and from them all lines along the
other one. At every tenth point all states are searched for; from line to line these points move on
by three, so that every point has one within two steps along each parameter. In the end every point
has been asked about every stable state of the points beside it.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

from fermibose.compute import Interrupted, parallel_map
from fermibose.theory.continuation import asked, changed, continue_along
from fermibose.theory.points import Attempt, attempt
from fermibose.theory.problem import Problem
from fermibose.theory.solution import Solution

_BEGUN = 2  # lines across, from which the others can be extrapolated
_LOOK = 10  # points from one search to the next along a line; with ``_SHIFT``, as said above
_SHIFT = 3  # by which the points searched move on from line to line
_SMALL = 5  # points along a side below which all are solved afresh: there is little to continue
_PAIR = ("d_f", "beta", "softness")  # parameters of H: along the others its tables can be kept

T = TypeVar("T")
Grid = list[list[Attempt]]  # rows of columns


def solve_grid(
    problems: Sequence[Sequence[Problem]],
    x: str,
    y: str,
    *,
    tol: float | None,
    workers: int | None,
    show: bool | None,
) -> Grid:
    """What becomes of problems in rows along x and columns along y.

    Ctrl-C raises Interrupted with the part of the grid whose lines are finished.
    """
    small = min(len(problems), len(problems[0])) < _SMALL
    turned = x in _PAIR and y not in _PAIR and not small
    lines = _turned(problems) if turned else problems
    along, across = (y, x) if turned else (x, y)

    def looks(line: int, length: int) -> range:
        return range(-_SHIFT * line % _LOOK, length, _LOOK)

    def begin(index: int) -> list[Attempt]:
        line = [line[index] for line in lines]
        return continue_along(line, across, tol=tol, looks=looks(index, len(line)))

    def go_on(index: int) -> list[Attempt]:
        line, solved = lines[index], [one[index] for one in begun]
        if small:
            return [attempt(problem, tol=tol) for problem in line]
        return continue_along(line, along, tol=tol, looks=looks(index, len(line)), solved=solved)

    options: dict[str, Any] = {"workers": workers, "show": show}
    try:
        begun = [] if small else parallel_map(begin, range(_BEGUN), text="first lines", **options)
    except Interrupted as stop:
        raise Interrupted([]) from stop
    try:
        grid = parallel_map(go_on, range(len(lines)), text="phase diagram", **options)
    except Interrupted as stop:
        raise Interrupted(_turned(stop.done) if turned else stop.done) from stop
    _compare(grid, tol=tol)
    return _turned(grid) if turned else grid


def _turned(rows: Sequence[Sequence[T]]) -> list[list[T]]:
    """Rows as columns."""
    return [list(column) for column in zip(*rows, strict=True)]


def _compare(grid: Grid, *, tol: float | None) -> None:
    """Ask every point about the stable states beside it that are far from all it knows."""
    queue = deque((j, i) for j, row in enumerate(grid) for i in range(len(row)))
    while queue:
        j, i = queue.popleft()
        point = grid[j][i]
        if not isinstance(point, Solution):
            continue
        beside = [
            (b, a)
            for b, a in ((j - 1, i), (j + 1, i), (j, i - 1), (j, i + 1))
            if 0 <= b < len(grid) and 0 <= a < len(grid[b])
        ]
        others = [other for b, a in beside if isinstance(other := grid[b][a], Solution)]
        grid[j][i] = again = asked(point, others, tol=tol)
        if changed(point, again):
            queue += beside
