"""The gradient loop. Oracles: foolbox, autograd by hand, closed forms of linear models, a grid."""

import copy
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fermibose.attacks import ThreatModel, draw_examples, fgsm, one_step_l2, pgd
from fermibose.attacks.gradient import LONGEST_STEP, LOSSES
from fermibose.errors import InputError
from fermibose.threat import LARGEST, ball_around

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # foolbox imports from places SciPy no longer likes
    import foolbox


def foolbox_run(attack, net, x, y, epsilon):
    """Foolbox on the images that are classified correctly: its examples and who withstands."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # foolbox's own, about evaluation mode
        model = foolbox.PyTorchModel(net.eval(), bounds=(0, 1))
        _, clipped, success = attack(model, x, y, epsilons=epsilon)
    return clipped, ~success


def test_fgsm_finds_the_examples_foolbox_finds(net, images):
    x, y = images
    found = fgsm(net, x, y, ThreatModel("linf", 0.1))
    theirs, withstand = foolbox_run(foolbox.attacks.FGSM(), net, x, y, 0.1)
    assert 0.05 < found.robust_accuracy < found.clean_accuracy - 0.1  # a case that can tell
    assert torch.equal(found.robust, found.correct & withstand)
    torch.testing.assert_close(found.examples[found.correct], theirs[found.correct])


@pytest.mark.parametrize(
    ("norm", "epsilon", "attack"),
    [
        ("linf", 0.1, foolbox.attacks.LinfPGD),
        ("l2", 0.8, foolbox.attacks.L2PGD),
    ],
)
def test_pgd_is_as_strong_as_foolbox(net, digits, norm, epsilon, attack):
    """All test digits and several restarts of both, so that one point means something."""
    x, y = torch.tensor(digits.x_test), torch.tensor(digits.y_test)
    ours = pgd(net, x, y, ThreatModel(norm, epsilon), restarts=3, losses=("cross_entropy",))
    theirs = ours.correct.clone()
    torch.manual_seed(0)
    for _ in range(3):
        theirs &= foolbox_run(attack(steps=40, rel_stepsize=2.5 / 40), net, x, y, epsilon)[1]
    assert 0.05 < ours.robust_accuracy < ours.clean_accuracy - 0.1
    assert abs(ours.robust_accuracy - theirs.double().mean()) <= 0.01


@pytest.mark.parametrize("loss", ["cross_entropy", "mean_squared", "margin"])
def test_one_step_l2_is_the_printed_formula(net, images, loss):
    x, y = images
    found = one_step_l2(net, x, y, ThreatModel("l2", 0.7), loss=loss)
    moved = x.clone().requires_grad_()
    logits = net(moved)
    if loss == "cross_entropy":
        cost = -logits.log_softmax(1)[range(len(y)), y]
    elif loss == "mean_squared":
        targets = 2 * nn.functional.one_hot(y, 10) - 1
        cost = 0.5 * (targets - torch.tanh(logits)).pow(2).sum(1)
    else:
        others = logits.masked_fill(nn.functional.one_hot(y, 10).bool(), -1e9)
        cost = others.max(1).values - logits[range(len(y)), y]
    (g,) = torch.autograd.grad(cost.sum(), moved)
    expected = (x + 0.7 * g / g.pow(2).sum(1, keepdim=True).sqrt()).clamp(0, 1)
    torch.testing.assert_close(found.examples[found.correct], expected[found.correct])
    wrong = net(expected).argmax(1) != y
    assert torch.equal(found.robust, found.correct & ~wrong)


def gaussian_mixture(n, dimension, seed):
    """The paper's two clouds: x ~ N(y m/N, Δ²/N) with m = 1, Δ = 0.5, labels 1 (+) and 0 (−)."""
    rng = np.random.default_rng(seed)
    sign = rng.choice([-1, 1], n)
    x = sign[:, None] / dimension + 0.5 * rng.normal(size=(n, dimension)) / dimension**0.5
    return x, (sign + 1) // 2


