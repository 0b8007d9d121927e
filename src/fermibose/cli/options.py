"""Options that several commands share, and the console they print to."""

from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Option

DATA = "Data"  # heading in the help

DataOption = Annotated[
    str,
    Option(
        "--data",
        help="mnist5k (bundled), digits, mnist, fashion-mnist, or a folder of IDX files.",
        rich_help_panel=DATA,
    ),
]
FolderOption = Annotated[
    Path | None,
    Option(
        "--folder",
        help="Folder of IDX files for mnist or fashion-mnist (default: FERMIBOSE_DATA, else "
        "a download).",
        rich_help_panel=DATA,
    ),
]
PerClassOption = Annotated[
    int | None,
    Option(help="Take the first so many training images of each class.", rich_help_panel=DATA),
]
TestPerClassOption = Annotated[
    int | None,
    Option(help="Take the first so many test images of each class.", rich_help_panel=DATA),
]
SeedOption = Annotated[int, Option(help="Determines every bit of the result.")]

console = Console(highlight=False)
