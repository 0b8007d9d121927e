"""The report: what the machine is, each figure with its verdict, errata, robustness, provenance."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from fermibose.compute import progress_bar
from fermibose.plotting import save_figure
from fermibose_paper import published, robustness
from fermibose_paper.page import (
    Badge,
    Interactive,
    Line,
    Picture,
    Section,
    Table,
    Text,
    chart,
    chart_script,
    charts_available,
    render,
)
from fermibose_paper.registry import FIGURES, TABLES
from fermibose_paper.scale import Scale
from fermibose_paper.series import COLOUR, over_seeds, published_label, series
from fermibose_paper.shipped import shipped
from fermibose_paper.store import Row, Store
from fermibose_paper.texts import ABOUT, ATTACKS, ERRATA, LEAD, MACHINE, VERDICTS
from fermibose_paper.verdict import Verdict, total

# Whose accuracy the headline states, and under which attack: the method, its baseline, the best
HEADLINES = ("machine, labelled, d_F 0.4", "MLP", "MLP, PGD-7 training 0.15", "kernel ridge")
STRENGTH = "ℓ∞ 0.1"


class Chapter(NamedTuple):
    """A figure with all that was measured for it."""

    name: str
    rows: list[Row]
    verdicts: list[Verdict]
    runs: str  # how many of those planned there are, "50 of 54"
    complete: bool  # all of them are there


class Contents(NamedTuple):
    """What a store has for a report."""

    chapters: list[Chapter]  # the figures of which it holds at least half of the runs
    scarce: dict[str, str]  # figures of which it holds fewer, "3 of 54": others share these runs
    damaged: dict[str, Row]  # by key: figures share runs


def gather(store: Store, scale: Scale) -> Contents:
    """Look for the runs of every figure, by name and parameters: no data are needed.

    A figure is told if at least half of its runs are there; fewer may all be another figure's.
    """
    contents = Contents([], {}, {})
    for name, figure in FIGURES.items():
        jobs = figure.plan(scale)
        rows = store.select(jobs)
        contents.damaged.update({row.key: row for row in rows if row.damaged})
        rows = [row for row in rows if row.result is not None]
        runs, complete = f"{len(rows)} of {len(jobs)}", len(rows) == len(jobs)
        if 2 * len(rows) < len(jobs):
            contents.scarce[name] = runs
        else:
            verdicts = figure.verdicts(rows, scale)
            contents.chapters.append(Chapter(name, rows, verdicts, runs, complete))
    return contents


def tell(contents: Contents, scale: Scale, folder: Path) -> str:
    """The page; pictures are drawn into ``folder`` on the way."""
    found, living = contents.chapters, charts_available()
    told = []
    with progress_bar("drawing", len(found)) as advance:
        for chapter in found:
            told.append(_figure_section(chapter, scale, folder, living=living))
            advance()
    sections = [
        Section("In short", [Text(sentence) for sentence in _headline(found)]),
        Section("What the machine is", [Text(paragraph) for paragraph in MACHINE]),
        Section("Verdicts at a glance", [*map(Text, VERDICTS), _overview(contents)]),
        *told,
        _robustness_section(),
        _errata_section(),
        _provenance_section(found, scale),
    ]
    runs = len({row.key for chapter in found for row in chapter.rows})
    images = f", images of {scale.dataset}" if _on_images(found) else ""
    return render(
        "The Fermi-Bose machine, measured again",
        LEAD,
        f"{scale.name} scale: {runs} runs{images}",
        sections,
        closing="Written by fermibose. The figures and their verdicts were computed from the runs "
        "counted above; the robustness tables travel with the package and say how they were made.",
        script=chart_script() if living else "",
    )


def _headline(found: Sequence[Chapter]) -> Iterator[str]:
    """What came out, in a few sentences."""
    rows = {chapter.name: chapter.rows for chapter in found}
    yield f"{total(v for chapter in found for v in chapter.verdicts)}."
    if "fig4" in rows:
        labelled = series(rows["fig4"], "test_accuracy", scale=100, coupling="labelled")
        mlp = over_seeds(rows["fig4"], "test_accuracy", scale=100, coupling="mlp")
        if len(labelled) and np.isfinite(mlp.mean):
            best = int(labelled.mean.argmax())
            yield (
                f"The loss as printed reaches {labelled.mean[best]:.1f} % at d_F = "
                f"{labelled.x[best]:g}, the MLP of the same shape {mlp} %."
            )
    clean, attacked = (robustness.HEAD.index(name) for name in ("clean", STRENGTH))
    told = [
        f"{row[0]} {row[attacked]} % ({row[clean]} % without)"
        for row in robustness.table(shipped("robustness"), "auto")
        if row[0] in HEADLINES
    ]
    yield (
        f"Accuracy under AutoAttack within {STRENGTH}: {'; '.join(told)}. These are not of the "
        "runs counted above: they travel with the package and are of the published split "
        "(“Robustness of everything”)."
    )


def _overview(contents: Contents) -> Table:
    rows = []
    for chapter in contents.chapters:
        counts = map(str, total(chapter.verdicts))
        runs = chapter.runs.replace(" ", "\N{NO-BREAK SPACE}")
        rows.append((ABOUT[chapter.name].title, *counts, runs))
    for name, runs in contents.scarce.items():
        rows.append((ABOUT[name].title, "—", "—", "—", "—", f"{runs}: left out"))
    every = total(v for chapter in contents.chapters for v in chapter.verdicts)
    rows.append(("all", *map(str, every), ""))
    head = ("", "claims that hold", "that do not", "inconclusive", "not judged", "runs")
    return Table(head, rows)


def _figure_section(chapter: Chapter, scale: Scale, folder: Path, *, living: bool) -> Section:
    about = ABOUT[chapter.name]
    path = folder / f"{chapter.name}.svg"
    save_figure(FIGURES[chapter.name].draw(chapter.rows, scale), path)
    blocks: list[Text | Picture | Interactive | Table] = [
        *([] if chapter.complete else [Text(f"Not complete: {chapter.runs} runs.")]),
        *(Text(paragraph) for paragraph in about.paragraphs),
        Picture(path, about.alt, about.caption),
    ]
    if living:
        blocks += _charts_of(chapter.name, chapter.rows, scale)
    if chapter.name in TABLES:
        blocks += TABLES[chapter.name](chapter.rows, scale)
    return Section(about.title, [*blocks, verdict_table(chapter.verdicts)])


def _charts_of(name: str, rows: Sequence[Row], scale: Scale) -> list[Interactive]:
    """The charts of a figure; most have none."""
    if name == "fig4":
        return [_accuracy_chart(rows, scale)]
    if name == "fig5":
        return [_area_chart(rows, scale)]
    return []


def _accuracy_chart(rows: Sequence[Row], scale: Scale) -> Interactive:
    table = published.against_d_f()
    lines = {
        published_label(scale): Line(
            table["d_F"].tolist(),
            table["test_accuracy_percent"].tolist(),
            (table["test_accuracy_std"] / 5**0.5).tolist(),
            COLOUR["published"],
        ),
        "averaged": _line(rows, "test_accuracy", "averaged", 100),
        "labelled": _line(rows, "test_accuracy", "labelled", 100),
    }
    return chart(
        "accuracy-chart",
        lines,
        x_label="d<sub>F</sub>",
        y_label="test accuracy (%)",
        y_range=(76, 1 + max(max(line.y, default=0) for line in lines.values())),
        summary="The accuracies of panel (a), to read off with the pointer",
        alt="Interactive: test accuracy against d_F, published, averaged and labelled coupling.",
    )


def _area_chart(rows: Sequence[Row], scale: Scale) -> Interactive:
    table = published.areas()
    lines = {
        published_label(scale, "averaged"): Line(
            table["d_F"].tolist(), table["fgsm_area"].tolist(), [], COLOUR["published"]
        ),
        "averaged": _line(rows, "fgsm_area", "averaged"),
        "labelled": _line(rows, "fgsm_area", "labelled"),
    }
    return chart(
        "area-chart",
        lines,
        x_label="d<sub>F</sub>",
        y_label="area under the FGSM curve",
        y_range=(0, 22),
        summary="The areas of panel (c), to read off with the pointer",
        alt="Interactive: robustness area under FGSM against d_F for both couplings.",
    )


def _line(rows: Sequence[Row], quantity: str, coupling: str, scale: float = 1) -> Line:
    found = series(rows, quantity, scale=scale, coupling=coupling)
    errors = found.error.tolist() if found.seeds > 1 else []
    return Line(found.x.tolist(), found.mean.tolist(), errors, COLOUR[coupling])


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Verdict, claim, measured, asked for, remark."""
    rows = []
    for v in verdicts:
        word, _, why = v.word.partition(", ")
        if v.reproduced is False and not v.absent:
            why = f"off by {v.excess:.3g} more than allowed"
        remark = "; ".join(filter(None, (why, v.note)))
        badge = Badge(word.lower(), v.reproduced)
        rows.append((badge, v.claim, v.measured_text(), v.expected_text(), remark))
    head = ("verdict", "claim", "measured ± s.e.", "asked for", "remark")
    return Table(head, rows, stack=True)


