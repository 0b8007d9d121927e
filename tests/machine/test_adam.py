"""Adam. Oracle: torch.optim.Adam, plain (not fused)."""

import pytest
import torch

from fermibose.machine.loop import Adam


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_it_moves_like_torch_optim(weight_decay):
    generator = torch.Generator().manual_seed(0)
    ours = [
        torch.nn.Parameter(torch.randn(shape, generator=generator).double(), requires_grad=False)
        for shape in ((4, 3), (5,))
    ]
    theirs = [p.detach().clone().requires_grad_() for p in ours]
    adam = Adam(ours, learning_rate=0.02, weight_decay=weight_decay)
    oracle = torch.optim.Adam(theirs, lr=0.02, weight_decay=weight_decay)
    for _ in range(30):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn(p.shape, generator=generator).double()
            q.grad = p.grad.clone()
        adam.step()
        oracle.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q.detach(), rtol=1e-6, atol=1e-9)


def test_a_restored_state_goes_on_as_before():
    generator = torch.Generator().manual_seed(1)
    gradients = torch.randn(6, 8, generator=generator)
    runs = []
    for stop in (None, 3):
        p = torch.nn.Parameter(torch.ones(8), requires_grad=False)
        adam = Adam([p], learning_rate=0.1)
        for k, gradient in enumerate(gradients):
            if k == stop:
                kept = {name: value.clone() for name, value in adam.state().items()}
                adam = Adam([p], learning_rate=0.1)
                adam.restore(kept)
            p.grad = gradient.clone()
            adam.step()
        runs.append(p)
    assert torch.equal(*runs)