@pytest.mark.parametrize("loss", ["mean_squared", "cross_entropy"])
def test_the_one_step_l2_attack_gives_the_accuracy_of_the_theory(linear, loss):
    """ACC_adv(ε) = Φ((κ − ε)/Δ), κ = m|M|/√q, for a perceptron w on the Gaussian mixture."""
    from scipy.stats import norm

    dimension = 400
    x, y = gaussian_mixture(20_000, dimension, seed=1)
    w = 1 + np.random.default_rng(2).normal(size=dimension)
    kappa = abs(w.mean()) / (w @ w / dimension) ** 0.5
    model = linear(np.stack([-w, w]))
    unbounded = (-np.inf, np.inf)
    for epsilon in (0.0, 0.3, 0.8):
        threat = ThreatModel("l2", epsilon / dimension**0.5, unbounded)
        found = one_step_l2(model, x, y, threat, loss=loss).robust_accuracy
        expected = norm.cdf((kappa - epsilon) / 0.5)
        assert found == pytest.approx(expected, abs=4 * (0.25 / 20_000) ** 0.5)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_on_a_linear_model_pgd_finds_exactly_who_can_be_fooled(linear, norm):
    """Two classes, no bounds in the way: fooled iff margin < ε‖w₁ − w₀‖ in the dual norm."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 12)), rng.integers(0, 2, 300)
    w = rng.normal(size=(2, 12))
    gap = (w[1] - w[0]) * np.where(y == 1, 1, -1)[:, None]
    margin = (gap * x).sum(1)
    dual = np.linalg.norm(w[1] - w[0], 1 if norm == "linf" else 2)
    threat = ThreatModel(norm, 0.2, (-np.inf, np.inf))
    for attack in (pgd, fgsm if norm == "linf" else one_step_l2):
        found = attack(linear(w), x, y, threat)
        np.testing.assert_array_equal(found.robust.numpy(), margin - 0.2 * dual > 0)
    assert 0.1 < found.robust_accuracy < found.clean_accuracy - 0.05


class Ripple(nn.Module):
    """Two inputs, three classes, wavy boundaries: a landscape with many local maxima."""

    def forward(self, x):
        a, b = x[:, 0], x[:, 1]
        return torch.stack([torch.sin(7 * a) + b, torch.cos(5 * b) + a, 1.2 * a * b], 1)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_pgd_finds_in_two_dimensions_what_a_fine_grid_finds(norm):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(150, 2, generator=generator, dtype=torch.float64)
    model, epsilon = Ripple(), 0.15
    y = model(x).argmax(1)
    found = pgd(model, x, y, ThreatModel(norm, epsilon), restarts=5)
    steps = torch.linspace(-epsilon, epsilon, 121, dtype=torch.float64)
    offsets = torch.cartesian_prod(steps, steps)
    order = torch.inf if norm == "linf" else 2
    offsets = offsets[offsets.norm(order, dim=1) <= epsilon]
    grid = x[:, None] + offsets
    inside = ((grid >= 0) & (grid <= 1)).all(2)
    wrong = (model(grid.reshape(-1, 2)).argmax(1).view(len(x), -1) != y[:, None]) & inside
    by_grid = ~wrong.any(1)
    assert 0.2 < by_grid.double().mean() < 0.8
    assert not (found.robust & ~by_grid).any()  # nothing the grid fools is missed
    assert (found.robust != by_grid).sum() <= 2  # and little is found between the grid's points


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_examples_stay_in_ball_and_bounds_and_are_what_the_flags_say(net, images, norm, dtype):
    x, y = images
    epsilon = 0.12 if norm == "linf" else 0.9
    found = pgd(net, x, y, ThreatModel(norm, epsilon), steps=10, restarts=2, dtype=dtype)
    assert found.examples.dtype == dtype
    assert found.examples.min() >= 0
    assert found.examples.max() <= 1
    change = (found.examples - x).double()
    length = change.norm(torch.inf if norm == "linf" else 2, dim=1)
    assert length.max() <= epsilon * (1 + 1e-5)
    assert length[found.robust].min() > epsilon * 0.5  # survivors were attacked in earnest
    judge = net.double() if dtype == torch.float64 else net
    try:
        wrong = judge(found.examples).argmax(1) != y
    finally:
        net.float()
    assert torch.equal(wrong, ~found.robust)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_longest_step_is_one_to_the_border(linear, norm):
    """At any ε that is allowed; longer ones, which would overflow to no number, are refused."""
    rng = np.random.default_rng(1)
    x, w = rng.random((30, 5)), rng.normal(size=(2, 5))
    y = (x @ w.T).argmax(1)
    for epsilon in (0.2, LARGEST):
        threat = ThreatModel(norm, epsilon, (-np.inf, np.inf))
        climbs = {"losses": ("cross_entropy", "margin"), "random_start": False}
        usual, longest = (
            pgd(linear(w), x, y, threat, step_size=size, dtype=torch.float32, **climbs)
            for size in (1.0, LONGEST_STEP)
        )
        assert torch.equal(longest.robust, usual.robust)
        torch.testing.assert_close(longest.examples, usual.examples)
    for size in (np.inf, np.nan, 1.001 * LONGEST_STEP):
        with pytest.raises(InputError, match=r"step_size .* must be a finite number > 0 and <="):
            pgd(linear(w), x, y, threat, step_size=size)


def test_misclassified_images_are_never_attacked(linear):
    """They keep their place, count as wrong, and the model is not asked about them again."""
    rng = np.random.default_rng(3)
    x, w = rng.random((40, 6)), rng.normal(size=(3, 6))
    y = (x @ w.T).argmax(1)
    y[::2] = (y[::2] + 1) % 3  # every other one is misclassified from the start
    model = linear(w)
    found = pgd(model, x, y, ThreatModel("linf", 1e-9), steps=5, losses=("margin",))
    assert not found.correct[::2].any()
    assert found.clean_accuracy == found.robust_accuracy == 0.5
    assert torch.equal(found.examples[::2], torch.tensor(x[::2]))
    assert (found.examples[1::2] != torch.tensor(x[1::2])).any(1).all()
    assert model.seen == 40 + 6 * 20  # once all, then five steps and a last look at the others


def test_more_restarts_or_losses_never_help_the_defender(net, images):
    x, y = images
    threat = ThreatModel("linf", 0.08)
    few = pgd(net, x, y, threat, steps=3, losses=("cross_entropy",))
    many = pgd(net, x, y, threat, steps=3, losses=("cross_entropy",), restarts=5)
    both = pgd(net, x, y, threat, steps=3, losses=("cross_entropy", "margin"), restarts=5)
    assert not (many.robust & ~few.robust).any()
    assert not (both.robust & ~many.robust).any()
    assert both.robust_accuracy < few.robust_accuracy  # and here they find more


def test_the_worst_case_is_over_every_point_on_the_way():
    """A net that is wrong only in a thin shell half-way: the last point alone would miss it."""

    class Shell(nn.Module):
        def forward(self, x):
            z = x[:, :1]
            bump = 5 * torch.exp(-(((z - 0.5) / 0.02) ** 2)) + z
            return torch.cat([torch.ones_like(z) * 3, bump], 1)

    x = torch.full((1, 2), 0.25, dtype=torch.float64)
    threat = ThreatModel("linf", 0.5)
    options = {"random_start": False, "losses": ("margin",), "step_size": 0.1}
    on_the_way = pgd(Shell(), x, [0], threat, steps=10, **options)
    assert on_the_way.robust_accuracy == 0
    assert on_the_way.examples[0, 0] == pytest.approx(0.5, abs=0.03)


def test_batches_precision_and_seeds(net, images):
    x, y = images
    threat = ThreatModel("linf", 0.1)
    whole, parts = fgsm(net, x, y, threat), fgsm(net, x, y, threat, batch_size=7)
    torch.testing.assert_close(whole.examples, parts.examples)
    assert torch.equal(whole.robust, parts.robust)
    one, same, other = (pgd(net, x, y, threat, steps=5, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.examples, same.examples)
    assert not torch.equal(one.examples, other.examples)
    precise = pgd(net, x, y, threat, steps=5, seed=1, dtype=torch.float64)
    assert abs(precise.robust_accuracy - one.robust_accuracy) <= 0.02
    assert next(net.parameters()).dtype == torch.float32  # only a copy was converted


def test_nothing_global_is_touched(images):
    x, y = images
    model = nn.Sequential(nn.Linear(64, 20), nn.Dropout(0.5), nn.Linear(20, 10))
    frozen, trained = model[1].eval(), model.train()
    frozen.eval()
    before = torch.get_rng_state()
    pgd(model, x, y, ThreatModel(), steps=2)
    assert torch.equal(before, torch.get_rng_state())
    assert trained.training
    assert not frozen.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_blocked_gradient_is_flagged(net, images):
    class Blocked(nn.Module):
        def forward(self, x):
            return net(x.detach())

    x, y = images
    found = fgsm(Blocked(), x, y, ThreatModel())
    assert found.robust_accuracy == found.clean_accuracy
    assert f"exactly zero at {int(found.correct.sum())} starting points" in found.flags[0]
    assert not fgsm(net, x, y, ThreatModel()).flags


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_gradients_that_are_no_numbers_do_not_make_examples(norm):
    """√x has an infinite slope at 0, and 0·∞ is NaN; the class never changes, whatever is tried."""

    class Rooted(nn.Module):
        def forward(self, x):
            steep = x.sqrt().sum(1) + (x * 0).sqrt().sum(1)
            return torch.stack([steep - 100, torch.zeros_like(steep)], 1)

    x = torch.zeros(5, 3, dtype=torch.float64)
    x[:, 0] = 0.5
    found = pgd(Rooted(), x, torch.ones(5, dtype=torch.long), ThreatModel(norm, 0.1), steps=5)
    assert found.robust_accuracy == 1
    assert torch.isfinite(found.examples).all()


def test_the_result_carries_its_parameters(net, images):
    x, y = images
    threat = ThreatModel("l2", 0.5)
    record = pgd(net, x, y, threat, steps=3, restarts=2, seed=9).as_dict()
    assert record["threat"] == {"norm": "l2", "epsilon": 0.5, "bounds": [0.0, 1.0]}
    assert record["parameters"]["steps"] == 3
    assert record["parameters"]["restarts"] == 2
    assert record["parameters"]["seed"] == 9
    assert record["parameters"]["dtype"] == "torch.float32"
    assert record["images"] == len(y)
    assert set(record["versions"]) == {"fermibose", "torch", "python"}
    p = record["robust_accuracy"]
    assert record["standard_error"] == pytest.approx((p * (1 - p) / len(y)) ** 0.5)


@given(st.integers(0, 2**31), st.sampled_from(["linf", "l2"]), st.floats(0.01, 3))
def test_balls(seed, norm, epsilon):
    """Random points and projections lie inside; projecting twice changes nothing."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.rand(4, 3, 2, generator=generator, dtype=torch.float64)
    ball = ball_around(centre, ThreatModel(norm, epsilon))
    order = torch.inf if norm == "linf" else 2
    far = centre + 5 * torch.randn(4, 3, 2, generator=generator, dtype=torch.float64)
    for point in (ball.random(generator), ball.project(far.clone())):
        length = (point - centre).flatten(1).norm(order, dim=1)
        assert length.max() <= epsilon * (1 + 1e-12)
        assert point.min() >= 0
        assert point.max() <= 1
        torch.testing.assert_close(ball.project(point.clone()), point)
    direction = ball.steepest(far)
    torch.testing.assert_close(
        direction.flatten(1).norm(order, dim=1), torch.ones(4, dtype=torch.float64)
    )
    # Steepest: no other direction of unit norm gains as much.
    gain = (direction * far).flatten(1).sum(1)
    other = ball.steepest(torch.randn(4, 3, 2, generator=generator, dtype=torch.float64))
    assert (gain >= (other * far).flatten(1).sum(1) - 1e-12).all()


