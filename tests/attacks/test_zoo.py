"""The audit against models of which the truth is known; all of them: benchmarks/audit.py."""

import pytest
import torch
from masks import MASKED, at_most
from zoo import HONEST, THREAT, Zoo

from fermibose.attacks import audit

QUERIES = 100  # of Square


@pytest.fixture(scope="module")
def zoo():
    return Zoo.trained(0)


def audited(model, zoo):
    return audit(model, zoo.x, zoo.y, THREAT, square_queries=QUERIES, show=False)


@pytest.mark.parametrize(
    "name", ["CNN with represent", "MLP, deep", "threshold, k = 20", "logits × 10", "SVM"]
)
def test_honest_models_are_established(zoo, name):
    torch.manual_seed(0)
    found = audited(HONEST[name](zoo), zoo)
    assert found.established, found.verdict


@pytest.mark.usefixtures("by_pgd")
@pytest.mark.parametrize(
    ("name", "caught_by"),
    [
        ("noise in the backward", "gradient is that of the answers"),
        ("gradient of a linear net, machine", "gradient is that of the answers"),
        ("right at the test images", "gradient is that of the answers"),
        ("gradient right in float64", "gradient is that of the answers"),
        ("gradient false after 100 calls", "gradient is that of the answers"),
        ("dropout", "same answers whenever asked"),
        ("another net in grad mode", "same answers whenever asked"),
        ("depends on its neighbour", "same answers whenever asked"),
    ],
)
def test_models_that_are_no_function_are_caught_whoever_attacks(zoo, name, caught_by):
    found, truth = judged(zoo, name)
    assert caught_by in failed(found), found.verdict
    assert found.robust_accuracy > truth - 0.5  # the truth is no idle number


@pytest.mark.parametrize(
    ("name", "caught_by"),
    [
        ("sine on the input", "white box beats finite differences"),
        ("logits + 1e8", "float64 finds no more"),
    ],
)
def test_masked_models_are_not(zoo, name, caught_by):
    found, truth = judged(zoo, name)
    assert caught_by in failed(found), found.verdict
    assert found.robust_accuracy > truth - 0.5  # the truth is no idle number


def judged(zoo, name):
    """The audit of a masked model, and the most that its robust accuracy can be."""
    torch.manual_seed(0)
    model = MASKED[name][1](zoo)
    return audited(model, zoo), at_most(model, zoo)


def failed(found):
    return {check.name for check in found.checks if check.outcome == "FAILED"}


def test_there_are_models_enough():
    kinds = {kind for kind, _ in MASKED.values()}
    assert len(HONEST) >= 12
    assert len(MASKED) >= 30
    assert len(kinds) >= 12
