"""One BLAS thread per solution: the matrices are small, and cores are better spent on points.

It also makes results independent of the number of workers to the last bit.
"""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def one_thread(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Run a function with linear algebra on a single thread."""

    @wraps(function)
    def limited(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with _controller().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited


@cache
def _controller() -> Any:
    return ThreadpoolController()
