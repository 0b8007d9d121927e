"""Accuracy as a function of the attack's strength, its band over seeds, and the area under it.

All strengths are measured in one pass where the attack allows it.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.integrate import trapezoid
from torch import Tensor, nn

from fermibose.attacks.gradient import (
    PGD_LOSSES,
    PGD_STEPS,
    Ascent,
    PgdLoss,
    attack_by_gradient,
    input_gradient,
    loss_named,
    loss_names,
    noisy,
    one_step,
    pgd_ascent,
    vanishing,
)
from fermibose.attacks.victim import Victim, seeded, versions, victim_of
from fermibose.checks import choice, number
from fermibose.compute import progress_bar
from fermibose.errors import InputError
from fermibose.statistics import summary
from fermibose.summary import Summarised, table
from fermibose.threat import LARGEST, Images, ThreatModel, ball_around, require

if TYPE_CHECKING:
    from pandas import DataFrame

Floats = npt.NDArray[np.float64]
CurveAttack = Literal["one_step", "pgd", "noise"]

PAPER_STRENGTHS: tuple[float, ...] = tuple(k / 100 for k in range(80))  # ε = 0, 0.01, …, 0.79


@dataclass(frozen=True, eq=False, repr=False)
class Curve(Summarised):
    """Accuracy at each strength, from which images withstand the attack at exactly that ε."""

    attack: str
    threat: ThreatModel  # norm and bounds; its ε plays no role
    epsilons: Floats  # (strengths,), increasing
    robust: npt.NDArray[np.bool_]  # (strengths, n)
    parameters: dict[str, Any]
    flags: tuple[str, ...] = ()  # reasons not to trust the curve

    @property
    def summary(self) -> str:
        """From where to where the accuracy falls."""
        ends = [f"{100 * self.accuracy[k]:.1f} % at ε = {self.epsilons[k]:g}" for k in (0, -1)]
        return f"{self.attack}, {self.robust.shape[1]} images: {' … '.join(ends)}"

    def to_frame(self) -> "DataFrame":
        """Accuracy and its worst case at each ε."""
        columns = {"epsilon": self.epsilons, "accuracy": self.accuracy}
        return table(columns | {"worst_case": self.worst_case})

    @property
    def accuracy(self) -> Floats:
        """Fraction of images that withstand at each ε, as the paper draws it, (strengths,)."""
        return np.asarray(self.robust.mean(1))

    @property
    def worst_case(self) -> Floats:
        """Fraction that withstands at ε and at every smaller one, (strengths,).

        An example found within a smaller ball lies in the larger one too, so for a norm-bounded
        attack this is the robust accuracy; it never increases.
        """
        return np.asarray(np.logical_and.accumulate(self.robust).mean(1))

    def as_dict(self) -> dict[str, Any]:
        """Numbers, parameters and versions, ready for JSON."""
        return {
            "attack": self.attack,
            "threat": {key: self.threat.as_dict()[key] for key in ("norm", "bounds")},
            "images": self.robust.shape[1],
            "epsilons": self.epsilons.tolist(),
            "accuracy": self.accuracy.tolist(),
            "parameters": self.parameters,
            "flags": list(self.flags),
            "versions": versions(),
        }


@dataclass(frozen=True, eq=False)
class Band:
    """Mean of several curves (one per seed) with a confidence interval for that mean."""

    epsilons: Floats
    mean: Floats
    low: Floats
    high: Floats


def robustness_area(curve: Curve | Band) -> float:
    """Area under straight lines between the points of the curve, accuracy in percent.

    The published areas are these: they follow so from the published curves over ε = 0, 0.01, …,
    0.79, those of FGSM to four digits and those of noise to 0.1 %. A perfect classifier has 79.
    """
    if len(curve.epsilons) < 2 or not (np.diff(curve.epsilons) > 0).all():
        raise InputError("the area needs the accuracy at two increasing strengths at least")
    accuracy = curve.mean if isinstance(curve, Band) else curve.accuracy
    return 100 * float(trapezoid(accuracy, curve.epsilons))


def mean_curve(curves: Sequence[Curve], *, confidence: float = 0.95) -> Band:
    """Mean over seeds at each ε, with Student's confidence interval for that mean."""
    from scipy.stats import t as student

    if len(curves) < 2:
        raise InputError("a confidence band needs the curves of at least two seeds")
    number("confidence", confidence, above=0, below=1)
    epsilons = curves[0].epsilons
    if any(not np.array_equal(curve.epsilons, epsilons) for curve in curves):
        raise InputError("the curves were measured at different strengths; measure them alike")
    mean, error, _ = summary(curve.accuracy for curve in curves)
    half = error * student.ppf((1 + confidence) / 2, len(curves) - 1)
    return Band(epsilons, mean, np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1))


