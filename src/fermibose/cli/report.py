"""``fbm report``: everything measured so far, told in one HTML file."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from fermibose.cli.options import FolderOption, console
from fermibose.errors import InputError


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

    Nothing is computed anew; figures of which nothing is measured are left out.
    """
    from fermibose.files import replacing
    from fermibose.paper import scale as scales
    from fermibose.paper.figures import FIGURES
    from fermibose.report.story import chapters, tell
    from fermibose.sweep import Store

    if not store.exists():
        raise InputError(f"there is no {store}; run `fbm reproduce` first, or name its --store")
    scale = (scales.full if full else scales.quick)(folder)
    found = list(chapters(Store(store), scale))
    if not found:
        raise InputError(
            f"{store} holds no run of the {scale.name} scale; give the same --quick, --full and "
            "--folder as to `fbm reproduce`"
        )
    with tempfile.TemporaryDirectory() as drafts:
        page = tell(found, scale, Path(drafts))
    with replacing(output) as draft:
        draft.write_text(page, encoding="utf-8")
    console.print(f"written to {output}: {len(page) / 1e6:.1f} MB", soft_wrap=True)
    if absent := [name for name in FIGURES if name not in {chapter.name for chapter in found}]:
        console.print(
            f"no run of the {scale.name} scale: {', '.join(absent)} (left out)", soft_wrap=True
        )