def test_tiny_gradients_keep_their_direction():
    gradient = torch.tensor([[3e-30, 4e-30], [0.0, 0.0]])
    ball = ball_around(torch.zeros(2, 2), ThreatModel("l2", 1.0))
    torch.testing.assert_close(ball.steepest(gradient), torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


@given(st.integers(0, 2**31))
def test_losses_against_plain_loops(seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(5, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (5,), generator=generator)
    for name, loss in LOSSES.items():
        values = loss(logits, y)
        for row in range(5):
            z, k = logits[row].numpy(), int(y[row])
            if name == "cross_entropy":
                expected = np.log(np.exp(z).sum()) - z[k]
            elif name == "margin":
                expected = max(z[j] - z[k] for j in range(4) if j != k)
            else:
                expected = sum(((1 if j == k else -1) - np.tanh(z[j])) ** 2 / 2 for j in range(4))
            assert float(values[row]) == pytest.approx(expected)


def test_seeds_may_be_numbers_of_numpy(net, images):
    """The same bits as from Python's; what is no seed is refused in one line."""
    threat = ThreatModel("linf", 0.05)
    one, two = (pgd(net, *images, threat, steps=3, seed=s, show=False) for s in (3, np.int64(3)))
    torch.testing.assert_close(one.examples, two.examples, rtol=0, atol=0)
    with pytest.raises(InputError, match="seed must be a whole number"):
        pgd(net, *images, threat, seed=-1, show=False)


def test_float64_is_that_of_the_weights_too(images):
    seen = set()

    class Noted(nn.Linear):
        def forward(self, x):
            seen.add(self.weight.dtype)
            return super().forward(x)

    x, y = images
    model = Noted(x.shape[1], 10)
    pgd(model, x, y, ThreatModel("linf", 0.05), steps=2, dtype=torch.float64, show=False)
    assert seen == {torch.float64}
    assert model.weight.dtype == torch.float32  # the user's stays as it is


def test_examples_in_double_precision_are_drawn_and_the_model_is_left_in_training():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 8), nn.Dropout(0.9), nn.Linear(8, 3)).train()
    x = torch.rand(9, 16, generator=torch.Generator().manual_seed(0))
    y = copy.deepcopy(model).eval()(x).argmax(1)
    found = pgd(model, x, y, ThreatModel("linf", 1e-5), dtype=torch.float64, show=False)
    figure = draw_examples(model, x, y, found, None, image_shape=(4, 4), classes="abc")
    told = {axes.get_title() for axes in figure.axes}
    assert told == {"abc"[label] for label in y.tolist()}  # no drop-out while it answers
    assert model.training
