"""The images of a run: the paper's split and its variations, loaded once per process."""

import os
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fermibose.data import Dataset, content_digest, load_dataset, rank_in_class
from fermibose.errors import InputError

TEST_PER_CLASS = 400
# Of the test images and labels that the published numbers are of.
PUBLISHED_TEST = "d5bbc4c3c04b3566ec13e5949cfd76914e22843edf8ca5f7da07aaf9ee1677ab"


@dataclass(frozen=True)
class Images:
    """Training images, the first ``per_class`` of each class, and 400 test images of each class.

    "mnist" and "fashion-mnist" (folder, FERMIBOSE_DATA, else a download) take the test images from
    the test set, as published; "mnist5k" (bundled) takes images 100 to 500 of each class.
    """

    dataset: str
    per_class: int = 100
    # How many times larger the first class is than the last; class k of K keeps
    # per_class·imbalance^{−k/(K−1)} images.
    imbalance: float = 1.0
    folder: str | None = None  # absolute from here on: a worker may stand elsewhere

    def __post_init__(self) -> None:
        folder = None if self.dataset == "mnist5k" else self.folder
        object.__setattr__(self, "folder", None if folder is None else os.path.abspath(folder))

    def load(self) -> Dataset:
        """The images; their arrays are shared by all who ask: do not change them."""
        return _load(self)


class _Shared(Dataset):
    """Images that nobody changes, so that their checksum is computed once."""

    @cached_property
    def checksum(self) -> str:
        """See :class:`Dataset`."""
        return super().checksum


@lru_cache(maxsize=4)
def _load(images: Images) -> Dataset:
    dataset, per_class, folder = images.dataset, images.per_class, images.folder
    if dataset == "mnist5k" and per_class > 100:
        raise InputError(
            f"the bundled images allow 100 training images of each class beside the test "
            f"images, not {per_class}; give a folder of MNIST's IDX files"
        )
    if images.imbalance < 1:
        raise InputError(f"imbalance must be at least 1, got {images.imbalance}")
    found = load_dataset(
        dataset, folder=folder, train_per_class=per_class, test_per_class=TEST_PER_CLASS
    )
    test = content_digest(found.x_test.astype("<f4"), found.y_test.astype("<i8"))
    if dataset == "mnist" and test != PUBLISHED_TEST:
        raise InputError(
            f"the test images in {folder or 'FERMIBOSE_DATA'} are not those of MNIST, which the "
            "published numbers are of: give the folder of MNIST's four files, all of them whole"
        )
    classes = int(found.y_train.max()) + 1
    kept = np.round(per_class * images.imbalance ** -np.linspace(0, 1, classes))
    chosen = rank_in_class(found.y_train) < kept[found.y_train]
    x, y = found.x_train[chosen], found.y_train[chosen]
    return _Shared(dataset, x, y, found.x_test, found.y_test, found.image_shape)
