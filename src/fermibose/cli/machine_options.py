"""Options of ``fbm train``: the machine and how it is trained."""

from typing import Annotated, Literal

from typer import Option

from fermibose.energy import Coupling
from fermibose.errors import InputError

MACHINE, TRAINING = "Machine", "Training"  # headings in the help

HiddenOption = Annotated[
    str, Option(help="Units of each hidden layer: 1000 or 1000,500.", rich_help_panel=MACHINE)
]
DistanceOption = Annotated[
    float, Option(help="Target squared distance of fermion pairs.", rich_help_panel=MACHINE)
]
CouplingOption = Annotated[
    Coupling,
    Option(help="Loss as printed, or as in the published figures.", rich_help_panel=MACHINE),
]
PairingOption = Annotated[
    Literal["labels", "self"],
    Option(help="Pairs by class, or self-supervised.", rich_help_panel=MACHINE),
]
BosonWeightOption = Annotated[float, Option(help="Weight of boson pairs.", rich_help_panel=MACHINE)]
ActivityOption = Annotated[
    float, Option(help="Penalty on the mean activity.", rich_help_panel=MACHINE)
]
ActivationOption = Annotated[
    Literal["half_tanh", "tanh"],
    Option(help="(1 + tanh z)/2, or tanh z.", rich_help_panel=MACHINE),
]
ReadoutOption = Annotated[
    Literal["cross_entropy", "ridge"],
    Option(help="As in the paper, or in closed form.", rich_help_panel=MACHINE),
]
RidgeOption = Annotated[
    float | None,
    Option(help="Penalty of the ridge readout (default 0.01).", rich_help_panel=MACHINE),
]
NoiseOption = Annotated[
    float | None,
    Option(
        help="Deviation of the noise of self-supervised pairs (default 0.2).",
        rich_help_panel=MACHINE,
    ),
]
ShiftOption = Annotated[
    int | None,
    Option(
        help="Largest shift of self-supervised pairs, in pixels (default 2).",
        rich_help_panel=MACHINE,
    ),
]
EpochsOption = Annotated[
    int, Option(help="Epochs for each hidden layer.", rich_help_panel=TRAINING)
]
ReadoutEpochsOption = Annotated[
    int, Option(help="Epochs for the readout.", rich_help_panel=TRAINING)
]
BatchSizeOption = Annotated[int, Option(help="Images in a mini-batch.", rich_help_panel=TRAINING)]
LearningRateOption = Annotated[
    float, Option(help="Of Adam, for hidden layers.", rich_help_panel=TRAINING)
]
WeightDecayOption = Annotated[
    float, Option(help="λ of (λ/2N)|W|², for hidden layers.", rich_help_panel=TRAINING)
]


def check_idle(readout: str, pairing: str, **given: float | None) -> None:
    """Refuse an option that the readout or pairing chosen would ignore."""
    for name, value in given.items():
        needed = "--readout ridge" if name == "ridge" else "--pairing self"
        if value is not None and needed not in (f"--readout {readout}", f"--pairing {pairing}"):
            raise InputError(f"--{name} is for {needed} only: leave it out, or add {needed}")
