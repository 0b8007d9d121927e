"""How much is measured: ``quick`` (minutes, bundled images) or ``full`` (as published)."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fermibose.errors import FermiboseError
from fermibose_paper import published
from fermibose_paper.job import Data, Job
from fermibose_paper.measure import Images, measure_training

COUPLINGS = ("averaged", "labelled")


@runtime_checkable
class Named(Data, Protocol):
    """Data of a data set that has a name."""

    dataset: str


MARKED = (0.09, 0.2, 0.375, 0.455, 0.465, 0.56, 0.8)  # the published curves and marks of Figs. 3–5


@dataclass(frozen=True)
class Scale:
    """Which points and how many seeds; every figure plans its runs by it."""

    name: str
    dataset: str  # "mnist5k" (bundled) or "mnist", of which the published split is taken
    fine: tuple[float, ...]  # d_F of Fig. 4, averaged coupling
    coarse: tuple[float, ...]  # d_F of Fig. 5, and of everything labelled
    seeds: int
    attacked: tuple[float, ...] = ()  # d_F at which both couplings meet PGD
    folder: str | None = None  # of IDX files; else FERMIBOSE_DATA or a download
    epochs: int = 100
    hidden: int = 1000
    theory_points: int = 16  # of every curve of the theory
    # Fig. 2: method, size, parameter and its values, number of instances
    fig2_instances: tuple[tuple[str, int, str, tuple[float, ...], int], ...] = ()
    # Single instances against theory: sizes and number of instances, of AMP and of sampling
    sizes: tuple[int, ...] = (250, 500)
    sized: int = 4
    walks: tuple[int, ...] = (100,)
    walked: int = 4
    # What goes beyond the paper: d_F and number of seeds, and the settings that are varied
    beyond: tuple[float, ...] = (0.1, 0.2, 0.3, 0.375, 0.455, 0.56, 0.8)
    beyond_seeds: int = 1
    variations: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    # Data that cannot be loaded, and why: what a reproduction has to leave out
    lost: dict[str, str] = field(default_factory=dict)
    # Of the experiments beside the figures a few examples only
    sample: bool = True

    @property
    def published_split(self) -> bool:
        """Whether the test images are the published ones."""
        return self.dataset == "mnist"

    def folder_of(self, dataset: str) -> str | None:
        """Where to look for a data set; data other than the scale's own in a subfolder only."""
        if self.folder is None or dataset == self.dataset:
            return self.folder
        return self.folder if (Path(self.folder) / dataset).is_dir() else None

    def job(
        self,
        coupling: str,
        d_f: float | None,
        seed: int,
        *,
        dataset: str | None = None,
        per_class: int = 100,
        imbalance: float = 1.0,
        **changed: Any,
    ) -> Job:
        """The training of one net. ``changed``: parameters other than the paper's.

        Whichever figure asks, the same net is the same job.
        """
        dataset = dataset or self.dataset
        if per_class != 100:
            changed["per_class"] = per_class
        if imbalance != 1:
            changed["imbalance"] = imbalance
        varied = bool(changed) or dataset != self.dataset
        params: dict[str, Any] = {"coupling": coupling, "d_f": d_f, "dataset": dataset}
        params |= {"hidden": self.hidden, "epochs": self.epochs} | changed
        params["also"] = ["courses"] if varied else self._looks(coupling, d_f, seed)
        data = Images(dataset, per_class, imbalance, self.folder_of(dataset))
        return Job(measure_training, params, seed, data)

    def jobs(self, coupling: str, d_f: Iterable[float | None], **changed: Any) -> Iterator[Job]:
        """One training for every seed and d_F, all d_F with the first seed first."""
        values = tuple(d_f)
        for seed in range(self.seeds):
            for value in values:
                yield self.job(coupling, value, seed, **changed)

    def without_lost(self, jobs: Iterable[Job]) -> "Scale":
        """The same, knowing which data other than its own, of these jobs, cannot be loaded."""
        lost = {}
        for images in {job.data for job in jobs if isinstance(job.data, Named)}:
            if images.dataset != self.dataset:
                try:
                    images.load()
                except (FermiboseError, OSError) as error:
                    lost[images.dataset] = str(error)
        return replace(self, lost=lost)

    def _looks(self, coupling: str, d_f: float | None, seed: int) -> list[str]:
        """What any of the figures wants to know of a net with the paper's settings, sorted."""
        beyond = seed < self.beyond_seeds and d_f in self.beyond
        fine = coupling == "averaged" and d_f in self.fine
        wanted = {
            "components": d_f == published.PCA_D_F,
            "courses": fine or beyond or d_f == published.TRAJECTORY_D_F,
            "curves": d_f in self.coarse,
            "pgd": d_f in self.attacked,
        }
        return [name for name, asked in wanted.items() if asked or coupling == "mlp"]


