"""Models that hide behind their gradients, in many ways.

A masked model says what it is made of (``honest``): an attack on that, whose examples are then
shown to the model, bounds from above what any robust accuracy stated for it may be.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from zoo import HONEST, THREAT, Builder, K, Threshold, Zoo, fit_in, relu_mlp

from fermibose.attacks import ThreatModel, auto_attack


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

    def __init__(
        self,
        net: nn.Module,
        forward: Callable[[nn.Module, Tensor], Tensor],
        honest: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.net, self.how = net, forward
        self.honest = [net if honest is None else honest]  # no part of the model

    def forward(self, x: Tensor) -> Tensor:
        return self.how(self.net, x)


def _hash(x: Tensor) -> Tensor:
    """Numbers in [0, 1) as wild as the input is exact, of its shape."""
    with torch.no_grad():
        return (
            (
                torch.sin(12345.678 * x.double() + 99.0 * x.double().sum(1, keepdim=True))
                * 43758.5453
            )
            .remainder(1)
            .to(x.dtype)
        )


def _backward(change: Callable[[Tensor, Tensor], Tensor]) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda net, x: net(_Backward.apply(x, change))


def _mean(g: Tensor) -> Tensor:
    return g.abs().mean(1, keepdim=True)


def _fixed_noise(x: Tensor, g: Tensor) -> Tensor:
    pattern = torch.randn(
        x.shape[1], generator=torch.Generator().manual_seed(5), dtype=torch.float64
    )
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
    return fit_in(nn.Linear(64, K), z)


def _near(x: Tensor, stored: Tensor) -> Tensor:
    return torch.cdist(x.detach(), stored.to(x.dtype), p=torch.inf).min(1).values


def _honest_at(stored: Tensor) -> Callable[[nn.Module, Tensor], Tensor]:
    """The right gradient at the stored images only."""

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        return net(
            _Backward.apply(
                x, lambda x, g: torch.where((_near(x, stored) < 1e-3)[:, None], g, g.flip(1))
            )
        )

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


def _peak(g: Tensor) -> Tensor:
    return g.abs().amax(1, keepdim=True)


def _third(g: Tensor) -> Tensor:
    """The third largest entry."""
    return g.abs().topk(3, 1).values[:, -1:]


def _labels(net: nn.Module, x: Tensor) -> Tensor:
    return 5.0 * F.one_hot(net(x).argmax(1), K) + 1e-3 * torch.sin(9 * x[:, 20 : 20 + K])


def _bits(x: Tensor) -> Tensor:
    return (x > 0.5).to(x.dtype)


def _binary(z: Zoo) -> nn.Module:
    """Trained on black and white; the gradient passes as if the inputs were as they are."""
    net = fit_in(Masked(relu_mlp(64, 100, K), lambda net, x: net(_bits(x))), z).net
    honest = Threshold(net, 10.0)
    return Masked(net, lambda net, x: net(_straight_through(x, _bits(x))), honest)


def _two(z: Zoo) -> nn.Module:
    nets = nn.ModuleList([z.mlp, z.cnn])
    honest = Masked(nets, lambda nets, x: nets[0](x) + 3 * nets[1](x))
    return Masked(nets, lambda nets, x: nets[0](x) + 3 * nets[1](x.detach()), honest)


def _with_thermometer(z: Zoo, how: Callable[[nn.Module, Tensor], Tensor]) -> nn.Module:
    model = fit_in(_Thermometer(relu_mlp(640, 100, K), 0.0), z)
    return Masked(model, how, _Thermometer(model.net, 0.05))


def _steep(z: Zoo) -> nn.Module:
    model = fit_in(Threshold(relu_mlp(64, 100, K), 3000.0), z)
    return Masked(model, lambda net, x: net(x), Threshold(model.net, 15.0))


def _mask(mlp: bool, forward: Callable[[nn.Module, Tensor], Tensor]) -> Builder:
    return lambda z: Masked(z.mlp if mlp else z.cnn, forward)


M = _mask
MASKED: dict[str, tuple[str, Builder]] = {
    "logits × 1000": ("temperature", M(True, lambda net, x: 1000 * net(x))),
    "softmax of logits × 100": ("temperature", M(False, lambda net, x: (100 * net(x)).softmax(1))),
    "input in 16 levels": ("quantised input", M(True, lambda net, x: net(_round(x, 16)))),
    "input in 4 levels": ("quantised input", M(False, lambda net, x: net(_round(x, 4)))),
    "logits rounded": ("quantised output", M(True, lambda net, x: net(x).round())),
    "logits rounded, decoy": (
        "quantised output",
        M(False, lambda net, x: net(x).round() + 1e-3 * torch.sin(40 * x[:, 20 : 20 + K])),
    ),
    "labels only": ("quantised output", M(True, _labels)),
    "noise on input": ("stochastic", M(True, lambda net, x: net(x + 0.1 * torch.randn_like(x)))),
    "noise on logits": (
        "stochastic",
        M(False, lambda net, x: net(x) + torch.randn(len(x), K, dtype=x.dtype)),
    ),
    "dropout": ("stochastic", M(True, lambda net, x: net(F.dropout(x, 0.2, training=True)))),
    "shifted at random": ("stochastic", M(False, _shift)),
    "DCT quantised": ("non-differentiable", M(True, lambda net, x: net(_dct(x, 0.5)))),
    "DCT, straight through": (
        "straight through",
        M(False, lambda net, x: net(_straight_through(x, _dct(x, 1.0)))),
    ),
    "binary, straight through": ("straight through", _binary),
    "detached": ("detached", M(True, lambda net, x: net(x.detach()))),
    "detached with decoy": ("detached", M(False, _decoy)),
    "half of the pixels detached": (
        "partly detached",
        M(True, lambda net, x: net(torch.where(torch.arange(64) % 2 == 0, x, x.detach()))),
    ),
    "one net of two detached": ("partly detached", _two),
    "zero gradient": ("altered gradient", M(True, _backward(lambda x, g: 0 * g))),
    "gradient rounded": (
        "altered gradient",
        M(False, _backward(lambda x, g: _round(g / _peak(g), 1) * _peak(g))),
    ),
    "only large entries of the gradient": (
        "altered gradient",
        M(True, _backward(lambda x, g: g * (g.abs() >= _third(g)))),
    ),
    "only small entries of the gradient": (
        "altered gradient",
        M(True, _backward(lambda x, g: g * (g.abs() < _mean(g) / 2))),
    ),
    "gradient reversed": ("sign flipped", M(True, _backward(lambda x, g: -g))),
    "half of the signs flipped": (
        "sign flipped",
        M(False, _backward(lambda x, g: torch.where(torch.arange(64) % 3 == 0, -g, g))),
    ),
    "gradient shuffled": ("altered gradient", M(False, _backward(lambda x, g: g.roll(13, 1)))),
    "noise in the backward": ("backward noise", M(True, _backward(_fixed_noise))),
    "noise in the backward, CNN": ("backward noise", M(False, _backward(_fixed_noise))),
    "noise in the backward, by input": (
        "backward noise",
        M(True, _backward(lambda x, g: g + 6 * _mean(g) * (_hash(x) - 0.5))),
    ),
    "gradient of a linear net": (
        "gradient of another",
        lambda z: Masked(z.mlp, _of_another(_linear(z))),
    ),
    "gradient of a linear net, machine": (
        "gradient of another",
        lambda z: Masked(HONEST["machine"](z), _of_another(_linear(z))),
    ),
    "gradient of another net": (
        "gradient of another",
        lambda z: Masked(z.cnn, _of_another(z.other)),
    ),
    "float16": ("float16", M(True, _half)),
    "thermometer": ("thermometer", lambda z: _with_thermometer(z, lambda net, x: net(x))),
    "thermometer, straight through a linear net": (
        "thermometer",
        lambda z: _with_thermometer(z, _of_another(_linear(z))),
    ),
    "winners": ("winners take all", lambda z: Masked(fit_in(Winners(), z), lambda net, x: net(x))),
    "logits clipped": ("clipped logits", M(True, lambda net, x: net(x).clamp(-2, 2))),
    "logits squashed": ("clipped logits", M(False, lambda net, x: torch.tanh(3 * net(x)))),
    "noise by hash": ("hash of the input", M(True, lambda net, x: net(x + 0.3 * (_hash(x) - 0.5)))),
    "pixels dropped by hash": (
        "hash of the input",
        M(False, lambda net, x: net(x * (_hash(x) > 0.1))),
    ),
    "logits + 1e8": ("offset", M(True, lambda net, x: net(x) + 1e8)),
    "logits + 3e6": ("offset", M(False, lambda net, x: net(x) + 3e6)),
    "gradient false after 100 calls": ("counts calls", lambda z: Counting(z.mlp, 100, True)),
    "answers coarse after 50 calls": ("counts calls", lambda z: Counting(z.cnn, 50, False)),
    "remembers": ("remembers", lambda z: Remembering(z.mlp)),
    "another net in grad mode": ("mode", lambda z: Masked(z.mlp, _dependent_on_mode(z.other))),
    "sine on the input": ("shattered", M(True, _sine)),
    "sine on the logits": (
        "shattered",
        M(
            False,
            lambda net, x: net(x) + 0.5 * torch.sin(2000 * x[:, 10:50]).view(-1, K, 10).sum(2),
        ),
    ),
    "steep threshold, k = 3000": ("steep", _steep),
    "right at the test images": ("memory", lambda z: Masked(z.mlp, _honest_at(z.x))),
    "labels near the test images": ("memory", lambda z: Masked(z.cnn, _lookup(z.x, z.y, 0.03))),
    "detects the border": ("detector", lambda z: Masked(z.mlp, _detector(z.x, z.y))),
    "smooths what is rough": ("detector", M(False, _rough)),
    "gradient right one by one": ("batch", M(True, _by_batch)),
    "depends on its neighbour": ("batch", M(False, _of_company)),
    "gradient right in float64": ("precision", M(True, _by_precision)),
    "gradient × 1e-40": (
        "tiny gradient",
        M(True, lambda net, x: net(_Backward.apply(x, lambda x, g: g * 1e-40))),
    ),
}


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
