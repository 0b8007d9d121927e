"""All pairs at zero temperature: every sample sits at the proximal point of its potential.

As :mod:`fermibose.theory.exhaustive` has it for β → ∞; :mod:`fermibose.theory.crowd` finds the
potentials that the samples make for each other.
"""

import math
from dataclasses import replace

from fermibose.theory.crowd import Crowd, Group, gather
from fermibose.theory.disjoint import Averages
from fermibose.theory.exhaustive import is_symmetric, kinds, label_slope
from fermibose.theory.problem import Problem
from fermibose.theory.solution import Overlaps


class Frozen:
    """What the saddle-point equations need of all pairs at zero temperature."""

    resolves = full = True

    def __init__(
        self, problem: Problem, state: Overlaps, *, coarseness: float = 1.0, fineness: float = 1.0
    ) -> None:
        self.problem = problem
        self._coarseness = coarseness / fineness
        self._last: tuple[Overlaps, Crowd] | None = None
        self._known: dict[tuple[bool, bool], Crowd] = {}

    def covers(self, state: Overlaps) -> bool:
        """True: nodes are laid anew where they have to be."""
        return True

    def averages(self, state: Overlaps) -> Averages:
        """All that the equations need; each average over a pair is twice that over a sample."""
        now = self.potentials(state)
        each = zip(kinds(self.problem), now.averages, strict=True)
        force = sum(kind.share * kind.y * average.force for kind, average in each)
        slope = 2 * now.mean("slope")
        return Averages(
            free=lambda: 2 * now.functional,
            force=0.0 if is_symmetric(self.problem, state) else 2 * force,
            force2=2 * now.mean("force2"),
            slope=slope,
            stiffness=slope / now.groups[0].width,
        )

    def stiffness(self, state: Overlaps) -> float:
        """2 d E[yF']/d(mM), the response of the potentials included."""
        return label_slope(self, state)

    def curvature(self, state: Overlaps, *, field: Overlaps | None = None) -> float:
        """2 E F''² away from jumps, at the potentials of one state and the field of another."""
        now = self.potentials(state)
        if field is None:
            return 2 * now.mean("curvature2")
        groups = self._groups(replace(field, chi=state.chi))
        each = zip(groups, now.seen_by(groups), strict=True)
        return 2 * sum(group.share * average.curvature2 for group, average in each)

    def thin_curvature(self, state: Overlaps) -> float:
        """The same on longer panels."""
        coarser = Frozen(self.problem, state, coarseness=1.5 * self._coarseness)
        return coarser.curvature(state)

    def growth(self, state: Overlaps) -> float:
        """lim 2 E F''²/β for β → ∞, from the jumps of the force."""
        return 2 * self.potentials(state).mean("growth")

    def lost(self, state: Overlaps) -> float:
        """0: there is no Z to lose."""
        return 0.0

    def energy(self, state: Overlaps) -> float:
        """Mean H of a training pair, ⟨ρHρ⟩."""
        return self.potentials(state).pair_energy

    def potentials(self, state: Overlaps) -> Crowd:
        """The samples of a state; kept for the last one."""
        if self._last is None or self._last[0] != state:
            key = symmetric, _ = is_symmetric(self.problem, state), state.M < 0
            found = gather(
                self.problem,
                self._groups(state),
                start=self._known.get(key),
                symmetric=symmetric,
                coarseness=self._coarseness,
            )
            self._known[key] = found
            self._last = (state, found)
        return self._last[1]

    def _groups(self, state: Overlaps) -> list[Group]:
        problem = self.problem
        width, c = problem.delta * math.sqrt(state.Q), problem.delta**2 * state.chi
        mean = problem.m * state.M
        return [Group(k.share, k.label, k.y * mean, width, c) for k in kinds(problem)]
