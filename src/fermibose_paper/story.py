"""The story: what the machine is, each figure with its verdict, errata, robustness, provenance."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from fermibose.errors import FermiboseError
from fermibose.paper import instances
from fermibose.paper.errata import ERRATA
from fermibose.paper.figures import FIGURES
from fermibose.paper.scale import Scale
from fermibose.paper.verdict import Verdict
from fermibose.plotting import save_figure
from fermibose.report import interactive, robustness
from fermibose.report.charts import charts_of
from fermibose.report.page import Badge, Interactive, Picture, Section, Table, Text, render
from fermibose.report.texts import ABOUT, ATTACKS, LEAD, MACHINE
from fermibose.sweep import Row, Store


class Chapter(NamedTuple):
    """A figure with all that was measured for it."""

    name: str
    rows: list[Row]
    verdicts: list[Verdict]
    runs: str  # how many of those planned there are, "50 of 54"
    whole: bool  # all of them


class Contents(NamedTuple):
    """What a store has for a report."""

    chapters: list[Chapter]  # the figures of which it holds at least half of the runs
    scarce: dict[str, str]  # figures of which it holds fewer, "3 of 54": others share these runs
    damaged: dict[str, Row]  # by key: figures share runs
    unknown: dict[str, str]  # figures whose data cannot be loaded, and why


def gather(store: Store, scale: Scale) -> Contents:
    """Look for the runs of every figure. A run is known by a hash of its data, among others.

    A figure is told if at least half of its runs are there; fewer may all be another figure's.
    """
    contents = Contents([], {}, {}, {})
    for name, figure in FIGURES.items():
        try:
            jobs = figure.plan(scale)
        except (FermiboseError, OSError) as error:
            contents.unknown[name] = str(error)
            continue
        rows = store.rows_of(jobs)
        contents.damaged.update({row.key: row for row in rows if row.damaged})
        rows = [row for row in rows if row.result is not None]
        runs, whole = f"{len(rows)} of {len(jobs)}", len(rows) == len(jobs)
        if 2 * len(rows) < len(jobs):
            contents.scarce[name] = runs
        else:
            verdicts = figure.verdicts(rows, scale)
            contents.chapters.append(Chapter(name, rows, verdicts, runs, whole))
    return contents


def tell(contents: Contents, scale: Scale, folder: Path) -> str:
    """The page; pictures are drawn into ``folder`` on the way."""
    found, living = contents.chapters, interactive.available()
    sections = [
        Section("What the machine is", [Text(paragraph) for paragraph in MACHINE]),
        Section("Verdicts at a glance", [_overview(contents)]),
        *(_figure_section(chapter, scale, folder, living=living) for chapter in found),
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
        script=interactive.script() if living else "",
    )


def _overview(contents: Contents) -> Table:
    rows = []
    for chapter in contents.chapters:
        words = [verdict.reproduced for verdict in chapter.verdicts]
        rows.append(
            (
                ABOUT[chapter.name].title,
                str(words.count(True)),
                str(words.count(False)),
                str(words.count(None)),
                chapter.runs.replace(" ", "\N{NO-BREAK SPACE}"),
            )
        )
    absent = {name: f"{runs}: left out" for name, runs in contents.scarce.items()}
    absent |= dict.fromkeys(contents.unknown, "unknown: no data")
    rows += [(ABOUT[n].title, "—", "—", "—", absent[n]) for n in FIGURES if n in absent]
    return Table(("", "claims that hold", "that do not", "not judged", "runs"), rows)


def _figure_section(chapter: Chapter, scale: Scale, folder: Path, *, living: bool) -> Section:
    about = ABOUT[chapter.name]
    path = folder / f"{chapter.name}.svg"
    save_figure(FIGURES[chapter.name].draw(chapter.rows, scale), path)
    blocks: list[Text | Picture | Interactive | Table] = [
        *([] if chapter.whole else [Text(f"Not complete: {chapter.runs} runs.")]),
        *(Text(paragraph) for paragraph in about.paragraphs),
        Picture(path, about.alt, about.caption),
    ]
    if living:
        blocks += charts_of(chapter.name, chapter.rows, scale)
    if chapter.name == "instances":
        lines = instances.table(chapter.rows)
        blocks.append(Table(instances.HEAD, lines, "AMP: mean ± standard error where it converged"))
    return Section(about.title, [*blocks, verdict_table(chapter.verdicts)])


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
    results = robustness.shipped()
    blocks: list[Text | Table] = [Text(paragraph) for paragraph in ATTACKS]
    if versions := results.get("versions"):
        blocks.append(_computed_with(versions.items()))
    for stage, caption in (
        ("table", "AutoAttack (standard), accuracy in %, mean ± standard error over seeds"),
        ("pgd", "PGD with 40 steps on the first 100 test images of each class, accuracy in %"),
    ):
        blocks.append(Table(robustness.HEAD, list(robustness.table(results, stage)), caption))
    verdicts = [
        (Badge("established" if good else "not established", good), method, seed, text)
        for method, seed, good, text in robustness.audits(results)
    ]
    if verdicts:
        head = ("verdict", "net", "seed", "evidence")
        blocks.append(Table(head, verdicts, "The audit", stack=True))
    return Section("Robustness of everything", blocks)


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
        "d_F of Fig. 4": f"{len(scale.sweep)} values, {min(scale.sweep):g} … {max(scale.sweep):g}",
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