def unique(jobs: Iterable[Job]) -> list[Job]:
    """The jobs, each once: panels of a figure share some."""
    return list({job.spec: job for job in jobs}.values())


def quick(folder: str | os.PathLike[str] | None = None) -> Scale:
    """Minutes on two cores: few d_F and seeds; the bundled images unless a folder is given."""
    return Scale(
        "quick",
        dataset="mnist5k" if folder is None else "mnist",
        folder=None if folder is None else os.fspath(folder),
        fine=tuple(
            sorted({k / 20 for k in (*range(1, 13), 14, 16, 20, 24)} | {0.375, 0.425, 0.455})
        ),
        coarse=(0.05, 0.1, 0.2, 0.3, 0.375, 0.465, 0.56, 1.2),
        attacked=(0.2, 0.455, 0.8),
        seeds=2,
        fig2_instances=(
            ("amp", 200, "alpha", (0.5, 1.0, 2.5), 3),
            ("amp", 200, "delta", (0.2, 0.5, 0.8), 3),
            ("bp", 50, "alpha", (0.5,), 3),
            ("tempered", 200, "alpha", (0.5,), 3),
        ),
        variations={"hidden": (100,), "per_class": (30,), "depth": (2,), "imbalance": (10.0,)},
    )


def full(folder: str | os.PathLike[str] | None = None) -> Scale:
    """As published: d_F = 0, 0.005, …, 1.2, five seeds, MNIST from a folder."""
    return Scale(
        "full",
        sample=False,
        dataset="mnist",
        folder=None if folder is None else os.fspath(folder),
        fine=tuple(k / 200 for k in range(241)),
        coarse=tuple(sorted({k / 10 for k in range(13)} | {0.05, 0.15, 0.25} | set(MARKED))),
        attacked=(0.05, 0.1, 0.2, 0.3, 0.375, 0.455, 0.56, 0.8, 1.0, 1.2),
        seeds=5,
        theory_points=30,
        fig2_instances=(
            ("amp", 200, "alpha", (0.5, 1.0, 2.5, 3.5, 5.0), 5),
            ("amp", 200, "delta", (0.2, 0.5, 0.7, 1.0, 1.5), 5),
            *(
                (method, n, parameter, values, 5)
                for method, n in (("amp", 1000), ("tempered", 200), ("bp", 200))
                for parameter, values in (("alpha", (0.5, 1.0, 2.5)), ("delta", (0.2, 0.5, 0.7)))
            ),
        ),
        sizes=(250, 500, 1000, 2000, 4000),
        sized=20,
        walks=(200, 400),
        walked=10,
        beyond=(0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.375, 0.4, 0.455, 0.5, 0.56, 0.8, 1.2),
        beyond_seeds=3,
        variations={
            "hidden": (10, 100, 500),
            "per_class": (200, 500, 1000),
            "dataset": ("fashion-mnist",),
            "imbalance": (3.0, 10.0),
            "depth": (2, 3),
            "batch_size": (20, 100, 200),
        },
    )
