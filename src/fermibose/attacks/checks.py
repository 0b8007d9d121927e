"""The checks of an audit: each looks for one way in which a robust accuracy can deceive."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from fermibose.attacks.adversary import Adversary
from fermibose.attacks.binarisation import binarisation_test
from fermibose.attacks.gradient import input_gradient, pgd_ascent, vanishing
from fermibose.attacks.losses import cross_entropy, margin
from fermibose.attacks.methods import fgsm, one_step_l2, pgd
from fermibose.attacks.probe import Check, Probe, Scaled, largest_rise, percent
from fermibose.attacks.strengths import accuracy_curve
from fermibose.attacks.victim import misclassified, victim_of
from fermibose.machine import FermiBoseNet, Recipe, train_mlp

EPSILON_RATIOS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
STEPS = (5, 10, 20, 40, 80)
RESTARTS = 5


def chance(probe: Probe) -> Check:
    """Without a bound on the change every classifier can be led to any answer."""
    low, high = probe.threat.bounds
    width = high - low if math.isfinite(high - low) else 10 * float(probe.x.max() - probe.x.min())
    features = probe.x[0].numel()
    epsilon = width if probe.threat.norm == "linf" else width * features**0.5
    # From the image itself: a random start in so large a ball would need no gradient at all.
    found = probe.accuracy(threat=replace(probe.threat, epsilon=epsilon), random_start=False)
    limit = 1 / probe.classes
    return Check(
        "chance at large ε",
        found <= limit,
        f"{percent(found)} left at ε = {epsilon:g}, chance is {percent(limit)}",
        {"epsilon": epsilon, "accuracy": found, "chance": limit},
    )


def monotone_in_epsilon(probe: Probe) -> Check:
    """A larger ball contains the smaller ones."""
    epsilons = [ratio * probe.threat.epsilon for ratio in EPSILON_RATIOS]
    curve = accuracy_curve(
        probe.model, probe.x, probe.y, probe.threat,
        epsilons=epsilons, attack="pgd", loss="cross_entropy", seed=probe.seed, show=False,
    )  # fmt: skip
    accuracy = curve.accuracy.tolist()
    rise = largest_rise(accuracy)
    return Check(
        "monotone in ε",
        rise <= probe.tolerance,
        f"largest rise {percent(rise)} from one of {len(epsilons)} strengths to the next",
        {"epsilons": epsilons, "accuracy": accuracy},
    )


def monotone_in_steps(probe: Probe) -> Check:
    """More steps find more, until there is no more to find."""
    accuracy = [probe.accuracy(steps=steps) for steps in STEPS]
    rise, gain = largest_rise(accuracy), accuracy[-2] - accuracy[-1]
    return Check(
        "converged in steps",
        rise <= probe.tolerance and gain <= probe.tolerance,
        f"largest rise {percent(rise)}, last doubling to {STEPS[-1]} steps finds {percent(gain)}",
        {"steps": list(STEPS), "accuracy": accuracy},
    )


def iterated_beats_one_step(probe: Probe) -> Check:
    """Many small steps must fool whom one large step fools."""
    attack = fgsm if probe.threat.norm == "linf" else one_step_l2
    single = attack(probe.model, probe.x, probe.y, probe.threat, show=False)
    many = pgd(
        probe.model, probe.x, probe.y, probe.threat,
        losses=("cross_entropy",), seed=probe.seed, show=False,
    )  # fmt: skip
    missed = float((many.robust & ~single.robust).double().mean())
    return Check(
        "PGD beats one step",
        missed <= probe.tolerance,
        f"PGD leaves {percent(many.robust_accuracy)}, one step {percent(single.robust_accuracy)}; "
        f"PGD misses {percent(missed)} that one step fools",
        {"pgd": many.robust_accuracy, "one_step": single.robust_accuracy, "missed": missed},
    )


def transfer(probe: Probe, rival: nn.Module | None) -> Check:
    """Examples made for another net must not fool whom the white-box attack could not."""
    name = "white box beats transfer"
    if rival is None and len(probe.y.unique()) < 2:
        return Check(name, None, "the images are of one class: no rival can learn from them")
    if rival is None:
        recipe = Recipe(hidden=(200,), epochs=30, seed=probe.seed)
        inputs = probe.x.flatten(1).cpu().float().numpy()
        rival = train_mlp(inputs, probe.y.cpu().numpy(), recipe, show=False).net.to(probe.x.device)
    generator = torch.Generator(probe.x.device).manual_seed(probe.seed)
    with victim_of(rival, probe.x, probe.y, probe.threat, dtype=torch.float32) as victim:
        foreign = Adversary(probe.threat, steps=40)(victim.model, victim.x, victim.y, generator)
    with torch.no_grad():
        fooled = misclassified(probe.model(foreign.to(probe.x.dtype)), probe.y)
    missed = float((fooled & probe.withstood).double().mean())
    total = float(fooled.double().mean())
    return Check(
        name,
        missed <= probe.tolerance,
        f"examples of an independent net fool {percent(total)}; "
        f"{percent(missed)} withstood the white box",
        {"fooled": total, "missed": missed},
    )


def rescaled(probe: Probe) -> Check:
    """Multiplying the logits by a constant changes no decision, so it must not help an attack."""
    with torch.no_grad():
        typical = float(margin(probe.model(probe.x), probe.y).abs().median())
    factors = [1 / typical if typical > 0 else 1.0, 0.1]
    plain = probe.accuracy()
    found = [probe.accuracy(model=Scaled(probe.model, factor)) for factor in factors]
    gain = plain - min(found)
    return Check(
        "rescaling finds no more",
        gain <= probe.tolerance,
        f"PGD leaves {percent(plain)}, "
        f"with logits × {factors[0]:.3g} and × 0.1 {percent(min(found))}",
        {"plain": plain, "factors": factors, "accuracy": found},
    )


def precision(probe: Probe) -> Check:
    """Float64 must not find what rounding hides in float32."""
    # From the image itself: random starts are not the same in two precisions.
    single, double = (
        probe.accuracy(dtype=dtype, random_start=False) for dtype in (torch.float32, torch.float64)
    )
    return Check(
        "float64 finds no more",
        abs(single - double) <= probe.tolerance,
        f"PGD leaves {percent(single)} in float32, {percent(double)} in float64",
        {"float32": single, "float64": double},
    )


def restarts(probe: Probe) -> Check:
    """A last random start must find nothing that the ones before it missed."""
    fewer, all_of_them = (probe.accuracy(restarts=n) for n in (RESTARTS - 1, RESTARTS))
    gain = fewer - all_of_them
    return Check(
        "converged in restarts",
        gain <= probe.tolerance,
        f"the last of {RESTARTS} random starts finds {percent(gain)} more",
        {"before": fewer, "after": all_of_them},
    )


def gradients(probe: Probe) -> Check:
    """Where the gradient is exactly zero a gradient attack cannot even start."""
    gradient, _ = input_gradient(probe.model, probe.x, probe.y, cross_entropy)
    zero = float(vanishing(gradient).double().mean())
    numbers = {"zero_gradients": zero}
    evidence = f"{percent(zero)} of the images have an input gradient of exactly zero"
    if isinstance(probe.model, FermiBoseNet) and probe.model.local_layers:
        with torch.no_grad():
            h = probe.model.represent(probe.x)
        slope = probe.model.local_layers[-1].activation.pull_back_(torch.ones_like(h), h)
        numbers["saturated_units"] = float((slope < 1e-3).double().mean())
        evidence += f"; {percent(numbers['saturated_units'])} of the units are saturated"
    return Check("gradients do not vanish", zero <= probe.tolerance, evidence, numbers)


def binarised(probe: Probe, features: Callable[[Tensor], Tensor] | None, images: int) -> Check:
    """The attack must solve problems that have a solution by construction."""
    own = getattr(probe.model, "represent", None)
    chosen = features or own or probe.model
    with torch.no_grad():
        width = chosen(probe.x[:1]).shape[1]
    found = binarisation_test(
        chosen, probe.x[:images], probe.threat,
        inner=min(100, max(2, width - 1)), seed=probe.seed,
        ascent=pgd_ascent(random_start=False),
    )  # fmt: skip
    passed: bool | None = found.problems > 0 and found.success >= 0.95
    if passed and found.by_chance > found.problems / 2:
        passed = None  # so easy that the attack has nothing to prove
    return Check(
        "binarisation test",
        passed,
        f"the attack solves {found.solved} of {found.problems} problems that have a solution, "
        f"random points {found.by_chance}",
        {"problems": found.problems, "solved": found.solved, "by_chance": found.by_chance},
    )


def black_box(before: Tensor, after: Tensor, tolerance: float) -> Check:
    """Square sees no gradient: it must not fool whom the white-box attacks could not."""
    missed = float((before & ~after).double().mean())
    return Check(
        "white box beats Square",
        missed <= tolerance,
        f"Square fools {percent(missed)} that withstood the white box",
        {"missed": missed},
    )


def no_flags(flags: Sequence[str]) -> Check:
    """What the attacks, and above all the reference implementation of AutoAttack, warn about."""
    evidence = "; ".join(flags) if flags else "PGD and AutoAttack have no warnings"
    return Check("attacks raise no flag", not flags, evidence, {"flags": list(flags)})
