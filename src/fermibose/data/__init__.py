"""Images and labels for the machine: bundled, on disk or downloaded, always checked.

Pixels leave this room as float32 in [0, 1], one image per row; labels as int64. Every function
returns fresh arrays that the caller may change.
"""

from fermibose.data.datasets import (
    NAMES,
    Dataset,
    load_dataset,
    load_digits,
    load_mnist5k,
    paper_split,
    per_class,
    rank_in_class,
)
from fermibose.data.idx import content_digest, load_idx, map_idx, read_idx
from fermibose.data.openml import load_openml
from fermibose.data.surrogate import surrogate

__all__ = [
    "NAMES",
    "Dataset",
    "content_digest",
    "load_dataset",
    "load_digits",
    "load_idx",
    "load_mnist5k",
    "load_openml",
    "map_idx",
    "paper_split",
    "per_class",
    "rank_in_class",
    "read_idx",
    "surrogate",
]
