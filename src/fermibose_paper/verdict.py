"""Verdicts: a claim, what was measured, what was published, and whether the two agree."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, TypedDict, Unpack

DOUBT = 2  # standard errors by which a measured value must lie outside for a claim to have failed
Sense = Literal["near", "at most", "at least"]


class Remarks(TypedDict, total=False):
    """What a verdict may have besides; see :class:`Verdict`."""

    error: float | None
    unit: str
    note: str
    absent: bool
    unlike: bool
    unpublished: bool
    counted: bool


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One claim held against a measurement.

    Made by :meth:`near`, which asks for |measured − expected| ≤ tolerance, :meth:`at_most`, for
    measured ≤ bound + tolerance, or :meth:`at_least`, for measured ≥ bound − tolerance.
    """

    figure: str
    claim: str
    measured: float | None  # None if it could not be measured; the note says why
    expected: float  # the published value, or the bound
    tolerance: float
    sense: Sense
    error: float | None = None  # standard error of the measured value, where there are several runs
    unit: str = ""
    note: str = ""
    absent: bool = False  # it was looked for and is not there, which no tolerance covers
    unlike: bool = False  # of other images than the published: shown, and not judged
    unpublished: bool = False  # a claim that the paper does not make: it holds or not
    counted: bool = False  # the tolerance is so many standard errors already

    @classmethod
    def near(
        cls,
        figure: str,
        claim: str,
        measured: float | None,
        *,
        expected: float,
        tolerance: float = 0.0,
        **remarks: Unpack[Remarks],
    ) -> Self:
        """Whether the measured value is the expected one."""
        return cls(
            figure=figure, claim=claim, measured=measured, expected=expected, tolerance=tolerance,
            sense="near", **remarks,
        )  # fmt: skip

    @classmethod
    def at_most(
        cls,
        figure: str,
        claim: str,
        measured: float | None,
        *,
        bound: float,
        tolerance: float = 0.0,
        **remarks: Unpack[Remarks],
    ) -> Self:
        """Whether the measured value does not exceed the bound."""
        return cls(
            figure=figure, claim=claim, measured=measured, expected=bound, tolerance=tolerance,
            sense="at most", **remarks,
        )  # fmt: skip

    @classmethod
    def at_least(
        cls,
        figure: str,
        claim: str,
        measured: float | None,
        *,
        bound: float,
        tolerance: float = 0.0,
        **remarks: Unpack[Remarks],
    ) -> Self:
        """Whether the measured value reaches the bound."""
        return cls(
            figure=figure, claim=claim, measured=measured, expected=bound, tolerance=tolerance,
            sense="at least", **remarks,
        )  # fmt: skip

    @property
    def reproduced(self) -> bool | None:
        """Whether the claim holds; None if that cannot be said."""
        if self.absent:
            return False
        if self.excess is None or self.unlike or self.inconclusive:
            return None
        return bool(self.excess <= _ROUNDING)

    @property
    def inconclusive(self) -> bool:
        """Whether it lies outside by less than ``DOUBT`` standard errors: more runs would tell."""
        if self.excess is None or self.unlike or self.counted or not self.error:
            return False
        return bool(_ROUNDING < self.excess < DOUBT * self.error)

    @property
    def excess(self) -> float | None:
        """How far the measured value lies outside of what the claim allows; negative inside."""
        if self.measured is None or not math.isfinite(self.measured):
            return None
        off = self.measured - self.expected
        distance = {"near": abs(off), "at most": off, "at least": -off}[self.sense]
        return distance - self.tolerance

    @property
    def word(self) -> str:
        """The verdict in words, with how far outside of the tolerance it is if it is."""
        failure = "does NOT hold" if self.unpublished else "NOT reproduced"
        if self.absent:
            return f"{failure}, there is no such point"
        if self.excess is None:
            return "not measured"
        if self.unlike:
            return "not comparable, other images"
        if self.inconclusive:
            assert self.error is not None
            assert self.excess is not None
            return f"inconclusive, outside by {self.excess / self.error:.1f} standard errors"
        success = "holds" if self.unpublished else "reproduced"
        return success if self.reproduced else f"{failure}, by {self.excess:.2g}"

    def measured_text(self) -> str:
        """The measured value with its standard error."""
        if self.excess is None:
            return "—"
        error = "" if self.error is None else f" ± {self.error:.2g}"
        return f"{self.measured:.4g}{error}{self._unit}"

    def expected_text(self) -> str:
        """What was asked for."""
        if self.sense == "near":
            return f"{self.expected:.4g} ± {self.tolerance:.2g}{self._unit}"
        sign, bound = ("≤", 1) if self.sense == "at most" else ("≥", -1)
        return f"{sign} {self.expected + bound * self.tolerance:.4g}{self._unit}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "figure": self.figure,
            "claim": self.claim,
            "measured": None if self.excess is None else self.measured,
            "standard_error": self.error,
            "expected": self.expected,
            "tolerance": self.tolerance,
            "sense": self.sense,
            "unit": self.unit,
            "reproduced": self.reproduced,
            "verdict": self.word,
            "note": self.note,
        }

    @property
    def _unit(self) -> str:
        return f" {self.unit}" if self.unit else ""


_ROUNDING = 1e-12


class Total(NamedTuple):
    """How many verdicts ended how."""

    hold: int
    fail: int
    inconclusive: int
    not_judged: int

    def __str__(self) -> str:
        claims = f"{sum(self)} claim{'s' * (sum(self) != 1)}"
        return (
            f"{claims}: {self.hold} hold, {self.fail} do not, {self.inconclusive} are inconclusive "
            f"(outside of what is allowed by less than {DOUBT} standard errors), "
            f"{self.not_judged} are not judged (not measured, or of other images)"
        )


def total(verdicts: Iterable[Verdict]) -> Total:
    """Count verdicts."""
    verdicts = list(verdicts)
    words = [v.reproduced for v in verdicts]
    unclear = sum(v.inconclusive for v in verdicts)
    return Total(words.count(True), words.count(False), unclear, words.count(None) - unclear)


def number(value: float) -> float | None:
    """A float for a verdict; None where a statistic of too few runs is NaN."""
    return float(value) if math.isfinite(value) else None
