"""The contenders with a thousand labels: ours, and what one would otherwise use.

All learn the first 100 images of each class. Settings were chosen on the *next* 100 of each class,
by clean accuracy plus accuracy under PGD (ℓ∞ 0.1), never on test images; ``tried`` says how many
were compared. Baselines get the augmentation that ours has, and where ours has learnt a threshold,
they stand behind the same one.
"""

import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fermibose.attacks import Adversary, ThreatModel
from fermibose.data import Dataset
from fermibose.energy import PairEnergy
from fermibose.machine import (
    Affine,
    Augmented,
    Conv,
    Elastic,
    Flip,
    FreeEnergy,
    Hidden,
    KernelRidge,
    LocalAdversary,
    LocalPointwise,
    Pairing,
    Pointwise,
    Recipe,
    SelfSupervised,
    preset,
    train,
    train_kernel_ridge,
    train_mlp,
    train_rbf_svm,
)

Kind = Literal["local", "backpropagation", "kernel ridge", "RBF-SVM"]
Track = Literal["raw", "threshold", "fashion"]
SHAPE = (28, 28)


@dataclass(frozen=True)
class Contender:
    """A method with its settings."""

    track: Track  # what it may be compared with
    kind: Kind
    tried: int  # settings compared on validation images, this one among them
    recipe: Recipe = field(default_factory=Recipe)  # of nets; of the others, its augmentation
    options: dict[str, Any] = field(default_factory=dict)  # what else the kind takes

    @property
    def dataset(self) -> str:
        """The images it is for."""
        return "fashion-mnist" if self.track == "fashion" else "mnist"

    @property
    def settings(self) -> dict[str, Any]:
        """What tells it from others, as JSON keeps it: of the recipe what is not usual."""
        usual = Recipe().as_dict()
        recipe = {n: v for n, v in self.recipe.as_dict().items() if v != usual[n]}
        told = {"kind": self.kind, "recipe": recipe} | self.options
        return dict(json.loads(json.dumps(told)))  # tuples are lists there

    def fit(self, data: Dataset, seed: int) -> nn.Module:
        """The method, trained on the training images."""
        x, y = torch.as_tensor(data.x_train), torch.as_tensor(data.y_train)
        recipe = replace(self.recipe, seed=seed)
        options = dict(self.options)
        if self.kind == "local":
            return train(x, y, recipe, show=False).net
        if self.kind == "backpropagation":
            if "adversary" in options:
                threat = ThreatModel("linf", options.pop("adversary"))
                options["perturb"] = Adversary(threat, steps=options.pop("steps", 1))
            return train_mlp(x, y, recipe, show=False, **options).net
        fitted = train_kernel_ridge if self.kind == "kernel ridge" else train_rbf_svm
        x, y = _with_copies(x, y, options.pop("copies"), recipe.pairing, seed)
        if "threshold" not in options:
            return fitted(x, y, **options)
        front = _threshold(*options.pop("threshold"))
        return nn.Sequential(front, fitted(front(x), y, **options)).eval()


def _with_copies(
    x: Tensor, y: Tensor, copies: int, pairing: Pairing, seed: int
) -> tuple[Tensor, Tensor]:
    """The images and so many transformed copies of each."""
    assert isinstance(pairing, Augmented)
    generator = torch.Generator().manual_seed(seed)
    every = [x, *(pairing.views(x, y, generator)[0] for _ in range(copies))]
    return torch.cat(every), y.repeat(copies + 1)


def _threshold(steepness: float, threshold: float) -> LocalPointwise:
    front = LocalPointwise(steepness=(steepness,) * 2, thresholds=(threshold,) * 2)
    front.initialise(torch.Generator())
    return front


def _against(epsilon: float, ramp: float) -> LocalAdversary:
    return LocalAdversary(ThreatModel("linf", epsilon), ramp=ramp, own=ramp > 0)


AUGMENTED: dict[Track, Augmented] = {
    "raw": Augmented((Affine(SHAPE),)),
    "threshold": Augmented((Affine(SHAPE), Elastic(SHAPE))),
    "fashion": Augmented((Affine(SHAPE, 1.5, 3.0, 0.05, 0.02), Flip(SHAPE))),
}
COPIES = 3  # of each image, for kernels
LEARNT = {"threshold": (32.0, 0.45), "fashion": (33.0, 0.26)}  # steepness and threshold of ours
LAYERS = {"CNN": (Conv(16), Conv(32), 128), "MLP": (1000,), "random convolutions": (Conv(32),)}


