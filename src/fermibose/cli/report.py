"""``fbm report``: everything measured so far, told in one HTML file."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fermibose.cli.options import FolderOption, check_file, say
from fermibose.cli.reproduce import chosen_scale, print_runs
from fermibose.errors import InputError

if TYPE_CHECKING:
    from fermibose.report.story import Contents


def report(
    store: Annotated[Path, typer.Option(help="Results of `fbm reproduce`.")] = Path(
        "reproduction/results.sqlite"
    ),
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The scale that was reproduced.")
    ] = False,
    folder: FolderOption = None,
    output: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
) -> None:
    """Write the report: one self-contained page from what `fbm reproduce` has measured.

    Nothing is computed anew; figures of which less than half is measured are left out. Give the
    same --quick, --full and --folder as to `fbm reproduce`: a run belongs to the images it was made
    with, so figures whose images cannot be loaded are left out too.
    """
    from fermibose.files import replacing
    from fermibose.report.story import gather, tell
    from fermibose.sweep import Store

    if not store.exists():
        raise InputError(f"there is no {store}; run `fbm reproduce` first, or name its --store")
    scale = chosen_scale(full, folder)
    check_file(output)
    contents = gather(Store(store, create=False), scale)
    _say_what_is_left_out(contents)
    if not contents.chapters:
        raise InputError(
            f"{store} holds less than half of the runs of any figure of the {scale.name} scale; "
            "give the same --quick, --full and --folder as to `fbm reproduce`, or run it first"
        )
    with tempfile.TemporaryDirectory() as drafts:
        page = tell(contents, scale, Path(drafts))
    with replacing(output) as draft:
        draft.write_text(page, encoding="utf-8")
    say(f"written to {output}: {len(page) / 1e6:.1f} MB")


def _say_what_is_left_out(contents: "Contents") -> None:
    if contents.scarce:
        few = "; ".join(f"{name}: {runs} runs" for name, runs in contents.scarce.items())
        say(f"left out, less than half is measured: {few}")
    unknown = contents.unknown
    for reason in dict.fromkeys(unknown.values()):
        names = [name for name in unknown if unknown[name] == reason]
        say(
            f"{', '.join(names)} left out, since the data that tell which runs belong there "
            f"cannot be loaded: {reason}"
        )
    print_runs("damaged, left out", contents.damaged.values())
