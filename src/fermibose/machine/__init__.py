"""The machine: local layers trained on pairs, a readout, and the network they make."""

from fermibose.machine.baselines import InputNoise, train_logistic, train_mlp
from fermibose.machine.compute import compute_settings
from fermibose.machine.evaluation import Evaluation, evaluate, summarise
from fermibose.machine.examples import RangeWarning
from fermibose.machine.kernels import train_kernel_ridge, train_rbf_svm
from fermibose.machine.layers import LocalDense
from fermibose.machine.loss import PairLoss
from fermibose.machine.network import FermiBoseNet
from fermibose.machine.pairing import ByLabel, Noise, SelfSupervised, Shift
from fermibose.machine.recipe import Recipe
from fermibose.machine.training import Training, train

__all__ = [
    "ByLabel",
    "Evaluation",
    "FermiBoseNet",
    "InputNoise",
    "LocalDense",
    "Noise",
    "PairLoss",
    "RangeWarning",
    "Recipe",
    "SelfSupervised",
    "Shift",
    "Training",
    "compute_settings",
    "evaluate",
    "summarise",
    "train",
    "train_kernel_ridge",
    "train_logistic",
    "train_mlp",
    "train_rbf_svm",
]
