"""The machine: local layers trained on pairs, a readout, and the network they make."""

from fermibose.machine.baselines import (
    InputNoise,
    train_kernel_ridge,
    train_logistic,
    train_mlp,
    train_rbf_svm,
)
from fermibose.machine.evaluation import Evaluation, draw_curves, evaluate, summarise
from fermibose.machine.inputs import RangeWarning, Rescaling, Scaling, rescaling
from fermibose.machine.local_rule import LocalDense, PairLoss
from fermibose.machine.loop import compute_settings
from fermibose.machine.network import FermiBoseNet
from fermibose.machine.pairing import ByLabel, Noise, Pairing, SelfSupervised, Shift, Transform
from fermibose.machine.recipe import ReadoutKind, Recipe
from fermibose.machine.training import CollapseWarning, Training, train

__all__ = [
    "ByLabel",
    "CollapseWarning",
    "Evaluation",
    "FermiBoseNet",
    "InputNoise",
    "LocalDense",
    "Noise",
    "PairLoss",
    "Pairing",
    "RangeWarning",
    "ReadoutKind",
    "Recipe",
    "Rescaling",
    "Scaling",
    "SelfSupervised",
    "Shift",
    "Training",
    "Transform",
    "compute_settings",
    "draw_curves",
    "evaluate",
    "rescaling",
    "summarise",
    "train",
    "train_kernel_ridge",
    "train_logistic",
    "train_mlp",
    "train_rbf_svm",
]
