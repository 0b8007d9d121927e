"""The machine page: two nets, one image, one attack, from no strength to the largest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from html import escape
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fermibose import FermiBoseNet
from fermibose.attacks import AttackResult, ThreatModel, fgsm, noisy, one_step_l2, pgd
from fermibose.checks import choice, number, whole
from fermibose.data import Dataset, load_dataset, per_class
from fermibose.errors import FileFormatError, InputError
from fermibose.explore.choices import ATTACKS, strengths
from fermibose.explore.drawing import bars, letters, picture
from fermibose.explore.serve import Settings
from fermibose.machine import compute_settings

Floats = NDArray[np.float64]

SHOWN = 10  # test images of each class to choose from
CLOUD = 20  # of each class in the plane
# PGD of one loss and 20 steps takes one image to all strengths in about a second.
_QUICK_PGD = partial(pgd, losses="margin", steps=20)
_FUNCTIONS: dict[str, Callable[..., AttackResult]] = {
    "FGSM (ℓ∞)": fgsm,
    "PGD (ℓ∞)": _QUICK_PGD,
    "one step (ℓ2)": one_step_l2,
    "PGD (ℓ2)": _QUICK_PGD,
}


@dataclass(frozen=True, eq=False)
class Plane:
    """The first two principal components of a net's last hidden layer on test images."""

    centre: torch.Tensor
    axes: torch.Tensor  # (units, 2)
    points: Floats  # (images, 2)
    share: float  # of the variance

    @classmethod
    def of(cls, net: FermiBoseNet, x: Any) -> "Plane":
        """The plane of images x (images, pixels)."""
        with torch.no_grad():
            h = net.represent(torch.as_tensor(x)).double()
        centre = h.mean(0)
        _, sizes, axes = torch.linalg.svd(h - centre, full_matrices=False)
        variances = sizes.square()
        share = float(variances[:2].sum() / variances.sum().clamp(min=1e-300))
        plane = cls(centre, axes[:2].T, np.empty((0, 2)), share)
        return cls(centre, plane.axes, plane.place(net, x), share)

    def place(self, net: FermiBoseNet, x: Any) -> Floats:
        """Where images are in it, (images, 2)."""
        with torch.no_grad():
            h = net.represent(torch.as_tensor(x)).double()
        return ((h - self.centre) @ self.axes).numpy()


@dataclass(frozen=True, eq=False)
class Contest:
    """Two nets and the images that both are asked about."""

    nets: dict[str, FermiBoseNet]
    images: NDArray[np.float32]  # to choose from, (images, pixels)
    labels: NDArray[np.int64]
    shape: tuple[int, int]
    cloud_names: Sequence[str]  # classes of the images in the planes
    planes: dict[str, Plane]


@dataclass(frozen=True, eq=False)
class Course:
    """One net and one image, at every strength of an attack."""

    strengths: Floats  # (points,)
    images: NDArray[np.float32]  # (points, pixels)
    logits: Floats  # (points, classes)
    way: Floats  # (points, 2), in the plane
    label: int

    @property
    def answers(self) -> NDArray[np.int64]:
        """The class that the net says at every strength."""
        return np.asarray(self.logits.argmax(1))

    @property
    def fooled_at(self) -> float | None:
        """The least strength shown at which the answer is wrong."""
        wrong = np.flatnonzero(self.answers != self.label)
        return float(self.strengths[wrong[0]]) if wrong.size else None


@lru_cache(maxsize=2)
def contest(settings: Settings) -> Contest:
    """The two nets of the command line, and their data; refuses what does not fit together."""
    names = {"machine": settings.machine, "MLP": settings.rival}
    nets = {name: _load(folder) for name, folder in names.items()}
    dataset = load_dataset(settings.data, folder=settings.folder)
    if dataset.image_shape is None:
        raise InputError(f"{dataset.name} holds no images: name images with --data")
    for name, net in nets.items():
        if net.config["inputs"] != dataset.x_test.shape[1]:
            raise InputError(
                f"the net in {names[name]} takes {net.config['inputs']} inputs, images of "
                f"{dataset.name} have {dataset.x_test.shape[1]}: name its data with --data"
            )
        if net.config["outputs"] <= int(dataset.y_test.max()):
            raise InputError(f"the net in {names[name]} knows fewer classes than {dataset.name}")
    images, labels = _first(dataset, SHOWN)
    cloud, cloud_labels = _first(dataset, CLOUD)
    with compute_settings(1):
        planes = {name: Plane.of(net, cloud) for name, net in nets.items()}
    told = [str(label) for label in cloud_labels]
    return Contest(nets, images, labels, dataset.image_shape, told, planes)


