"""Models that are unlike most. Oracle: the linear model that each of them is, by its worst case."""

import pytest
import torch
from torch import nn

from fermibose.attacks import ThreatModel, audit, auto_attack, pgd
from fermibose.attacks.victim import Adapted, victim_of
from fermibose.errors import InputError

WEIGHT = torch.randn(16, 2, generator=torch.Generator().manual_seed(0))
X = torch.rand(30, 16, generator=torch.Generator().manual_seed(1))
CENTRED = torch.tensor([0.0, float((X @ (WEIGHT[:, 0] - WEIGHT[:, 1])).mean())])
THREAT = ThreatModel("linf", 0.05, (-torch.inf, torch.inf))


class Linear(nn.Module):
    """Wx, with all that it computes with as parameters."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(WEIGHT.clone()), nn.Parameter(CENTRED.clone())

    def forward(self, x):
        return x @ self.weight + self.bias


class Plain(nn.Module):
    """Tensors that are no parameters."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = WEIGHT.clone(), CENTRED.clone()

    def forward(self, x):
        return x @ self.weight + self.bias


class Hidden(nn.Module):
    """Tensors that no conversion can reach, in a precision of their own."""

    def __init__(self, dtype):
        super().__init__()
        self.tensors = [WEIGHT.to(dtype), CENTRED.to(dtype)]

    def forward(self, x):
        return x @ self.tensors[0] + self.tensors[1]


class Doubled(Linear):
    def forward(self, x):
        return super().forward(x).double()


class Transposed(nn.Module):
    """Logits that lie in memory the other way round."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(WEIGHT.T.clone())
        self.bias = nn.Parameter(CENTRED[:, None].clone())

    def forward(self, x):
        return (self.weight @ x.T + self.bias).T


class Pairs(Linear):
    def forward(self, x):
        if len(x) < 2:
            raise ValueError("one image is not enough")
        return super().forward(x)


class Picky(Linear):
    def forward(self, x):
        if x.dtype != torch.float32:
            raise TypeError("float32, please")
        return super().forward(x)


class Regularised(Linear):
    """In training mode it drops out."""

    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.5, self.training))


class NotAModule:
    def __call__(self, x):
        return x @ WEIGHT


MODELS = {
    "plain tensors": Plain,
    "hidden float32": lambda: Hidden(torch.float32),
    "hidden float64": lambda: Hidden(torch.float64),
    "double logits": Doubled,
    "transposed": Transposed,
    "no single image": Pairs,
    "float32 only": Picky,
    "training mode": lambda: Regularised().train(),
    "frozen": lambda: Linear().requires_grad_(False),
    "float64": lambda: Linear().double(),
}


def exact():
    """Who withstands: a margin larger than ε|w|₁."""
    w = WEIGHT[:, 0] - WEIGHT[:, 1]
    margin = (X @ w - CENTRED[1]).abs()
    return margin > THREAT.epsilon * w.abs().sum()


LABELS = (X @ WEIGHT + CENTRED).argmax(1)


@pytest.mark.parametrize("name", MODELS)
def test_unusual_models_are_audited_like_others(name):
    model = MODELS[name]()
    mode = model.training
    found = audit(model, X, LABELS, THREAT, square_queries=1)
    assert not [check for check in found.checks if "could not" in check.evidence]
    assert found.established, found.verdict
    assert found.robust_accuracy == pytest.approx(float(exact().double().mean()))
    assert model.training is mode


def test_the_gradient_may_be_an_expanded_view():
    """That of a sum is one number, seen as many."""

    class Sum(nn.Module):
        def forward(self, x):
            total = x.flatten(1).sum(1, keepdim=True) - 8
            return total @ torch.tensor([[1.0, -1.0]], dtype=x.dtype)

    total = X.sum(1) - 8
    y = (total < 0).long()
    expected = float((total.abs() > 16 * THREAT.epsilon).double().mean())
    assert 0 < expected < 1
    for attack in (pgd, auto_attack):
        assert attack(Sum(), X, y, THREAT).robust_accuracy == pytest.approx(expected)
    found = audit(Sum(), X, y, THREAT, square_queries=1)
    assert found.established, found.verdict
    assert found.robust_accuracy == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_coarse_models_are_attacked_and_audited(dtype):
    """What they round away is theirs; nothing fails to run."""
    for model in (Linear().to(dtype), Adapted(Linear(), torch.float32)):
        found = audit(model, X, LABELS, THREAT, square_queries=1)
        assert not [check for check in found.checks if "could not" in check.evidence]
        assert found.robust_accuracy <= found.clean_accuracy


def test_inference_mode_does_not_blind_the_attacks():
    with torch.inference_mode():
        x, y, model = X.clone(), LABELS.clone(), Plain()
        attacked = pgd(model, x, y, THREAT)
        found = audit(model, x, y, THREAT, square_queries=1)
        assert torch.is_inference_mode_enabled()
    assert torch.equal(attacked.robust, exact())
    assert found.established, found.verdict


def test_a_model_that_answers_in_inference_mode_has_no_gradient():
    class Inference(Linear):
        def forward(self, x):
            with torch.inference_mode():
                return super().forward(x)

    found = audit(Inference(), X, LABELS, THREAT, square_queries=1)
    assert not found.established
    assert "could not be run" not in found.verdict


def test_a_model_that_fails_is_refused_in_a_sentence():
    with pytest.raises(InputError, match=r"the model fails on the images, of shape \(30, 16\)"):
        audit(nn.Linear(5, 2), X, LABELS, THREAT)
    with pytest.raises(InputError, match="must be a torch module"):
        audit(NotAModule(), X, LABELS, THREAT)


def test_a_converted_copy_has_all_its_tensors_converted():
    with victim_of(Plain(), X, LABELS, THREAT) as victim:
        double = victim.converted(torch.float64)
        assert double.model.weight.dtype == torch.float64
        assert victim.model.weight.dtype == torch.float32
        expected = X.double() @ WEIGHT.double() + CENTRED.double()
        assert torch.equal(double.model(double.x), expected)
    with victim_of(Hidden(torch.float32), X, LABELS, THREAT) as victim:
        double = victim.converted(torch.float64)
        assert isinstance(double.model, Adapted)
        assert torch.equal(double.model(double.x), (X @ WEIGHT + CENTRED).double())
