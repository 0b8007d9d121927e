"""The theory page: from sliders to a problem, from an answer to numbers and charts."""

import math
import re
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
from scipy.special import ndtr

from fermibose.checks import choice, number, shown
from fermibose.errors import FermiboseError, InputError
from fermibose.explore.choices import LONGEST_NORM, RANGES
from fermibose.explore.desk import Answer
from fermibose.explore.drawing import Line, Mark, chart, heat
from fermibose.plotting import COLOURS
from fermibose.theory import LABELS, Array, Problem, Sketch, Solution

_STRENGTHS = np.linspace(0, 1.5, 61)
_MAP = np.linspace(-3, 3, 121)
_BINS = np.linspace(-1, 1, 51)
# As `fbm theory` tells it, without how the solver fared
ROWS = [row for row in LABELS if row[1] not in ("residual", "at_error", "iterations")]


def problem_of(values: Mapping[str, Any], *, pairing: str, cold: bool) -> Problem:
    """The problem that the sliders describe; whatever they cannot say is refused."""
    pairing = choice("pairing", pairing, ("disjoint", "all"))
    names = ["delta", "d_f", "weight_decay", *([] if cold else ["beta"])]
    names += ["alpha", "rho"] if pairing == "disjoint" else ["samples"]
    given: dict[str, Any] = {name: _within(name, values.get(name)) for name in names}
    if cold:
        given["beta"] = math.inf
    return Problem(pairing=pairing, **given)


def strength_of(value: Any) -> float:
    """The strength of the attack."""
    return _within("eps", value)


def norm_of(text: Any) -> float | str:
    """The norm that was typed: 2, inf, or a number above 1."""
    if not isinstance(text, str) or len(text) > LONGEST_NORM:
        raise InputError(f"the norm must be 2, inf or a number above 1, got {shown(text)[:40]}")
    word = text.strip()
    if word in ("inf", "∞"):
        return "inf"
    try:
        return number("the norm", float(word), above=1)
    except (ValueError, InputError):
        raise InputError(f"the norm must be 2, inf or a number above 1, got {text!r}") from None


def word_of(norm: float | str) -> str:
    """A norm as it is typed."""
    return norm if isinstance(norm, str) else f"{norm:g}"


def command(problem: Problem, norm: float | str) -> str:
    """The command that prints the same numbers."""
    if problem.pairing == "disjoint":
        amount = f"--alpha {problem.alpha:g} --rho {problem.rho:g}"
    else:
        amount = f"--samples {problem.samples:g}"
    words = [
        f"fbm theory --pairing {problem.pairing} {amount} --delta {problem.delta:g}",
        f"--beta {problem.beta:g} --d-f {problem.d_f:g} --weight-decay {problem.weight_decay:g}",
    ]
    return " ".join([*words, f"--norm {word_of(norm)}"])


def rows(state: Sketch | Solution, norm: float | str, eps: float) -> list[tuple[str, str, str]]:
    """(label, name, text) of what is known of a state; a quick look knows less."""
    attack = {
        "attacked": state.adversarial_accuracy(eps, norm),
        "area": state.robustness_area(norm),
    }
    called = "ℓ" + {"inf": "∞", 2.0: "₂"}.get(norm, f"_{norm}")
    told = []
    for label, name, form in ROWS:
        value = attack[name] if name in attack else getattr(state, name, None)
        if value is None:
            text = "…"
        elif math.isinf(value):
            text = "∞" if value > 0 else "−∞"
        else:
            text = format(value, form)
        told.append((label.format(norm=called, eps=eps), name, text))
    return told


def verdict(answer: Answer) -> str:
    """One sentence on what is shown."""
    state = answer.state
    if answer.message:
        return answer.message
    if state is None:
        return "No state near the last one: searching …"
    if isinstance(state, Sketch):
        how = "good to about 1e-4" if state.converged else f"residual {state.residual:.0%}"
        return f"A quick look ({how}); the solution follows."
    if state.rs_stable:
        return "Replica symmetry holds (AT eigenvalue below 1)."
    return (
        "Replica symmetry is unstable (AT eigenvalue above 1): these numbers are an "
        "approximation, the worse the farther it is above 1."
    )


def page(answer: Answer, *, norm: float | str = 2.0, eps: float = 0.5, complaint: str = "") -> str:
    """The whole answer as HTML; complaint: on what was typed and is not shown."""
    stage = "rough" if isinstance(answer.state, Sketch) else "fine"
    if answer.message or answer.state is None:
        stage = "message"
    if answer.final and not answer.message:
        stage = "final"
    alert = ' class="fbm-message"' if answer.message else ""
    head = f'<p role="status"{alert} id="fbm-verdict">{escape(verdict(answer))}</p>'
    if complaint:
        head = f'<p role="alert" class="fbm-message">{escape(complaint)}</p>{head}'
    if answer.state is None:
        return f'<div id="fbm-theory" data-stage="{stage}">{head}</div>'
    table = "".join(
        f'<tr><th scope="row">{escape(label)}</th><td data-name="{name}">{text}</td></tr>'
        for label, name, text in rows(answer.state, norm, eps)
    )
    told = re.sub(r"--\S+ \S+", r"<span>\g<0></span>", escape(command(answer.problem, norm)))
    numbers = (
        f'<div><table class="fbm-numbers"><caption>The state</caption>{table}</table>'
        f'<p class="fbm-note">The same in a terminal: <code>{told}</code></p></div>'
    )
    charts = "".join(f"<div>{one}</div>" for one in _charts(answer.state, norm, eps))
    return (
        f'<div id="fbm-theory" data-stage="{stage}">{head}<div class="fbm-split">{numbers}'
        f'<div><div class="fbm-grid">{charts}</div><p class="fbm-note">{_READING}</p></div></div>'
        f"{_branches(answer)}</div>"
    )


