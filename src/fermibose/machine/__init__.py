"""The machine: local layers trained on pairs, a readout, and the network they make."""

from fermibose.machine.adversary import LocalAdversary
from fermibose.machine.augment import Affine, Crop, Elastic, Flip, Noise, Shift
from fermibose.machine.baselines import (
    InputNoise,
    train_kernel_ridge,
    train_logistic,
    train_mlp,
    train_rbf_svm,
)
from fermibose.machine.convolution import Conv, Hidden, LocalConv, LocalPointwise, Pointwise
from fermibose.machine.evaluation import Evaluation, draw_curves, evaluate, summarise
from fermibose.machine.free_energy import FreeEnergy
from fermibose.machine.inputs import RangeWarning, Sides, Streamed
from fermibose.machine.local_rule import LocalDense
from fermibose.machine.loop import compute_settings
from fermibose.machine.network import FermiBoseNet
from fermibose.machine.pair_loss import PairLoss
from fermibose.machine.pairing import Augmented, ByLabel, Pairing, SelfSupervised, Transform
from fermibose.machine.queries import Energy
from fermibose.machine.ranks import RankLost, Ranks, device_of, joined, tells
from fermibose.machine.readouts import KernelRidge
from fermibose.machine.recipe import Lesson, Preset, ReadoutKind, Recipe, preset
from fermibose.machine.scaling import Rescaling, Scaling, rescaling
from fermibose.machine.training import (
    CollapseWarning,
    Training,
    memory_of,
    train,
    with_readouts,
)

__all__ = [
    "Affine",
    "Augmented",
    "ByLabel",
    "CollapseWarning",
    "Conv",
    "Crop",
    "Elastic",
    "Energy",
    "Evaluation",
    "FermiBoseNet",
    "Flip",
    "FreeEnergy",
    "Hidden",
    "InputNoise",
    "KernelRidge",
    "Lesson",
    "LocalAdversary",
    "LocalConv",
    "LocalDense",
    "LocalPointwise",
    "Noise",
    "PairLoss",
    "Pairing",
    "Pointwise",
    "Preset",
    "RangeWarning",
    "RankLost",
    "Ranks",
    "ReadoutKind",
    "Recipe",
    "Rescaling",
    "Scaling",
    "SelfSupervised",
    "Shift",
    "Sides",
    "Streamed",
    "Training",
    "Transform",
    "compute_settings",
    "device_of",
    "draw_curves",
    "evaluate",
    "joined",
    "memory_of",
    "preset",
    "rescaling",
    "summarise",
    "tells",
    "train",
    "train_kernel_ridge",
    "train_logistic",
    "train_mlp",
    "train_rbf_svm",
    "with_readouts",
]
