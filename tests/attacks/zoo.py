"""Honest models of many kinds, trained in seconds on 8 × 8 digits; masks.py hides some of them."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fermibose.attacks import Adversary, ThreatModel
from fermibose.data import load_dataset
from fermibose.machine import (
    Recipe,
    train,
    train_kernel_ridge,
    train_logistic,
    train_mlp,
    train_rbf_svm,
)

THREAT = ThreatModel("linf", 0.1)
CLASSES = (3, 5, 8, 9)  # digits that resemble one another; few, so that AutoAttack has few targets
K = len(CLASSES)


def cnn() -> nn.Module:
    """A small convolutional net for flat 8 × 8 pictures."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 40), nn.ReLU(),
        nn.Linear(40, K),
    )  # fmt: skip


def relu_mlp(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def fit(net: nn.Module, x: Tensor, y: Tensor, seed: int, *, epochs: int = 25, epsilon: float = 0.0):
    """Adam on mini-batches of 50; with ε > 0 on adversarial examples."""
    generator = torch.Generator().manual_seed(seed)
    adversary = Adversary(ThreatModel("linf", epsilon), steps=4)
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(y), generator=generator).split(50):
            inputs = x[rows]
            if epsilon:
                net.eval()
                inputs = adversary(net, inputs, y[rows], generator)
                net.train()
            optimiser.zero_grad()
            F.cross_entropy(net(inputs), y[rows]).backward()
            optimiser.step()
    return net.eval()


@dataclass(frozen=True)
class Zoo:
    """The trained nets that others are made of, with the images they are audited on."""

    x: Tensor
    y: Tensor
    x_train: Tensor
    y_train: Tensor
    mlp: nn.Module
    cnn: nn.Module
    other: nn.Module  # trained alike, from another start
    seed: int

    @classmethod
    def trained(cls, seed: int, images: int = 60) -> "Zoo":
        digits = load_dataset("digits")
        x_train, y_train = _of_classes(digits.x_train, digits.y_train)
        x, y = _of_classes(digits.x_test, digits.y_test)
        rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))[:images]
        torch.manual_seed(seed)
        fresh = (relu_mlp(64, 100, K), cnn(), relu_mlp(64, 100, K))
        nets = [fit(net, x_train, y_train, seed) for net in fresh]
        return cls(x[rows], y[rows], x_train, y_train, *nets, seed)


def _of_classes(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    chosen = np.isin(y, CLASSES)
    return torch.tensor(x[chosen]), torch.tensor(np.searchsorted(CLASSES, y[chosen]))


# What they do is what autograd differentiates, and attacks work.


class Threshold(nn.Module):
    """Steep, but as differentiable as it looks: σ(k(x − t)) at the input of a net trained on it."""

    def __init__(self, net: nn.Module, k: float) -> None:
        super().__init__()
        self.net, self.k = net, k

    def forward(self, x: Tensor) -> Tensor:
        return self.net(torch.sigmoid(self.k * (x - 0.5)))


class Times(nn.Module):
    def __init__(self, net: nn.Module, factor: float, offset: float = 0.0) -> None:
        super().__init__()
        self.net, self.factor, self.offset = net, factor, offset

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.factor + self.offset


class Single(nn.Module):
    """Whatever it is given, it computes in float32."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = [net]  # in a list, so that no conversion reaches it

    def forward(self, x: Tensor) -> Tensor:
        return self.net[0](x.float()).to(x.dtype)


class Represented(nn.Module):
    """A net with a method for its features, by a name that others might take for theirs."""

    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.net = net

    def represent(self, x: Tensor) -> Tensor:
        return self.net[:-1](x)

    def forward(self, x: Tensor) -> Tensor:
        return self.net[-1](self.represent(x))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, 80), nn.BatchNorm1d(80), nn.Tanh(), nn.Dropout(0.2), nn.Linear(80, K)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(2 * x - 1)


class Attention(nn.Module):
    """Eight rows of pixels that look at one another, with GELU and normalised layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(8, 32), nn.Parameter(0.1 * torch.randn(8, 32))
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", batch_first=True)
        self.out = nn.Linear(256, K)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x.view(-1, 8, 8)) + self.place
        return self.out(self.layer(h).flatten(1))


def _recipe(zoo: Zoo, **options: object) -> Recipe:
    return Recipe(seed=zoo.seed, **options)


def fit_in(net: nn.Module, zoo: Zoo, **options: object) -> nn.Module:
    return fit(net, zoo.x_train, zoo.y_train, zoo.seed, **options)


Builder = Callable[[Zoo], nn.Module]
HONEST: dict[str, Builder] = {
    "linear": lambda z: train_logistic(z.x_train.numpy(), z.y_train.numpy()),
    "MLP, ReLU": lambda z: z.mlp,
    "MLP, tanh": lambda z: (
        train_mlp(
            z.x_train.numpy(), z.y_train.numpy(), _recipe(z, hidden=(60,), epochs=60), show=False
        ).net
    ),
    "MLP, deep": lambda z: fit_in(relu_mlp(64, 100, 100, 100, K), z),
    "MLP, adversarially trained": lambda z: fit_in(relu_mlp(64, 200, K), z, epsilon=0.15),
    "CNN": lambda z: z.cnn,
    "CNN with represent": lambda z: Represented(z.cnn),
    "CNN, adversarially trained": lambda z: fit_in(cnn(), z, epsilon=0.15),
    "CNN, adversarially trained, with represent": lambda z: Represented(
        fit_in(cnn(), z, epsilon=0.15)
    ),
    "CNN, trained long": lambda z: fit_in(cnn(), z, epochs=100),
    "SVM": lambda z: train_rbf_svm(z.x_train.numpy(), z.y_train.numpy(), gamma=0.5, c=10.0),
    "kernel ridge": lambda z: train_kernel_ridge(
        z.x_train.numpy(), z.y_train.numpy(), gamma=0.3, ridge=0.1
    ),
    "machine": lambda z: (
        train(
            z.x_train.numpy(),
            z.y_train.numpy(),
            _recipe(z, hidden=(60,), epochs=20, readout_epochs=60),
            show=False,
        ).net
    ),
    "machine, deep": lambda z: (
        train(
            z.x_train.numpy(),
            z.y_train.numpy(),
            _recipe(z, hidden=(60, 60), epochs=20, readout_epochs=60),
            show=False,
        ).net
    ),
    "threshold, k = 10": lambda z: fit_in(Threshold(relu_mlp(64, 100, K), 10.0), z),
    "threshold, k = 20": lambda z: fit_in(Threshold(relu_mlp(64, 100, K), 20.0), z),
    "logits × 0.001": lambda z: Times(z.mlp, 1e-3),
    "logits × 10": lambda z: Times(z.cnn, 10.0),
    "float64": lambda z: fit_in(relu_mlp(64, 100, K), z).double(),
    "float32 only": lambda z: Single(z.cnn),
    "batch norm and dropout": lambda z: fit_in(Normed(), z).train(),
    "attention": lambda z: fit_in(Attention(), z),
    "log-probabilities": lambda z: nn.Sequential(z.mlp, nn.LogSoftmax(1)),
}
