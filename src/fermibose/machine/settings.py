"""What a setting may be: the checks that recipes, pairings and estimators share."""

import math
from numbers import Integral, Real
from typing import Any


def is_whole(value: Any, least: int) -> bool:
    """Whether it is an integer (no bool, no float) of at least ``least`` that fits into int64."""
    return (
        isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) < 2**63
    )


def is_amount(value: Any) -> bool:
    """Whether it is a finite number >= 0."""
    return isinstance(value, Real) and 0 <= float(value) < math.inf
