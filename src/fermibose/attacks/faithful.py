"""Is a model the function that the attacks believe it is, and its gradient that of the function?

Two questions that need no idea of how a model might hide: the same input must have the same answer,
whenever, however and in whatever company it is asked about; and along any path in the ball the
answers must change by what their gradient says.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fermibose.attacks.gradient import Ascent, climb, margin
from fermibose.attacks.masking import Check, Probe, percent
from fermibose.attacks.victim import Adapted, Victim, seeded
from fermibose.compute import fraction, widest
from fermibose.threat import ThreatModel, ball_around

# How much is asked, and what counts as different: benchmarks/audit.py judges it on models of known
# truth.
SAME = 1e-3  # of the typical size of a logit: answers closer than this are the same
SINGLY = 10  # points that are asked about one at a time
REPEATS = 8  # times that all are asked about in the same way
PATHS = 40  # images from which paths start
SEGMENTS = (16, 64, 256)  # of a path: as many as it takes
# Share of the change along a path that its gradient may leave unexplained: between the medians of
# honest nets, at most 0.01, and of false gradients, from 0.52 on, in the table of
# docs/robustness.md.
UNEXPLAINED = 0.15


@dataclass(frozen=True, eq=False)
class Witness:
    """What a model answered before anything attacked it."""

    points: Tensor  # (m, …): images, and a random point in the ball of each
    answers: Tensor  # (m, classes)

    @classmethod
    def of(cls, victim: Victim, threat: ThreatModel, seed: int) -> "Witness":
        """Ask about all images and about as many random points."""
        generator = seeded(seed, victim.x.device)
        points = torch.cat([victim.x, ball_around(victim.x, threat).random(generator)])
        return cls(points, _ask(victim.model, points))

    def asks(self, other: Callable[[Tensor], Tensor]) -> Tensor:
        """What something else says of the same points."""
        return _ask(other, self.points)


@torch.no_grad()
def _ask(model: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    return model(points).clone()


def same_answers(probe: Probe, witness: Witness) -> Check:
    """A function answers the same whenever, however and beside whatever it is asked.

    A model that is none is random, counts, remembers or compares: what one attack saw of it is not
    what another will see.
    """
    points, first = witness.points, witness.answers.to(widest(witness.answers.device))
    size = float((first - first.mean(1, keepdim=True)).abs().mean())
    rounding = 64 * torch.finfo(points.dtype).eps * float(first.abs().max())
    differ: dict[str, float] = {}
    for way, rows, answers in _ways_to_ask(probe, points):
        apart = (answers.to(first.dtype) - first[rows]).abs().amax(1)
        share = fraction(~(apart <= SAME * size + rounding))
        differ[way] = max(share, differ.get(way, 0.0))
    worst = max(differ, key=lambda way: differ[way])
    found = f"{percent(differ[worst])} of the answers differ when asked {worst}"
    return Check(
        "same answers whenever asked",
        differ[worst] == 0,
        found if differ[worst] else f"the same answers in {len(differ)} ways of asking",
        {"differ": differ},
    )


def _ways_to_ask(probe: Probe, points: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """A way, the numbers of the points, and their answers."""
    model, device = probe.victim.model, points.device
    rows = torch.arange(len(points), device=device)
    generator = seeded(probe.seed, device)
    for _ in range(REPEATS):
        yield "again, after the attacks", rows, _ask(model, points)
    shuffled = torch.randperm(len(points), generator=generator, device=device)
    yield "in another order", shuffled, _ask(model, points[shuffled])
    for part in shuffled.split(7):
        yield "in small groups", part, _ask(model, points[part])
    for row in shuffled[:SINGLY].split(1):
        yield "one at a time", row, _ask(model, points[row])
    with torch.enable_grad():
        logits = model(points.clone().requires_grad_())
    yield "for a gradient", rows, logits.detach()


def true_gradient(probe: Probe) -> Check:
    r"""Along a path from x to x' in the ball, f(x') − f(x) = ∫ ∇f · dx, piece by piece.

    f is a combination of the logits: on the way of the attack, the margin over the class it aims
    for; on the way to a random point of the border, a random one. A path is cut into pieces, each
    short enough for the mean of the two gradients at its ends; its error is √Σ(Δf − ∇f·Δx)² over
    √ΣΔf², or over √Σ(∇f·Δx)² if that is larger. Gradients are those that the attacks get, in
    float32 and the model's own precision; the answers are in float64. Kinks and steep places cost
    finer pieces; jumps, and gradients of something else, no refinement mends.
    """
    name = "gradient is that of the answers"
    count, device = len(probe.withstood), probe.victim.x.device
    rows = torch.linspace(0, count - 1, min(PATHS, count), device=device)
    victim = probe.victim.part(rows.round().long())
    double = victim.converted(torch.float64)
    answers = victim if isinstance(double.model, Adapted) else double
    errors: dict[str, list[float]] = {}
    for asked in dict.fromkeys([victim, victim.converted(torch.float32)]):
        generator = seeded(probe.seed, victim.x.device)
        for path in _paths(asked, probe.threat, generator):
            found = _unexplained(path, asked.model, answers)
            errors.setdefault(path.kind, []).extend(found[found.isfinite()].tolist())
    if not any(errors.values()):
        return Check(name, None, "neither answers nor gradients change anywhere in the balls")
    false = {
        kind: sum(error > UNEXPLAINED for error in found) / len(found)
        for kind, found in errors.items()
        if found
    }
    worst = max(false, key=lambda kind: false[kind])
    median = {kind: sorted(found)[len(found) // 2] for kind, found in errors.items() if found}
    return Check(
        name,
        false[worst] <= probe.tolerance,
        f"on {percent(false[worst])} of the paths {worst} the answers change by more than "
        f"{UNEXPLAINED:g} of what the gradient says (median {median[worst]:.2g})",
        {"false": false, "median": median},
    )


@dataclass(frozen=True, eq=False)
class _Path:
    """Straight ways, from one point of each ball to another, with what to look at on them."""

    kind: str
    start: Tensor  # (B, …)
    end: Tensor  # (B, …)
    weight: Tensor  # (B, classes): f = weight · logits

    def keep(self, rows: Tensor) -> "_Path":
        return _Path(self.kind, self.start[rows], self.end[rows], self.weight[rows])

    def points(self, segments: int) -> Tensor:
        """(B·(segments + 1), …), those of one path after another."""
        shape = (1, -1, *[1] * (self.start.ndim - 1))
        share = torch.linspace(0, 1, segments + 1, device=self.start.device)
        share = share.to(self.start.dtype).view(shape)
        return torch.lerp(self.start[:, None], self.end[:, None], share).flatten(0, 1)


def _paths(victim: Victim, threat: ThreatModel, generator: torch.Generator) -> Iterator[_Path]:
    x, y = victim.x, victim.y
    ball = ball_around(x, threat)
    ascent = Ascent(("margin",), steps=10, step_size=0.25, stop_when_fooled=False)
    attacked = climb(victim.model, x, y, threat, loss=margin, ascent=ascent, generator=generator)
    logits = _ask(victim.model, attacked.points)
    rival = logits.scatter(1, y[:, None], -torch.inf).argmax(1)
    aim = torch.eye(victim.classes, dtype=logits.dtype, device=logits.device)
    yield _Path("of the attack", x, attacked.points, aim[rival] - aim[y])
    direction, weight = (
        torch.randn(like.shape, generator=generator, dtype=x.dtype, device=x.device)
        for like in (x, logits)
    )
    border = ball.project(x + threat.epsilon * ball.steepest(direction))
    yield _Path("to random points", x, border, weight)


def _unexplained(path: _Path, model: nn.Module, answers: Victim) -> Tensor:
    """The error of each path at the resolution that suits it best, (B,); NaN where all is flat."""
    best = torch.full((len(path.start),), torch.nan, dtype=torch.float64, device=path.start.device)
    rows = torch.arange(len(best), device=best.device)
    for segments in SEGMENTS:
        found = _error(path.keep(rows), model, answers, segments)
        best[rows] = torch.fmin(best[rows], found)
        rows = rows[best[rows] > UNEXPLAINED]
        if not len(rows):
            break
    return best


def _error(path: _Path, model: nn.Module, answers: Victim, segments: int) -> Tensor:
    """√Σ(Δf − ∇f·Δx)² of each path, relative, (B,); NaN where all is flat.

    Where a path happens to run along the level lines, both are small, and the error is relative to
    a tenth of what the gradient says of a random direction, |∇f||Δx|/√d.
    """
    points = path.points(segments)
    weight = path.weight.repeat_interleave(segments + 1, 0)
    step = (path.end - path.start).double().flatten(1) / segments
    values, slopes, norms = [], [], []
    for part in torch.arange(len(points), device=points.device).split(answers.batch_size):
        asked = points[part]
        values.append((_ask(answers.model, asked.to(answers.x)) * weight[part]).double().sum(1))
        gradient = _gradient(model, asked, weight[part]).double().flatten(1)
        slopes.append((gradient * step[part // (segments + 1)]).sum(1))
        norms.append(gradient.norm(dim=1))
    f, slope, norm = (torch.cat(found).view(len(step), -1) for found in (values, slopes, norms))
    changes, said = f.diff(dim=1), (slope[:, 1:] + slope[:, :-1]) / 2
    rounding = 16 * torch.finfo(answers.x.dtype).eps * f.abs().amax(1, keepdim=True)
    error = ((changes - said).abs() - rounding).clamp(min=0).norm(dim=1)
    usual = norm[:, 1:].norm(dim=1) * step.norm(dim=1) / step.shape[1] ** 0.5
    size = torch.stack([changes.norm(dim=1), said.norm(dim=1), usual / 10]).amax(0)
    flat = size <= rounding[:, 0] * segments**0.5
    return torch.where(flat, torch.nan, (error / size).nan_to_num(torch.inf))


def _gradient(model: nn.Module, points: Tensor, weight: Tensor) -> Tensor:
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        total = (model(points) * weight).sum()
    if not total.requires_grad:
        return torch.zeros_like(points)
    (gradient,) = torch.autograd.grad(total, points, materialize_grads=True)
    return gradient
