"""The paper, measured again: measurements, one store, engines; figures, verdicts, the report.

Uses the library like any other reader would: only names that its packages export.
"""

from fermibose_paper.job import Data, Job, measurement
from fermibose_paper.run import Engine, Outcome, engine_named, run
from fermibose_paper.store import Row, Store, StoreError

__all__ = [
    "Data",
    "Engine",
    "Job",
    "Outcome",
    "Row",
    "Store",
    "StoreError",
    "engine_named",
    "measurement",
    "run",
]
