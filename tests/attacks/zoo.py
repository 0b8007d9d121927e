"""Models of which the truth is known: honest ones, and ones that hide behind their gradients.

A masked model says what it is made of (``honest``): an attack on that, whose examples are then shown
to the model, bounds from above what any robust accuracy stated for it may be. Everything is trained
in seconds, on 8 × 8 digits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fermibose.attacks import Adversary, ThreatModel, auto_attack
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
    for inputs, outputs in zip(widths, widths[1:], strict=False):
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


# Honest models: what they do is what autograd differentiates, and attacks work.


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


def _fit(net: nn.Module, zoo: Zoo, **options: object) -> nn.Module:
    return fit(net, zoo.x_train, zoo.y_train, zoo.seed, **options)


Builder = Callable[[Zoo], nn.Module]
HONEST: dict[str, Builder] = {
    "linear": lambda z: train_logistic(z.x_train.numpy(), z.y_train.numpy()),
    "MLP, ReLU": lambda z: z.mlp,
    "MLP, tanh": lambda z: train_mlp(z.x_train.numpy(), z.y_train.numpy(), _recipe(z, hidden=(60,), epochs=60), show=False).net,
    "MLP, deep": lambda z: _fit(relu_mlp(64, 100, 100, 100, K), z),
    "MLP, adversarially trained": lambda z: _fit(relu_mlp(64, 200, K), z, epsilon=0.15),
    "CNN": lambda z: z.cnn,
    "CNN with represent": lambda z: Represented(z.cnn),
    "CNN, adversarially trained": lambda z: _fit(cnn(), z, epsilon=0.15),
    "CNN, adversarially trained, with represent": lambda z: Represented(_fit(cnn(), z, epsilon=0.15)),
    "CNN, trained long": lambda z: _fit(cnn(), z, epochs=100),
    "SVM": lambda z: train_rbf_svm(z.x_train.numpy(), z.y_train.numpy(), gamma=0.5, c=10.0),
    "kernel ridge": lambda z: train_kernel_ridge(z.x_train.numpy(), z.y_train.numpy(), gamma=0.3, ridge=0.1),
    "machine": lambda z: train(z.x_train.numpy(), z.y_train.numpy(), _recipe(z, hidden=(60,), epochs=20, readout_epochs=60), show=False).net,
    "machine, deep": lambda z: train(z.x_train.numpy(), z.y_train.numpy(), _recipe(z, hidden=(60, 60), epochs=20, readout_epochs=60), show=False).net,
    "threshold, k = 10": lambda z: _fit(Threshold(relu_mlp(64, 100, K), 10.0), z),
    "threshold, k = 20": lambda z: _fit(Threshold(relu_mlp(64, 100, K), 20.0), z),
    "logits × 0.001": lambda z: Times(z.mlp, 1e-3),
    "logits × 10": lambda z: Times(z.cnn, 10.0),
    "float64": lambda z: _fit(relu_mlp(64, 100, K), z).double(),
    "float32 only": lambda z: Single(z.cnn),
    "batch norm and dropout": lambda z: _fit(Normed(), z).train(),
    "attention": lambda z: _fit(Attention(), z),
    "log-probabilities": lambda z: nn.Sequential(z.mlp, nn.LogSoftmax(1)),
}  # fmt: skip


# Masked models.


class _Backward(torch.autograd.Function):
    """Identity whose gradient goes through a function of (input, gradient)."""

    @staticmethod
    def forward(ctx, x: Tensor, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor):
        return ctx.change(ctx.saved_tensors[0], gradient), None


class Masked(nn.Module):
    """A net behind something; ``honest`` is what an adaptive attack would attack instead."""

    def __init__(self, net: nn.Module, forward: Callable[[nn.Module, Tensor], Tensor], honest: nn.Module | None = None) -> None:
        super().__init__()
        self.net, self.how = net, forward
        self.honest = [net if honest is None else honest]  # no part of the model

    def forward(self, x: Tensor) -> Tensor:
        return self.how(self.net, x)


def _hash(x: Tensor) -> Tensor:
    """Numbers in [0, 1) as wild as the input is exact, of its shape."""
    with torch.no_grad():
        return (torch.sin(12345.678 * x.double() + 99.0 * x.double().sum(1, keepdim=True)) * 43758.5453).remainder(1).to(x.dtype)


def _backward(change: Callable[[Tensor, Tensor], Tensor]) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda net, x: net(_Backward.apply(x, change))


def _mean(g: Tensor) -> Tensor:
    return g.abs().mean(1, keepdim=True)


def _fixed_noise(x: Tensor, g: Tensor) -> Tensor:
    pattern = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return g + 2 * _mean(g) * pattern.to(g)


def _round(x: Tensor, levels: int) -> Tensor:
    return (levels * x).round() / levels


def _straight_through(x: Tensor, y: Tensor) -> Tensor:
    return x + (y - x).detach()


def _dct(x: Tensor, step: float) -> Tensor:
    n = torch.arange(8, dtype=x.dtype)
    basis = torch.cos(math.pi * (2 * n[None] + 1) * n[:, None] / 16) * 0.5
    basis[0] *= 0.5**0.5
    c = basis @ x.view(-1, 8, 8) @ basis.T
    return (basis.T @ ((c / step).round() * step) @ basis).flatten(1)


def _thermometer(x: Tensor, levels: int = 10) -> Tensor:
    marks = (torch.arange(levels, dtype=x.dtype) + 0.5) / levels
    return (x[:, :, None] > marks).to(x.dtype).flatten(1)


class _Thermometer(nn.Module):
    def __init__(self, net: nn.Module, width: float) -> None:
        super().__init__()
        self.net, self.width = net, width

    def forward(self, x: Tensor) -> Tensor:
        if not self.width:
            return self.net(_thermometer(x))
        marks = (torch.arange(10, dtype=x.dtype) + 0.5) / 10
        return self.net(((x[:, :, None] - marks) / self.width).sigmoid().flatten(1))


class Winners(nn.Module):
    """k winners take all: of 100 hidden units, 15 speak."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 200), nn.Linear(200, K)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.last(h * (h >= h.topk(20, dim=1).values[:, -1:]))


