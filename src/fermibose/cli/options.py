"""Options that several commands share, the console they print to, and the check of an output."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

from rich.console import Console
from typer import Argument, Option

from fermibose.errors import InputError

DATA = "Data"  # heading in the help
_NAMES = "mnist5k (bundled), digits, mnist, fashion-mnist, or a folder of IDX files"

ModelArgument = Annotated[Path, Argument(help="Folder written by `fbm train`.")]
DataOption = Annotated[str, Option("--data", help=f"{_NAMES}.", rich_help_panel=DATA)]
ModelDataOption = Annotated[
    str | None,
    Option(
        "--data",
        help=f"{_NAMES}. By default what the model was trained on.",
        rich_help_panel=DATA,
    ),
]
FolderOption = Annotated[
    Path | None,
    Option(
        "--folder",
        help="Folder of IDX files, or with subfolders mnist and fashion-mnist (default: "
        "FERMIBOSE_DATA, else a download).",
        rich_help_panel=DATA,
    ),
]
PerClassOption = Annotated[
    int | None,
    Option(
        min=1, help="Take the first so many training images of each class.", rich_help_panel=DATA
    ),
]
TestPerClassOption = Annotated[
    int | None,
    Option(min=1, help="Take the first so many test images of each class.", rich_help_panel=DATA),
]
AttackedOption = Annotated[
    int,
    Option(min=1, help="Attack the first so many test images of each class, if there are as many."),
]
EpsilonOption = Annotated[float, Option("--eps", help="Strength, in units of the inputs.")]
SeedOption = Annotated[
    int, Option(min=0, max=2**63 - 1, help="Determines every bit of the result.")
]
ThreadsOption = Annotated[
    int, Option(min=1, max=1024, help="Threads; bits depend on their number.")
]

console = Console(highlight=False)


def say(text: str) -> None:
    """Print a line as it is: a path may hold what rich would take for markup."""
    console.print(text, markup=False, soft_wrap=True)


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be made or written to, before anything is computed for it.

    Nothing is left of the trial, so that a command refused for another reason leaves no folder.
    """
    missing: list[Path] = []
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"nothing can be written to {folder} ({error.strerror}): name a folder with --output"
        ) from None
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()


def check_file(path: Path) -> None:
    """Refuse a file that cannot be written, before anything is computed for it."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file with --output")
    check_folder(path.parent)