def _fixed(track: Track) -> tuple[Hidden, ...]:
    """The threshold that ours has learnt, before the layers of a baseline of its track."""
    if track == "raw":
        return ()
    steepness, threshold = LEARNT[track]
    return (Pointwise(steepness=(steepness,) * 2, thresholds=(threshold,) * 2),)


def _network(
    track: Track, tried: int, layers: str, epsilon: float = 0.0, steps: int = 1, epochs: int = 60
) -> Contender:
    """A net by backpropagation; with ε, one that learns adversarial examples."""
    recipe = Recipe(
        hidden=(*_fixed(track), *LAYERS[layers]),
        image_shape=SHAPE,
        pairing=AUGMENTED[track],
        activation="relu",
        bias=True,
        epochs=epochs,
        schedule="cosine",
    )
    options = {"adversary": epsilon, "steps": steps} if epsilon else {}
    return Contender(track, "backpropagation", tried, recipe, options)


def _random(track: Track, tried: int, width: float, penalty: float) -> Contender:
    """Convolutions as they were drawn, read out by kernel ridge."""
    hidden = (*_fixed(track), *LAYERS["random convolutions"])
    readout = KernelRidge(width, penalty, copies=COPIES)
    recipe = Recipe(hidden, image_shape=SHAPE, pairing=AUGMENTED[track], epochs=0, readout=readout)
    return Contender(track, "local", tried, recipe)


def _kernel(track: Track, tried: int, kind: Kind, **options: Any) -> Contender:
    """A kernel machine on pixels."""
    if track != "raw":
        options["threshold"] = list(LEARNT[track])
    recipe = Recipe(pairing=AUGMENTED[track])
    return Contender(track, kind, tried, recipe, {"copies": COPIES} | options)


