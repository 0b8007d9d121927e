"""Results as people meet them: one line when printed, a table when asked for."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame


class Summarised(ABC):
    """A result that prints as one line, its ``summary``; what it holds is in its attributes.

    A dataclass of this kind is made with ``repr=False``.
    """

    @property
    @abstractmethod
    def summary(self) -> str:
        """What came out, in one line."""

    def __str__(self) -> str:
        return self.summary

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary}>"


def table(columns: Mapping[str, Any]) -> "DataFrame":
    """Columns by name as a pandas DataFrame."""
    import pandas

    return pandas.DataFrame(dict(columns))
