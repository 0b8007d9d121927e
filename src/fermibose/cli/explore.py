"""``fbm explore``: the app in a browser on this machine."""

from pathlib import Path
from typing import Annotated

from typer import Option

from fermibose.cli.options import DATA, FolderOption, say
from fermibose.errors import InputError


def explore(
    machine: Annotated[
        Path | None,
        Option(help="Saved net of the page “Machine” (default: the demo's, fbm-demo/machine)."),
    ] = None,
    rival: Annotated[
        Path | None,
        Option(help="Saved net beside it (default: the demo's MLP, fbm-demo/mlp)."),
    ] = None,
    data: Annotated[
        str, Option(help="Data set whose test images are shown.", rich_help_panel=DATA)
    ] = "mnist5k",
    folder: FolderOption = None,
    audit: Annotated[
        Path | None, Option(help="Folder that `fbm audit` wrote (default: fbm-audit).")
    ] = None,
    port: Annotated[
        int | None, Option(min=1024, max=65535, help="Default: the first free one from 2718.")
    ] = None,
    browser: Annotated[
        bool, Option("--browser/--no-browser", help="Open the browser, or only say the address.")
    ] = True,
    edit: Annotated[
        Path | None,
        Option(help="Copy the app's notebook to this new file, if it is not there, and edit it."),
    ] = None,
) -> None:
    """Open the app: the theory under sliders, nets under attack, training, an audit.

    It answers on this machine only (127.0.0.1), and only to the address with its token.
    Ctrl-C ends it.
    """
    try:
        import marimo  # noqa: F401
    except ImportError:
        raise InputError(
            "fbm explore needs marimo: pip install 'fermibose[explore]', or `make explore` in a "
            "clone"
        ) from None
    from fermibose.explore.serve import Settings, serve

    settings = Settings(
        machine=_folder(machine, Settings.machine, _NET),
        rival=_folder(rival, Settings.rival, _NET),
        data=data,
        folder=None if folder is None else str(folder.absolute()),
        audit=_folder(audit, Settings.audit, _AUDIT),
    )
    if not all((Path(net) / _NET[0]).is_file() for net in (settings.machine, settings.rival)):
        say("no nets in fbm-demo: for the page “Machine” run `fbm demo` here (half a minute)")
    serve(settings, port=port, browser=browser, edit=edit, say=say)


# What is in a folder of its kind, what that is, and who writes it
_NET = ("model.json", "a saved model", "`fbm train`")
_AUDIT = ("audit.json", "an audit", "`fbm audit`")


def _folder(named: Path | None, default: str, kind: tuple[str, str, str]) -> str:
    """The folder to read, absolute; one that was named has to be what it is named for."""
    content, what, writer = kind
    if named is not None and not (named / content).is_file():
        raise InputError(
            f"{named} is not the folder of {what}: it has no {content}; name one that {writer} "
            "wrote"
        )
    return str(Path(default if named is None else named).absolute())