OURS: dict[str, Contender] = {
    "local convolutions": Contender("raw", "local", 23, Recipe(**preset("robust", shape=SHAPE))),
    "local dense layer": Contender(
        "raw", "local", 35, Recipe(**preset("robust", shape=SHAPE, dense=True))
    ),
    "the paper's layers": Contender(
        "raw",
        "local",
        13,
        Recipe(
            energy=PairEnergy(boson_weight=0.1),
            pairing=AUGMENTED["raw"],
            image_shape=SHAPE,
            schedule="cosine",
            weight_decay=0.02,
        ),
    ),
    "convolutions without labels": Contender(  # its readout has them
        "raw",
        "local",
        7,
        Recipe(
            hidden=(Conv(32), Conv(64, size=3)),
            energy=(FreeEnergy(2.0), FreeEnergy(5.0)),
            pairing=SelfSupervised((Affine(SHAPE),)),
            image_shape=SHAPE,
            activation="relu",
            bias=True,
            epochs=(15, 10),
            batch_size=200,
            learning_rate=0.005,
            schedule="cosine",
            weight_decay=0.0,
            readout=KernelRidge(copies=5),
        ),
    ),
    "local convolutions, threshold": Contender(
        "threshold",
        "local",
        13,
        Recipe(
            hidden=(Pointwise(), Conv(32), Conv(64, size=3), Conv(64, size=3, pool=1)),
            energy=(FreeEnergy(2.0), FreeEnergy(2.0), FreeEnergy(5.0), FreeEnergy(5.0)),
            pairing=AUGMENTED["threshold"],
            image_shape=SHAPE,
            adversary=(
                _against(0.3, 0), _against(0.25, 0), _against(0.3, 0.8), _against(0.25, 0.7)
            ),
            epochs=(10, 12, 12, 10),
            batch_size=200,
            learning_rate=(0.1, 0.005, 0.005, 0.005),
            schedule="cosine",
            weight_decay=0.0,
            readout=KernelRidge(copies=5),
        ),
    ),
    "local convolutions, threshold, Fashion": Contender(
        "fashion",
        "local",
        22,
        Recipe(
            hidden=(Pointwise(), Conv(32), Conv(64, size=3)),
            energy=(FreeEnergy(2.0), FreeEnergy(5.0), FreeEnergy(5.0)),
            pairing=AUGMENTED["fashion"],
            image_shape=SHAPE,
            adversary=(_against(0.15, 0), _against(0.1, 0.7), _against(0.1, 0.7)),
            epochs=10,
            batch_size=200,
            learning_rate=(0.1, 0.01, 0.005),
            schedule="cosine",
            weight_decay=0.0,
            readout=KernelRidge(1.0, copies=4),
        ),
    ),
}  # fmt: skip
Grid = dict[str, Contender]
Settings = tuple[tuple[float, float], ...]
ENDS: dict[Track, str] = {"raw": "", "threshold": ", threshold", "fashion": ", threshold, Fashion"}
# What was tried for baselines, the best first, on raw pixels until the best stood between others.
# FGSM, PGD: ε of training. Kernels: width and penalty, or γ and penalty or C. Behind a threshold,
# which all share, only the first few.
FGSM = {"CNN": (0.15, 0.1, 0.2), "MLP": (0.1, 0.075, 0.15)}
PGD = {"CNN": (0.15, 0.1, 0.2), "MLP": (0.1, 0.075, 0.05, 0.15)}
EPOCHS = 100  # against FGSM and PGD; after 30 (PGD) and 60 (FGSM) nets were worse
FEATURES: Settings = (
    (8.0, 0.1), (8.0, 0.3), (8.0, 0.03), (8.0, 1.0), (16.0, 0.1), (16.0, 0.03), (4.0, 0.1),
    (4.0, 0.3), (4.0, 1.0), (2.0, 0.1), (2.0, 0.3), (2.0, 1.0), (1.0, 0.3),
)  # fmt: skip
RIDGES: Settings = (
    (0.1, 0.1), (0.1, 0.03), (0.1, 0.3), (0.1, 1.0), (0.15, 0.1), (0.15, 0.3), (0.07, 0.1),
    (0.07, 0.3), (0.07, 1.0), (0.05, 0.3), (0.03, 0.1), (0.03, 0.3), (0.03, 1.0), (0.02, 0.3),
)  # fmt: skip
COSTS: Settings = (
    (0.06, 3.0), (0.07, 1.0), (0.07, 3.0), (0.07, 10.0), (0.05, 3.0), (0.03, 3.0), (0.03, 10.0),
    (0.02, 3.0), (0.1, 3.0), (0.1, 10.0), (0.15, 3.0),
)  # fmt: skip


def _grids(track: Track) -> dict[str, Grid]:
    """The settings of every baseline of a track."""
    few = None if track == "raw" else 2
    features, ridges, costs = FEATURES[:few], RIDGES[:few], COSTS[:few]
    kernel = partial(_kernel, track)
    found: dict[str, Grid] = {
        "CNN": {f"{n} epochs": _network(track, 2, "CNN", epochs=n) for n in (60, 30)}
    }
    for layers in ("CNN", "MLP"):
        fgsm, pgd = FGSM[layers][:few], PGD[layers][:few]
        found[f"{layers}, FGSM"] = {
            f"{e:g}": _network(track, len(fgsm), layers, e, epochs=EPOCHS) for e in fgsm
        }
        found[f"{layers}, PGD-7"] = {
            f"{e:g}": _network(track, len(pgd), layers, e, 7, EPOCHS) for e in pgd
        }
    found["random convolutions"] = {
        f"width {w:g}, penalty {p:g}": _random(track, len(features), w, p) for w, p in features
    }
    found["kernel ridge"] = {
        f"γ {g:g}, penalty {r:g}": kernel(len(ridges), "kernel ridge", gamma=g, ridge=r)
        for g, r in ridges
    }
    found["RBF-SVM"] = {
        f"γ {g:g}, C {c:g}": kernel(len(costs), "RBF-SVM", gamma=g, c=c) for g, c in costs
    }
    end = ENDS[track]
    return {
        name + end: {f"{name}, {value}{end}": each for value, each in grid.items()}
        for name, grid in found.items()
    }


GRIDS: dict[str, Grid] = {name: grid for track in AUGMENTED for name, grid in _grids(track).items()}
# The best of each grid
USED = {"CNN": "CNN, 60 epochs"}
CONTENDERS: dict[str, Contender] = OURS | {
    name: grid[USED.get(name, next(iter(grid)))] for name, grid in GRIDS.items()
}
