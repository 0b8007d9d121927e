"""The images of a run: the paper's split and its variations, loaded once per process."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from fermibose.data import Dataset, content_digest, load_dataset, rank_in_class
from fermibose.errors import InputError

TEST_PER_CLASS = 400
# Of the test images and labels that the published numbers are of.
PUBLISHED_TEST = "d5bbc4c3c04b3566ec13e5949cfd76914e22843edf8ca5f7da07aaf9ee1677ab"


@lru_cache(maxsize=4)
def images(
    dataset: str, *, per_class: int = 100, imbalance: float = 1.0, folder: str | None = None
) -> Dataset:
    """Training images, the first ``per_class`` of each class, and 400 test images of each class.

    dataset: "mnist" and "fashion-mnist" (folder, FERMIBOSE_DATA, else a download) take the test
    images from the test set, as published; "mnist5k" (bundled) takes images 100 to 500 of each
    class. imbalance: how many times larger the first class is than the last; class k of K keeps
    per_class·imbalance^{−k/(K−1)} images. The arrays are shared: do not change them.
    """
    if dataset == "mnist5k":
        if per_class > 100:
            raise InputError(
                f"the bundled images allow 100 training images of each class beside the test "
                f"images, not {per_class}; give a folder of MNIST's IDX files"
            )
        folder = None
    found = load_dataset(
        dataset, folder=folder, train_per_class=per_class, test_per_class=TEST_PER_CLASS
    )
    test = content_digest(found.x_test.astype("<f4"), found.y_test.astype("<i8"))
    if dataset == "mnist" and test != PUBLISHED_TEST:
        raise InputError(
            f"the test images in {folder or 'FERMIBOSE_DATA'} are not those of MNIST, which the "
            "published numbers are of: give the folder of MNIST's four files, all of them whole"
        )
    if imbalance < 1:
        raise InputError(f"imbalance must be at least 1, got {imbalance}")
    kept = np.round(per_class * imbalance ** -np.linspace(0, 1, int(found.y_train.max()) + 1))
    chosen = rank_in_class(found.y_train) < kept[found.y_train]
    return replace(found, x_train=found.x_train[chosen], y_train=found.y_train[chosen])