@lru_cache(maxsize=256)
def course(between: Contest, name: str, image: int, attack: str) -> Course:
    """What an attack makes of an image for one of the nets, at every strength."""
    net, plane = between.nets[choice("net", name, between.nets)], between.planes[name]
    count = len(between.images)
    if whole("image", image, least=0) >= count:
        raise InputError(f"there are {count} images, from 0 to {count - 1}; got {image}")
    x, y = between.images[image : image + 1], between.labels[image : image + 1]
    grid = strengths(attack)
    with compute_settings(1):
        made = torch.cat([_attacked(net, x, y, attack, strength) for strength in grid])
        with torch.no_grad():
            logits = net(made).double().numpy()
        way = plane.place(net, made)
    return Course(np.array(grid), made.numpy(), logits, way, int(y[0]))


def page(between: Contest, image: Any, attack: str, strength: Any) -> str:
    """One image under one attack for both nets, as HTML."""
    grid = strengths(attack)
    wanted = number("ε", strength, least=0, most=grid[-1])
    at = int(np.abs(np.array(grid) - wanted).argmin())
    courses = {name: course(between, name, image, attack) for name in between.nets}
    label = int(between.labels[image])
    parts = []
    for name, found in courses.items():
        classes = [str(c) for c in between.nets[name].config["classes"]]
        said = int(found.answers[at])
        right = "right" if said == label else "WRONG"
        shown = found.images[at].reshape(between.shape).astype(float)
        plane = between.planes[name]
        title = f"{name}: plane of the hidden layer"
        axes = ("component 1", f"component 2 (together {plane.share:.0%})")
        parts.append(
            f'<section class="fbm-net" data-net="{escape(name)}" data-says="{said}">'
            f'<p class="fbm-says">{escape(name)} says {escape(classes[said])}: {right}</p>'
            + f'<div class="fbm-beside">{picture(shown, f"as the {name} sees it")}'
            + bars(f"{name}: logits", classes, found.logits[at].tolist(), chosen=said)
            + "</div>"
            + letters(
                title,
                plane.points,
                between.cloud_names,
                path=found.way[: at + 1],
                own=str(label),
                labels=axes,
            )
            + "</section>"
        )
    original = picture(between.images[image].reshape(between.shape).astype(float), "the image")
    return (
        f'<div id="fbm-machine" data-label="{label}"><div class="fbm-beside">{original}<div>'
        f'<p role="status" id="fbm-fooled">{escape(summary(courses, label, grid[at]))}</p>'
        '<p class="fbm-note">Each net is attacked by itself, knowing its weights. In the plane '
        "every digit is a test image at its place, strong those of the image’s own class; in per "
        "cent, the share of the variance. The way goes from the ring (no attack) to the dot (this "
        f'strength).</p></div></div><div class="fbm-grid">{"".join(parts)}</div></div>'
    )


def summary(courses: dict[str, Course], label: int, strength: float) -> str:
    """Who is fooled, and from which strength on."""
    told = []
    for name, found in courses.items():
        first = found.fooled_at
        if first is None:
            told.append(f"the {name} is fooled at no strength shown")
        elif first == 0:
            told.append(f"the {name} misreads it without any attack")
        else:
            told.append(f"the {name} is fooled from ε = {first:g} on")
    return f"The image is a {label}, ε = {strength:g}: {'; '.join(told)}."


def _attacked(net: FermiBoseNet, x: Any, y: Any, attack: str, strength: float) -> torch.Tensor:
    """The image under an attack of one strength, (1, pixels)."""
    norm: Any = ATTACKS[attack][0]
    threat = ThreatModel(norm, strength)
    if attack == "noise":  # the same noise at every strength
        return noisy(torch.as_tensor(x), threat, torch.Generator().manual_seed(0))
    examples: torch.Tensor = _FUNCTIONS[attack](net, x, y, threat, show=False).examples
    return examples


def _first(dataset: Dataset, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    available = int(np.unique(dataset.y_test, return_counts=True)[1].min())
    return per_class(dataset.x_test, dataset.y_test, min(count, available))


def _load(folder: str) -> FermiBoseNet:
    try:
        return FermiBoseNet.load(folder)
    except FileFormatError as error:
        raise InputError(
            f"{error}. `fbm demo` (half a minute) makes the two nets that are looked for in "
            "fbm-demo; others are named with --machine and --rival"
        ) from None
