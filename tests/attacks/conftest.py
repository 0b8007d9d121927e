"""Small victims: a trained net on 8 × 8 digits and linear models with known worst cases."""

import importlib

import numpy as np
import pytest
import torch
from torch import nn

from fermibose.data import load_dataset
from fermibose.machine import Recipe, train


@pytest.fixture(scope="session")
def digits():
    return load_dataset("digits")


@pytest.fixture(scope="session")
def net(digits):
    recipe = Recipe(hidden=(60,), epochs=10, readout_epochs=30)
    return train(digits.x_train, digits.y_train, recipe).net


@pytest.fixture(scope="session")
def images(digits):
    """Every other test digit: about 180 of all classes, most of them classified correctly."""
    return torch.tensor(digits.x_test[::2]), torch.tensor(digits.y_test[::2])


@pytest.fixture
def by_pgd(monkeypatch):
    """Audits attack by PGD and Square alone: half of the time, where AutoAttack is no matter."""
    auditing = importlib.import_module("fermibose.attacks.audit")
    attacks = auditing._white_box

    def without_ensemble(*args):
        return {name: attack for name, attack in attacks(*args).items() if name == "PGD"}

    monkeypatch.setattr(auditing, "_white_box", without_ensemble)


class Linear(nn.Module):
    """Logits Wx + b; ``seen`` counts the rows it was asked about."""

    def __init__(self, weight, bias=None):
        super().__init__()
        weight = torch.as_tensor(np.asarray(weight), dtype=torch.float64)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else torch.as_tensor(np.asarray(bias)).double()
        self.seen = 0

    def forward(self, x):
        self.seen += len(x)
        return nn.functional.linear(x.flatten(1), self.weight, self.bias)


@pytest.fixture
def linear():
    return Linear
