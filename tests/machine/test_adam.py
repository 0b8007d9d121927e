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


def test_the_rate_falls_along_half_a_cosine_as_torch_has_it():
    g = torch.Generator().manual_seed(0)
    gradients = torch.randn(20, 7, generator=g)
    ours, theirs = (torch.nn.Parameter(torch.ones(7), requires_grad=k == 1) for k in range(2))
    adam = Adam([ours], learning_rate=0.1, cosine=20)
    reference = torch.optim.Adam([theirs], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(reference, 20)
    for gradient in gradients:
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        adam.step()
        reference.step()
        schedule.step()
    torch.testing.assert_close(ours.data, theirs.data, rtol=1e-5, atol=1e-6)


def test_finishing_puts_the_running_mean_in_place():
    g = torch.Generator().manual_seed(1)
    w = torch.nn.Parameter(torch.zeros(5), requires_grad=False)
    adam, mean = Adam([w], learning_rate=0.1, averaging=0.6), torch.zeros(5)
    for done in range(12):
        w.grad = torch.randn(5, generator=g)
        adam.step()
        decay = min(0.6, (1 + done) / (10 + done))
        mean = decay * mean + (1 - decay) * w
    last = w.clone()
    adam.finish()
    torch.testing.assert_close(w.data, mean)
    assert not torch.equal(w, last)
    plain = Adam([w], learning_rate=0.1)
    plain.finish()
    torch.testing.assert_close(w.data, mean)


def test_a_gradient_laid_out_otherwise_is_not_scrambled():
    """As convolutions leave them: the channels last."""
    g = torch.Generator().manual_seed(2)
    start, gradient = torch.randn(2, 3, 4, 5, 5, generator=g)
    ours = torch.nn.Parameter(start.clone(), requires_grad=False)
    theirs = start.clone().requires_grad_()
    adam, reference = Adam([ours], learning_rate=0.1), torch.optim.Adam([theirs], lr=0.1)
    ours.grad = gradient.to(memory_format=torch.channels_last)
    theirs.grad = gradient
    for _ in range(3):
        adam.step()
        reference.step()
    torch.testing.assert_close(ours.data, theirs.data)