def _robustness_section() -> Section:
    rows = shipped("robustness")
    versions = {item for row in rows for item in row.versions.items()}
    blocks = [*map(Text, ATTACKS), _computed_with(versions)]
    tables = [
        Table(robustness.HEAD, list(robustness.table(rows, stage)), caption.format(images=100))
        for stage, caption in robustness.STAGES.items()
    ]
    tables.append(robustness.audits(rows))
    return Section("Robustness of everything", [*blocks, *(t for t in tables if t.rows)])


def _errata_section() -> Section:
    intro = Text(
        "What is printed, what is right, and what shows it here. Where the theory enters this "
        "report, it is with the right-hand side."
    )
    head = ("where", "printed", "right", "what shows it")
    table = Table(head, [tuple(e) for e in ERRATA], stack=True)
    return Section("Errata of the paper", [intro, table])


def _computed_with(versions: Iterable[tuple[str, str]]) -> Text:
    return Text("Computed with " + ", ".join(sorted(map(" ".join, versions))) + ".")


def _on_images(found: Sequence[Chapter]) -> bool:
    """Whether any run has read images; those of the theory read none."""
    return any(row.data for chapter in found for row in chapter.rows)


def _provenance_section(found: Sequence[Chapter], scale: Scale) -> Section:
    seen: set[str] = set()
    versions: set[tuple[str, str]] = set()
    times = []
    for chapter in found:  # a run that several figures share counts for the first of them
        new = [row for row in chapter.rows if row.key not in seen]
        seen |= {row.key for row in new}
        versions |= {item for row in new for item in row.versions.items()}
        seconds = sum(row.seconds or 0.0 for row in new)
        mean = f"{seconds / len(new):.1f}" if new else "—"
        times.append((ABOUT[chapter.name].title, str(len(new)), f"{seconds / 60:.1f}", mean))
    settings = {
        "d_F of Fig. 4": f"{len(scale.fine)} values, {min(scale.fine):g} … {max(scale.fine):g}",
        "hidden units": str(scale.hidden),
        "epochs of each stage": str(scale.epochs),
        "seeds": f"0 … {scale.seeds - 1}",
        "data": scale.dataset,
    }
    again = f"fbm reproduce all --{scale.name}" + (" --folder FOLDER" if scale.folder else "")
    return Section(
        "Parameters, versions, times",
        [
            *([Table(("parameter", "value"), list(settings.items()))] if _on_images(found) else []),
            Table(
                ("figure", "runs", "minutes of one core", "seconds a run"),
                times,
                "Times as measured, with whatever else the machine was doing",
            ),
            _computed_with(versions),
            Text(Markup("Again: <code>{}</code>").format(again)),
        ],
    )
