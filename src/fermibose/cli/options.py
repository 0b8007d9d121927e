"""What commands share: options, also those made of a dataclass; the group; the console; checks.

Nothing here or in a command's module loads a room before the command is chosen: what computes is
imported inside functions, so that ``fbm --help`` is quick.
"""

import inspect
import math
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryFile
from typing import Annotated, Any, Literal, get_origin, get_type_hints

from rich.console import Console
from typer import Argument, BadParameter, Exit, Option, Typer, echo
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fermibose.errors import InputError
from fermibose.files import as_json

DATA = "Data"  # heading in the help
_NAMES = "mnist5k (bundled), digits, mnist, fashion-mnist, a folder of IDX files, or a CSV file"

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
TargetOption = Annotated[
    str | None,
    Option(
        help="Column of a CSV file that names the class (default: the last).", rich_help_panel=DATA
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


def _fits(seed: int) -> int:
    """Refuse a seed beyond int64; as a bound it would fill the help with its digits."""
    if seed >= 2**63:
        raise BadParameter("a seed is below 2^63")
    return seed


SeedOption = Annotated[
    int,
    Option(
        min=0,
        callback=_fits,
        help="Determines every bit of the result, on one machine.",
    ),
]
ForceOption = Annotated[bool, Option("--force", help="Replace what OUTPUT holds.")]
ThreadsOption = Annotated[
    int,
    Option(
        min=1,
        max=1024,
        help="Threads. A training gives the same bits with any number, an attack may not.",
    ),
]

PROBLEM = {  # what the help says of the fields of a Problem
    "pairing": "disjoint (as in the paper) or all pairs of the training samples.",
    "alpha": "Disjoint training pairs per weight, α (default: 2.5).",
    "samples": "Training samples per weight γ, if all their pairs count (default: 5).",
    "delta": "Width of a cluster, Δ.",
    "beta": "Inverse temperature β; inf for zero.",
    "d_f": "Target squared distance of fermions.",
    "weight_decay": "Weight decay λ_w.",
    "m": "Strength of the cluster mean.",
    "rho": "Fraction of boson pairs among disjoint ones, ρ.",
    "balance": "Fraction of samples in the first class, with all pairs.",
    "mislabelled": "Fraction of samples with the wrong label, with all pairs.",
    "softness": "Softness a of the hinge.",
    "activation": "tanh or half_tanh.",
}

console = Console(highlight=False)


@dataclass(frozen=True)
class Fields:
    """In the signature of a command that takes a dataclass: an option for each field with a help.

    ``problem: Annotated["Problem", Fields("fermibose.theory:Problem", {None: PROBLEM})]`` is
    ``--alpha``, ``--delta`` …, with the types and defaults of the fields of that name, and the
    command is called with the Problem that they make. Fields without a help keep their default.
    """

    home: str  # of the dataclass, as module:name
    help: Mapping[str | None, Mapping[str, str]]  # heading → field → text
    types: Mapping[str, Any] = field(default_factory=dict)  # where narrower than the field's
    metavars: Mapping[str, str] = field(default_factory=dict)  # where a type is too long to show
    completed: Callable[[dict[str, Any]], dict[str, Any]] = dict  # what was given, with the rest

    def options(self, kind: type) -> list[inspect.Parameter]:
        """The options, as parameters of a command."""
        hints, defaults = get_type_hints(kind), {f.name: f.default for f in fields(kind)}
        made = []
        for heading, texts in self.help.items():
            for name, text in texts.items():
                default = defaults[name]
                # Most unions cannot be parsed, but the default is of what is usually meant.
                known = default is None or get_origin(hints[name]) is Literal
                hint = hints[name] if known else type(default)
                made.append(
                    inspect.Parameter(
                        name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=default,
                        annotation=Annotated[
                            self.types.get(name, hint),
                            Option(
                                help=text,
                                rich_help_panel=heading,
                                metavar=self.metavars.get(name),
                            ),
                        ],
                    )
                )
        return made

    def maker(self, kind: type) -> Callable[[dict[str, Any]], Any]:
        """The dataclass of the options given."""
        return lambda given: kind(**self.completed(given))


_JSON = inspect.Parameter(
    "json",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        Option("--json", help="Print the numbers as JSON; tables and notes go to standard error."),
    ],
)


def with_fields(command: "Command") -> Callable[..., None]:
    """The command with every parameter annotated with :class:`Fields` taken apart into options.

    One that returns its numbers, ready for JSON, also gets the option ``--json``.
    """
    parameters: list[inspect.Parameter] = []
    parts: dict[str, tuple[Callable[..., Any], list[str]]] = {}  # parameter → maker, fields
    for parameter in inspect.signature(command).parameters.values():
        notes = getattr(parameter.annotation, "__metadata__", ())
        if notes and isinstance(notes[0], Fields):
            kind = resolve_name(notes[0].home)
            options = notes[0].options(kind)
            parts[parameter.name] = notes[0].maker(kind), [option.name for option in options]
            parameters += options
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    if inspect.signature(command).return_annotation is not None:
        parameters.append(_JSON)

    @wraps(command, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def assembled(*, json: bool = False, **given: Any) -> None:
        console.stderr = json
        for parameter, (made, names) in parts.items():
            given[parameter] = made({name: given.pop(name) for name in names})
        record = command(**given)
        if json and record is not None:  # only one of several ranks has a record
            print(as_json(finite(record)))

    assembled.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return assembled


def finite(content: Any) -> Any:
    """The content of a record with null for numbers that JSON does not know: NaN and infinities."""
    if isinstance(content, dict):
        return {str(key): finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def under_torchrun() -> bool:
    """Whether torchrun has started this process beside others."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


Command = Callable[..., Any]  # returns its numbers, ready for JSON, or None
COMMANDS: dict[str, Command] = {}
LOOK: Any = {
    "add_completion": False,
    "rich_markup_mode": "markdown",
    "pretty_exceptions_enable": False,
}


def _without_type(params: Any) -> Any:
    """Parameters of a command; in its help no type stands beside flags, which take no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


_UsageError: Any = BadParameter.__base__  # which Typer does not export


class _Alone(TyperCommand):
    """One command."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """The options given; a wrong one is told with what the help knows of it."""
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            error.message += self._hint(ctx, getattr(error, "option_name", ""))
            raise

    def _hint(self, ctx: Any, given: str) -> str:
        """What an option takes that was given too little; the options of which an unknown one is
        a word in the help, as temperature is in that of --beta.
        """
        options = [option for option in self.get_params(ctx) if option.param_type_name == "option"]
        if known := [option for option in options if given in option.opts]:
            return f" They are {known[0].metavar}." if known[0].nargs > 1 else ""
        word = given.lstrip("-")
        found = [o.opts[0] for o in options if word in re.findall(r"\w+", (o.help or "").lower())]
        return f"; perhaps {' or '.join(found)} is meant." if found else ""

    def get_params(self, ctx: Any) -> Any:
        """Its parameters."""
        return _without_type(super().get_params(ctx))


class Commands(TyperGroup):
    """The commands of ``fbm``."""

    def get_params(self, ctx: Any) -> Any:
        """The options of ``fbm`` itself."""
        return _without_type(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command asked for, only now with its options: some are read off a slow room."""
        name, _, rest = super().resolve_command(ctx, args)
        if name != "train" and under_torchrun():
            raise InputError(f"torchrun shares the work of train only: start {name} without it")
        alone = Typer(**LOOK)
        alone.command(name, cls=_Alone)(with_fields(COMMANDS[str(name)]))
        return name, get_command(alone), rest

    def invoke(self, ctx: Any) -> Any:
        """Say that Ctrl-C was heard; Typer itself would end without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            Console(stderr=True).print("interrupted")
            raise Exit(130) from None


def version() -> None:
    """Print the version."""
    from fermibose import __version__

    echo(__version__)


def _version_asked(asked: bool) -> None:
    if asked:
        version()
        raise Exit


def shared_options(
    version: Annotated[
        bool,
        Option(
            "--version", callback=_version_asked, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Of ``fbm`` itself, whichever command follows."""


def say(text: str) -> None:
    """Print a line as it is: a path may hold what rich would take for markup."""
    console.print(text, markup=False, soft_wrap=True)


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be made or written to, before anything is computed for it.

    Nothing is left of the trial, so that a command refused for another reason leaves no folder.
    """
    missing: list[Path] = []
    try:
        str(folder).encode()
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except UnicodeEncodeError:
        raise InputError(
            f"the name of the folder {str(folder)!a} is not UTF-8, so that not everything "
            "written there could be read again: name another with --output"
        ) from None
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


def check_output(folder: Path, *names: str, force: bool) -> None:
    """Refuse to replace files of an earlier run without --force, or to write where it cannot be."""
    check_folder(folder)
    held = [name for name in names if (folder / name).exists()]
    if held and not force:
        raise InputError(
            f"{folder} already holds {', '.join(held)}: choose another --output, or --force to "
            f"replace {'it' if len(held) == 1 else 'them'}"
        )
