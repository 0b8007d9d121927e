"""Width and penalty of a kernel readout, chosen by accuracy and robustness on held-out data.

A narrow kernel with a small penalty is accurate and easily fooled, a wide one the contrary; so both
numbers are told for every choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from fermibose.attacks.front_end import unmasked_pgd
from fermibose.attacks.gradient import LossName
from fermibose.compute import progress_bar
from fermibose.errors import InputError
from fermibose.machine import FermiBoseNet, KernelRidge, Training, with_readouts
from fermibose.threat import Images, ThreatModel

LOSS: LossName = "margin"  # outputs of a regression are small, where the cross-entropy says little


@dataclass(frozen=True)
class ReadoutTrial:
    """One kernel readout and what it is worth on held-out data."""

    readout: KernelRidge
    clean_accuracy: float
    robust_accuracy: float

    @property
    def score(self) -> float:
        """The sum of both accuracies."""
        return self.clean_accuracy + self.robust_accuracy


@dataclass(frozen=True)
class ReadoutChoice:
    """All that was tried, in that order, and the net with the best readout."""

    trials: tuple[ReadoutTrial, ...]
    net: FermiBoseNet

    @property
    def best(self) -> ReadoutTrial:
        """The trial with the largest sum of both accuracies; the first one of equals."""
        return max(self.trials, key=lambda trial: trial.score)

    def __str__(self) -> str:
        lines = ["   width  penalty    clean   robust"]
        for trial in self.trials:
            mark = "*" if trial is self.best else " "
            readout, clean, robust = trial.readout, trial.clean_accuracy, trial.robust_accuracy
            lines.append(
                f"{mark} {readout.width:6g}  {readout.penalty:7g}  {clean:7.2%}  {robust:7.2%}"
            )
        return "\n".join(lines)


def choose_readout(
    training: Training,
    learnt: tuple[Images, Images],
    held_out: tuple[Images, Images],
    threat: ThreatModel,
    *,
    widths: Sequence[float] = (1.0, 2.0, 4.0),
    penalties: Sequence[float] = (0.1, 0.3, 1.0),
    seed: int = 0,
    show: bool | None = None,
) -> ReadoutChoice:
    """Solve the kernel readout of a trained machine with every width and penalty, and attack each.

    learnt: the images and labels that the machine was trained on; held_out: others, on which the
    choice is made, by clean accuracy plus accuracy under PGD (behind the threshold, if the net
    begins with one). They must not be test images: the best of many is flattered.
    """
    if not isinstance(training.recipe.readout, KernelRidge):
        raise InputError("the recipe has no kernel readout: train with readout=KernelRidge()")
    readouts = [
        replace(training.recipe.readout, width=width, penalty=penalty)
        for width, penalty in product(widths, penalties)
    ]
    if not readouts:
        raise InputError("there is nothing to choose from: give widths and penalties")
    trials: list[ReadoutTrial] = []
    with progress_bar("readouts", len(readouts), show=show) as advance:
        for readout, net in zip(readouts, with_readouts(training, *learnt, readouts), strict=True):
            found = unmasked_pgd(net, *held_out, threat, losses=LOSS, seed=seed, show=False)
            trial = ReadoutTrial(readout, found.clean_accuracy, found.robust_accuracy)
            if not trials or trial.score > max(each.score for each in trials):
                best = net
            trials.append(trial)
            advance(1)
    return ReadoutChoice(tuple(trials), best)
