"""What can be chosen in the app: ranges of sliders, attacks, epochs. Loads nothing heavy."""

from dataclasses import dataclass

import numpy as np

from fermibose.checks import choice


@dataclass(frozen=True)
class Range:
    """What a slider may say."""

    label: str
    low: float
    high: float
    value: float  # at first
    logarithmic: bool = False
    points: int = 41

    @property
    def steps(self) -> list[float]:
        """Its positions, three digits each; the first value is one of them."""
        space = np.geomspace if self.logarithmic else np.linspace
        found = {float(f"{v:.3g}") for v in space(self.low, self.high, self.points)}
        return sorted(found | {self.value})


# The theory; at first a state that replica symmetry describes, which at β = 50 it does not.
# Decay below 0.01 and loads beyond these take minutes at zero temperature.
RANGES = {
    "alpha": Range("α: disjoint pairs per weight", 0.1, 10, 2.5, True),
    "samples": Range("γ: samples per weight", 0.2, 20, 5, True),
    "rho": Range("ρ: share of boson pairs", 0, 1, 0.5, points=21),
    "delta": Range("Δ: width of a cluster", 0.1, 2, 0.5, points=39),
    "beta": Range("β: inverse temperature", 0.5, 1000, 20, True),
    "d_f": Range("d_F: target of fermion pairs", 0, 3, 1, points=31),
    "weight_decay": Range("λ_w: weight decay", 0.01, 1, 0.05, True),
    "eps": Range("ε: strength of the attack", 0, 1.5, 0.5, points=31),
}
LONGEST_NORM = 12  # characters

# Nets under attack: attack → norm of its threat, largest strength
ATTACKS = {
    "FGSM (ℓ∞)": ("linf", 0.3),
    "PGD (ℓ∞)": ("linf", 0.3),
    "one step (ℓ2)": ("l2", 3.0),
    "PGD (ℓ2)": ("l2", 3.0),
    "noise": ("noise", 0.9),
}
_POINTS = 31  # strengths from 0 to the largest
MIDDLE = 10  # place of the one at first
IMAGES = 100  # to choose from, ten of each class

# Training
EPOCHS = (0, 1, 2, 3, 5, 8, 12, 20)  # at which the net is looked at
TARGETS = (0.05, 1.5)  # of d_F
RATES = (0.1, 10.0)  # of η
WIDTHS = (0.1, 2.0)  # of Δ


def strengths(attack: str) -> list[float]:
    """The strengths of an attack that can be chosen."""
    largest = ATTACKS[choice("attack", attack, ATTACKS)][1]
    return [round(float(value), 6) for value in np.linspace(0, largest, _POINTS)]
