"""Dense layers: the local layer with its own learning rule, and the plain linear readout."""

import torch
from torch import Tensor, nn

from fermibose.energy import PairEnergy
from fermibose.machine.activations import activation_named
from fermibose.machine.local_rule import PairReport, pair_force


class Dense(nn.Module):
    """The map x → xW + b. Its parameters are frozen: none requires a gradient."""

    weight: nn.Parameter  # W, (inputs, units): the layout for which both GEMMs are fastest
    bias: nn.Parameter | None  # b, (units,)

    def __init__(self, inputs: int, units: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, units), requires_grad=False)
        self.register_parameter(
            "bias", nn.Parameter(torch.zeros(units), requires_grad=False) if bias else None
        )

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw W ~ N(0, 1/fan_in) and set the bias to 0."""
        self.weight.normal_(0.0, self.weight.shape[0] ** -0.5, generator=generator)
        if self.bias is not None:
            self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """xW + b, shape (B, units)."""
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)


class LocalDense(Dense):
    r"""A layer h = φ(xW + b) that learns from the pairs of its own output.

    It minimises, for one batch,

    .. math:: L = \langle E(D^2)\rangle_{pairs} + \frac{\lambda}{2N}|W|^2 + \mu \langle|h|\rangle

    with the pair energy E, D² and ⟨|h|⟩ means over the N units, weight decay λ (applied by the
    optimiser) and activity penalty μ. ``forward`` is differentiable in x; learning needs no
    automatic differentiation and nothing from other layers.
    """

    def __init__(
        self, inputs: int, units: int, *, activation: str = "half_tanh", bias: bool = False
    ) -> None:
        super().__init__(inputs, units, bias=bias)
        self.activation = activation_named(activation)

    def forward(self, x: Tensor) -> Tensor:
        """h = φ(xW + b), shape (B, units)."""
        return self.activation.apply(super().forward(x))

    @torch.no_grad()
    def learn_from(
        self, x: Tensor, labels: Tensor, energy: PairEnergy, *, activity: float = 0.0
    ) -> PairReport:
        """Write the gradient of L (without weight decay) for the batch x into ``.grad``.

        x: (B, inputs). labels: (B,) integers that say which pairs are bosons.
        """
        h = self.activation.apply_(super().forward(x))
        force, report = pair_force(h, labels, energy)
        if activity:
            force.add_(h.sign(), alpha=activity / h.numel())
        delta = self.activation.pull_back_(force, h)
        if self.weight.grad is None:
            self.weight.grad = torch.empty_like(self.weight)
        torch.mm(x.T, delta, out=self.weight.grad)
        if self.bias is not None:
            self.bias.grad = delta.sum(0)
        return report
