"""Adam, the optimiser of every stage."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # as in the original paper on Adam


class Adam:
    """Adam on the gradients found in ``.grad``, with an L2 penalty (weight_decay/2)|W|².

    torch's fused kernel without the bookkeeping of ``torch.optim``, which for a layer of the
    paper's size costs a quarter as much as the update itself. The moments are plain tensors, so a
    checkpoint can keep them as they are. The penalty enters through the gradient, as a part of the
    loss (not decoupled from it).
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, learning_rate: float, weight_decay: float = 0.0
    ) -> None:
        self.parameters = list(parameters)
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.first_moments = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        self.second_moments = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        self.step_counts = [torch.zeros(()) for _ in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter once."""
        for count in self.step_counts:
            count += 1
        torch._fused_adam_(
            [*self.parameters],
            [parameter.grad for parameter in self.parameters if parameter.grad is not None],
            self.first_moments,
            self.second_moments,
            [],
            self.step_counts,
            lr=self.learning_rate,
            beta1=BETA1,
            beta2=BETA2,
            weight_decay=self.weight_decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on besides parameters and gradients."""
        kinds = {
            "first": self.first_moments,
            "second": self.second_moments,
            "count": self.step_counts,
        }
        return {f"{kind}.{i}": t for kind, tensors in kinds.items() for i, t in enumerate(tensors)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take over a state found by :meth:`state`."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
