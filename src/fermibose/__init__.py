"""fermibose: the Fermi-Bose machine, its statistical mechanics and its robustness.

Names are loaded on first use, so that ``import fermibose`` and ``fbm --help`` are quick.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fermibose.energy import PairEnergy
    from fermibose.estimator import FermiBoseClassifier, FermiBoseTransformer
    from fermibose.machine import FermiBoseNet, PairLoss

__version__ = metadata.version("fermibose")

_HOME = {
    "PairEnergy": "fermibose.energy",
    "FermiBoseClassifier": "fermibose.estimator",
    "FermiBoseTransformer": "fermibose.estimator",
    "FermiBoseNet": "fermibose.machine",
    "PairLoss": "fermibose.machine",
}
_ROOMS = {"attacks", "cavity", "data", "machine", "theory"}

__all__ = [
    "FermiBoseClassifier",
    "FermiBoseNet",
    "FermiBoseTransformer",
    "PairEnergy",
    "PairLoss",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _ROOMS:
        return import_module(f"fermibose.{name}")
    raise AttributeError(f"module 'fermibose' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