_READING = (
    "In the maps: the energy of a pair against the fields z₁ and z₂ of its two patterns. The "
    "circles are pairs of new patterns, one standard deviation around the mean; the signs are the "
    "classes of the two, ++ and −− for a boson pair, +− and −+ for a fermion pair. Learning brings "
    "them where the map is dark."
)


def refusal(error: FermiboseError) -> str:
    """A message in place of the page; what stands between backticks is code."""
    told = re.sub("`([^`]*)`", r"<code>\1</code>", escape(str(error)))
    return (
        f'<div id="fbm-theory" data-stage="message"><p role="alert" class="fbm-message">'
        f"{told}</p></div>"
    )


def outputs(state: Sketch | Solution) -> tuple[Array, Array]:
    """Share of the patterns of class −1 and of class 1 whose output is in each bin, in per cent.

    φ(z) = tanh z with z ~ N(y m M, Δ²q).
    """
    problem = state.problem
    with np.errstate(divide="ignore"):
        edges = np.arctanh(_BINS)
    width = problem.delta * math.sqrt(max(state.q, 1e-300))
    minus, plus = (100 * np.diff(ndtr((edges - y * problem.m * state.M) / width)) for y in (-1, 1))
    return minus, plus


def landscape(problem: Problem) -> Array:
    """H(z₁, z₂) of a boson and of a fermion pair on a square grid, (2, rows, columns)."""
    z1, z2 = np.meshgrid(_MAP, _MAP)
    return problem.energies(z1, z2)


def _charts(state: Sketch | Solution, norm: float | str, eps: float) -> list[str]:
    problem = state.problem
    attacked = 100 * state.adversarial_accuracy(_STRENGTHS, norm)
    at = 100 * state.adversarial_accuracy(eps, norm)
    curve = chart(
        "Accuracy under attack",
        [Line("", _STRENGTHS, attacked, COLOURS["machine"])],
        labels=("strength ε", "accuracy (%)"),
        x_range=(0, 1.5),
        y_range=(0, 103),
        marks=[Mark(eps, at, f"{at:.1f} %")],
    )
    # As steps: the density of tanh z may rise to any height next to ±1 before it falls to 0 there,
    # the share of a bin may not.
    minus, plus = outputs(state)
    ends = np.repeat(_BINS, 2)[1:-1]
    predicted = chart(
        "Outputs predicted for new patterns",
        [
            Line("class −1", ends, np.repeat(minus, 2), COLOURS["baseline"]),
            Line("class 1", ends, np.repeat(plus, 2), COLOURS["machine"], dash=1),
        ],
        labels=("output tanh z", "patterns (%) per 0.04"),
        x_range=(-1, 1),
        y_range=(0, 1.1 * float(max(minus.max(), plus.max()))),
    )
    mean, width = problem.m * state.M, problem.delta * math.sqrt(state.q)
    signs = {"boson": (("−−", -1, -1), ("++", 1, 1)), "fermion": (("−+", -1, 1), ("+−", 1, -1))}
    maps = [
        heat(
            f"H(z₁, z₂) of a {kind} pair",
            energy,
            (-3, 3),
            labels=("z₁", "z₂"),
            rings=[(a * mean, b * mean, width, name) for name, a, b in signs[kind]],
        )
        for kind, energy in zip(signs, landscape(problem), strict=True)
    ]
    return [curve, predicted, *maps]


def _branches(answer: Answer) -> str:
    """All saddle points as a table."""
    if answer.branches is None:
        waiting = "" if answer.message else "All branches: searching …"
        return f'<p id="fbm-branches" class="fbm-note">{waiting}</p>'
    body = ""
    for found in answer.branches:
        kind = "stable" if found.stable else "unstable"
        symmetry = "holds" if found.rs_stable else "broken"
        cells = (
            f"{found.M:.4f}", f"{found.q:.4f}", f"{found.Q:.4f}", f"{found.chi:.4f}",
            f"{found.free_energy:.6f}", f"{found.accuracy:.2%}", kind, symmetry,
        )  # fmt: skip
        body += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("M", "q", "Q", "χ", "f", "accuracy", "state", "replica symmetry")
    )
    return (
        '<div class="fbm-wide" id="fbm-branches" tabindex="0"><table class="fbm-numbers"><caption>'
        f"All branches, the lowest stable one first</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _within(name: str, value: Any) -> float:
    span = RANGES[name]
    return number(span.label, value, least=span.low, most=span.high)