class Counting(nn.Module):
    """Honest for a while."""

    def __init__(self, net: nn.Module, calls: int, gradient_only: bool) -> None:
        super().__init__()
        self.net, self.calls, self.gradient_only = net, calls, gradient_only
        self.count, self.honest = [0], [net]

    def forward(self, x: Tensor) -> Tensor:
        self.count[0] += 1
        if self.count[0] <= self.calls:
            return self.net(x)
        if self.gradient_only:
            return self.net(_Backward.apply(x, lambda x, g: g.roll(17, 1)))
        return self.net(_round(x, 3).detach() + 0.001 * (x - x.detach()))


class Remembering(nn.Module):
    """Answers what resembles the last question as it answered that."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.honest, self.last = net, [net], []

    def forward(self, x: Tensor) -> Tensor:
        answer = self.net(x)
        if self.last and self.last[0][0].shape == x.shape and self.last[0][0].dtype == x.dtype:
            near = (x.detach() - self.last[0][0]).abs().amax(1) < 0.05
            answer = torch.where(near[:, None], self.last[0][1] + 0 * answer, answer)
        self.last[:] = [(x.detach().clone(), answer.detach().clone())]
        return answer


def _shift(net: nn.Module, x: Tensor) -> Tensor:
    rows, columns = torch.randint(-1, 2, (2,)).tolist()
    return net(x.view(-1, 8, 8).roll((rows, columns), (1, 2)).flatten(1))


def _dependent_on_mode(other: nn.Module) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda net, x: other(x) if torch.is_grad_enabled() and x.requires_grad else net(x)


def _sine(net: nn.Module, x: Tensor) -> Tensor:
    return net(x + 0.01 * torch.sin(400 * x))


def _of_another(other: nn.Module) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda net, x: net(x).detach() + other(x) - other(x).detach()


def _decoy(net: nn.Module, x: Tensor) -> Tensor:
    decoy = 1e-3 * torch.sin(40 * x[:, ::7]).cumsum(1)[:, -K:]
    return net(x.detach()) + decoy - decoy.detach()


def _linear(z: Zoo) -> nn.Module:
    return _fit(nn.Linear(64, K), z)


def _near(x: Tensor, stored: Tensor) -> Tensor:
    return torch.cdist(x.detach(), stored.to(x.dtype), p=torch.inf).min(1).values


def _honest_at(stored: Tensor) -> Callable[[nn.Module, Tensor], Tensor]:
    """The right gradient at the stored images only."""

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        return net(_Backward.apply(x, lambda x, g: torch.where((_near(x, stored) < 1e-3)[:, None], g, g.flip(1))))

    return forward


def _lookup(stored: Tensor, labels: Tensor, reach: float) -> Callable[[nn.Module, Tensor], Tensor]:
    """Near a stored image, its label; else the net."""

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        distance = torch.cdist(x.detach(), stored.to(x.dtype), p=torch.inf)
        known = 10.0 * F.one_hot(labels[distance.argmin(1)], K).to(x.dtype)
        return torch.where((distance.min(1).values < reach)[:, None], known, net(x))

    return forward


def _detector(stored: Tensor, labels: Tensor) -> Callable[[nn.Module, Tensor], Tensor]:
    """Changes that reach the very border of a ball around a stored image are undone."""

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        distance = torch.cdist(x.detach(), stored.to(x.dtype), p=torch.inf)
        known = 10.0 * F.one_hot(labels[distance.argmin(1)], K).to(x.dtype)
        caught = (distance.min(1).values - THREAT.epsilon).abs() < 0.02
        return torch.where(caught[:, None], known + 0 * net(x), net(x))

    return forward


def _smooth(x: Tensor) -> Tensor:
    return F.avg_pool2d(F.pad(x.view(-1, 1, 8, 8), (1, 1, 1, 1), mode="replicate"), 3, 1).flatten(1)


def _rough(net: nn.Module, x: Tensor) -> Tensor:
    """Pictures that look rough are smoothed first."""
    rough = (x - _smooth(x)).detach().abs().mean(1) > 0.13
    return net(torch.where(rough[:, None], _smooth(x).detach(), x))


def _by_batch(net: nn.Module, x: Tensor) -> Tensor:
    return net(x) if len(x) == 1 else net(_Backward.apply(x, lambda x, g: g.flip(1)))


def _of_company(net: nn.Module, x: Tensor) -> Tensor:
    """Each picture is judged less the change that all have in common."""
    return net(x - 0.5 * (x - x.roll(1, 0)).mean(1, keepdim=True))


def _by_precision(net: nn.Module, x: Tensor) -> Tensor:
    return net(x if x.dtype == torch.float64 else _Backward.apply(x, lambda x, g: g.flip(1)))


def _half(net: nn.Module, x: Tensor) -> Tensor:
    return net((x + 200).half().to(x.dtype) - 200)


def _mask(mlp: bool, forward: Callable[[nn.Module, Tensor], Tensor]) -> Builder:
    return lambda z: Masked(z.mlp if mlp else z.cnn, forward)


M = _mask
MASKED: dict[str, tuple[str, Builder]] = {
    "logits × 1000": ("temperature", M(True, lambda net, x: 1000 * net(x))),
    "softmax of logits × 100": ("temperature", M(False, lambda net, x: (100 * net(x)).softmax(1))),
    "input in 16 levels": ("quantised input", M(True, lambda net, x: net(_round(x, 16)))),
    "input in 4 levels": ("quantised input", M(False, lambda net, x: net(_round(x, 4)))),
    "logits rounded": ("quantised output", M(True, lambda net, x: net(x).round())),
    "logits rounded, decoy": ("quantised output", M(False, lambda net, x: net(x).round() + 1e-3 * torch.sin(40 * x[:, 20 : 20 + K]))),
    "labels only": ("quantised output", M(True, lambda net, x: 5.0 * F.one_hot(net(x).argmax(1), K) + 1e-3 * torch.sin(9 * x[:, 20 : 20 + K]))),
    "noise on input": ("stochastic", M(True, lambda net, x: net(x + 0.1 * torch.randn_like(x)))),
    "noise on logits": ("stochastic", M(False, lambda net, x: net(x) + torch.randn(len(x), K, dtype=x.dtype))),
    "dropout": ("stochastic", M(True, lambda net, x: net(F.dropout(x, 0.2, training=True)))),
    "shifted at random": ("stochastic", M(False, _shift)),
    "DCT quantised": ("non-differentiable", M(True, lambda net, x: net(_dct(x, 0.5)))),
    "DCT, straight through": ("straight through", M(False, lambda net, x: net(_straight_through(x, _dct(x, 1.0))))),
    "binary, straight through": ("straight through", lambda z: Masked(_fit(Masked(relu_mlp(64, 100, K), lambda net, x: net((x > 0.5).to(x.dtype))), z), lambda net, x: net.net(_straight_through(x, (x > 0.5).to(x.dtype))), _fit(Threshold(relu_mlp(64, 100, K), 10.0), z))),
    "detached": ("detached", M(True, lambda net, x: net(x.detach()))),
    "detached with decoy": ("detached", M(False, _decoy)),
    "half of the pixels detached": ("partly detached", M(True, lambda net, x: net(torch.where(torch.arange(64) % 2 == 0, x, x.detach())))),
    "one net of two detached": ("partly detached", lambda z: Masked(nn.ModuleList([z.mlp, z.cnn]), lambda nets, x: nets[0](x) + 3 * nets[1](x.detach()), Both(z.mlp, z.cnn))),
    "zero gradient": ("altered gradient", M(True, _backward(lambda x, g: 0 * g))),
    "gradient rounded": ("altered gradient", M(False, _backward(lambda x, g: _round(g / g.abs().amax(1, keepdim=True), 1) * g.abs().amax(1, keepdim=True)))),
    "only large entries of the gradient": ("altered gradient", M(True, _backward(lambda x, g: g * (g.abs() >= g.abs().topk(3, 1).values[:, -1:])))),
    "only small entries of the gradient": ("altered gradient", M(True, _backward(lambda x, g: g.clamp(-0.1 * _mean(g), 0.1 * _mean(g)) * (g.abs() < _mean(g))))),
    "gradient reversed": ("sign flipped", M(True, _backward(lambda x, g: -g))),
    "half of the signs flipped": ("sign flipped", M(False, _backward(lambda x, g: torch.where(torch.arange(64) % 3 == 0, -g, g)))),
    "gradient shuffled": ("altered gradient", M(False, _backward(lambda x, g: g.roll(13, 1)))),
    "noise in the backward": ("backward noise", M(True, _backward(_fixed_noise))),
    "noise in the backward, CNN": ("backward noise", M(False, _backward(_fixed_noise))),
    "noise in the backward, by input": ("backward noise", M(True, _backward(lambda x, g: g + 6 * _mean(g) * (_hash(x) - 0.5)))),
    "gradient of a linear net": ("gradient of another", lambda z: Masked(z.mlp, _of_another(_linear(z)))),
    "gradient of a linear net, machine": ("gradient of another", lambda z: Masked(HONEST["machine"](z), _of_another(_linear(z)))),
    "gradient of another net": ("gradient of another", lambda z: Masked(z.cnn, _of_another(z.other))),
    "float16": ("float16", M(True, _half)),
    "thermometer": ("thermometer", lambda z: (lambda net: Masked(_Thermometer(net, 0.0), lambda m, x: m(x), _Thermometer(net, 0.05)))(_fit(_Thermometer(relu_mlp(640, 100, K), 0.0), z).net)),
    "thermometer, straight through a linear net": ("thermometer", lambda z: (lambda net, lin: Masked(_Thermometer(net, 0.0), _of_another(lin), _Thermometer(net, 0.05)))(_fit(_Thermometer(relu_mlp(640, 100, K), 0.0), z).net, _linear(z))),
    "winners": ("winners take all", lambda z: (lambda net: Masked(net, lambda m, x: m(x)))(_fit(Winners(), z))),
    "logits clipped": ("clipped logits", M(True, lambda net, x: net(x).clamp(-2, 2))),
    "logits squashed": ("clipped logits", M(False, lambda net, x: torch.tanh(3 * net(x)))),
    "noise by hash": ("hash of the input", M(True, lambda net, x: net(x + 0.3 * (_hash(x) - 0.5)))),
    "pixels dropped by hash": ("hash of the input", M(False, lambda net, x: net(x * (_hash(x) > 0.1)))),
    "logits + 1e8": ("offset", M(True, lambda net, x: net(x) + 1e8)),
    "logits + 3e6": ("offset", M(False, lambda net, x: net(x) + 3e6)),
    "gradient false after 100 calls": ("counts calls", lambda z: Counting(z.mlp, 100, True)),
    "answers coarse after 50 calls": ("counts calls", lambda z: Counting(z.cnn, 50, False)),
    "remembers": ("remembers", lambda z: Remembering(z.mlp)),
    "another net in grad mode": ("mode", lambda z: Masked(z.mlp, _dependent_on_mode(z.other))),
    "sine on the input": ("shattered", M(True, _sine)),
    "sine on the logits": ("shattered", M(False, lambda net, x: net(x) + 0.5 * torch.sin(2000 * x[:, 10:50]).view(-1, K, 10).sum(2))),
    "steep threshold, k = 3000": ("steep", lambda z: (lambda net: Masked(Threshold(net, 3000.0), lambda m, x: m(x), Threshold(net, 15.0)))(_fit(Threshold(relu_mlp(64, 100, K), 3000.0), z).net)),
    "right at the test images": ("memory", lambda z: Masked(z.mlp, _honest_at(z.x))),
    "labels near the test images": ("memory", lambda z: Masked(z.cnn, _lookup(z.x, z.y, 0.03))),
    "detects the border": ("detector", lambda z: Masked(z.mlp, _detector(z.x, z.y))),
    "smooths what is rough": ("detector", M(False, _rough)),
    "gradient right one by one": ("batch", M(True, _by_batch)),
    "depends on its neighbour": ("batch", M(False, _of_company)),
    "gradient right in float64": ("precision", M(True, _by_precision)),
    "gradient × 1e-40": ("tiny gradient", M(True, lambda net, x: net(_Backward.apply(x, lambda x, g: g * 1e-40)))),
}  # fmt: skip


class Both(nn.Module):
    def __init__(self, a: nn.Module, b: nn.Module) -> None:
        super().__init__()
        self.a, self.b = a, b

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + 3 * self.b(x)


def at_most(model: nn.Module, zoo: Zoo, threat: ThreatModel = THREAT) -> float:
    """What an adaptive attack leaves: AutoAttack on what the model hides, shown to the model."""
    honest = model.honest[0]
    found = auto_attack(honest, zoo.x, zoo.y, threat, attacks=("apgd-ce", "apgd-t"), show=False)
    left = torch.ones(len(zoo.y), dtype=torch.bool)
    model.eval()
    with torch.no_grad():
        for share in (0.0, 0.5, 0.7, 0.9, 1.0, 1.0, 1.0, 1.0):
            points = zoo.x + share * (found.examples - zoo.x)
            left &= model(points).argmax(1) == zoo.y
    return float(left.double().mean())