def accuracy_curve(
    model: nn.Module,
    x: Images,
    y: Images,
    threat: ThreatModel,
    *,
    epsilons: Sequence[float] = PAPER_STRENGTHS,
    attack: CurveAttack | None = None,
    loss: PgdLoss | Sequence[PgdLoss] | None = None,
    steps: int = PGD_STEPS,
    restarts: int = 1,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    batch_size: int = 1000,
    show: bool | None = None,
) -> Curve:
    """Accuracy at each strength ε, in one pass where the attack allows it.

    attack: "one_step" (FGSM for ℓ∞, the one-step attack for ℓ2: one backward pass serves all ε,
    since neither the sign nor the direction of the gradient depends on ε), "pgd" (the attack
    ``pgd`` at every ε) or "noise" (fresh noise at every ε). By default the paper's: one step or
    noise, as the norm says. The ε of ``threat`` plays no role. loss: what is climbed, by default
    the cross-entropy; PGD takes several in turn, by default those of ``pgd``, from as many random
    starts each as restarts says.
    """
    strengths = checked_strengths(epsilons)
    if attack is None:
        attack = "noise" if getattr(threat, "norm", None) == "noise" else "one_step"
    require(threat, choice("attack", attack, get_args(CurveAttack)))
    way = _WAYS[attack]
    ascent = way.ascent(loss, steps, restarts)
    with victim_of(model, x, y, threat, dtype=dtype, batch_size=batch_size) as victim:
        robust = way.robust(victim, threat, strengths, ascent, seed, show)
        parameters = {"seed": seed, "dtype": str(victim.x.dtype)}
    if attack != "noise":
        parameters |= asdict(ascent)
    one_steps = {"linf": "fgsm", "l2": "one_step_l2"}
    name = one_steps[threat.norm] if attack == "one_step" else attack
    return Curve(name, threat, strengths, robust.cpu().numpy(), parameters, victim.flags)


Losses: TypeAlias = PgdLoss | Sequence[PgdLoss] | None


def _up_in_many_steps(loss: Losses, steps: int, restarts: int) -> Ascent:
    losses = PGD_LOSSES if loss is None else loss
    return pgd_ascent(losses=losses, steps=steps, restarts=restarts)


def _up_in_one_step(loss: Losses, steps: int, restarts: int) -> Ascent:
    names = loss_names("cross_entropy" if loss is None else loss)
    if len(names) != 1:
        raise InputError(f"one step climbs one loss, got {', '.join(names) or 'none'}")
    return one_step(names[0])


def _in_one_pass(
    victim: Victim,
    threat: ThreatModel,
    strengths: Floats,
    ascent: Ascent,
    seed: int,
    show: bool | None,
) -> Tensor:
    """Which images withstand one step, or noise, of each strength, (strengths, n)."""
    generator = seeded(seed, victim.x.device)
    loss = loss_named(ascent.losses[0])
    robust = victim.correct.repeat(len(strengths), 1)
    chunks = victim.batches(victim.correct.nonzero()[:, 0])
    name = "noise curve" if threat.norm == "noise" else "one-step curve"
    with progress_bar(name, len(chunks) * len(strengths), show=show) as advance:
        for rows in chunks:
            x = victim.x[rows]
            if threat.norm != "noise":
                gradient, _ = input_gradient(victim.model, x, victim.y[rows], loss)
                victim.stuck += int(vanishing(gradient).sum())
                direction = ball_around(x, threat).steepest(gradient)
            for row, epsilon in enumerate(strengths.tolist()):
                if epsilon > 0:
                    if threat.norm == "noise":
                        points = noisy(x, replace(threat, epsilon=epsilon), generator)
                    else:
                        # A unit step times ε is on the border of its ball: only bounds can bind.
                        points = torch.add(x, direction, alpha=epsilon).clamp_(*threat.bounds)
                    robust[row, rows] = ~victim.wrong(points, rows)
                advance()
    return robust


def _pgd(
    victim: Victim,
    threat: ThreatModel,
    strengths: Floats,
    ascent: Ascent,
    seed: int,
    show: bool | None,
) -> Tensor:
    """Which images withstand PGD within each strength, (strengths, n)."""
    found = []
    with progress_bar("pgd curve", len(strengths), show=show) as advance:
        for epsilon in strengths.tolist():
            if epsilon > 0:
                strong = replace(threat, epsilon=epsilon)
                found.append(
                    attack_by_gradient("pgd", victim, strong, ascent, seed=seed, show=False).robust
                )
            else:
                found.append(victim.correct)  # there is nowhere to climb
            advance()
    return torch.stack(found)


class _Way(NamedTuple):
    """How the curve of an attack is measured."""

    ascent: Callable[[Losses, int, int], Ascent]  # from the loss, steps and restarts asked for
    robust: Callable[..., Tensor]  # which images withstand each strength


_WAYS: dict[CurveAttack, _Way] = {
    "one_step": _Way(_up_in_one_step, _in_one_pass),
    "noise": _Way(_up_in_one_step, _in_one_pass),
    "pgd": _Way(_up_in_many_steps, _pgd),
}


def checked_strengths(epsilons: Sequence[float] | Floats) -> Floats:
    """The strengths of a curve as an array, refused unless they increase."""
    strengths = np.asarray(epsilons, dtype=np.float64)
    if strengths.ndim != 1 or not len(strengths) or not np.isfinite(strengths).all():
        raise InputError("epsilons must be a sequence of finite numbers")
    if strengths[-1] > LARGEST:
        raise InputError(f"epsilons must be at most {LARGEST:g}, got {strengths[-1]:g}")
    if strengths[0] < 0 or (np.diff(strengths) <= 0).any():
        raise InputError("epsilons must be >= 0 and increase from one to the next")
    return strengths
