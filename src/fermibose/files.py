"""Files that a reader meets whole, old or new; JSON; checksums that files carry themselves."""

import hashlib
import json
import mmap
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

# What a file keeps its checksum in: the first such field, in JSON or in the header of safetensors.
SEAL = "checksum"
UNSEALED = "0" * 64
_SEALED = re.compile(rb'"%s": ?"([0-9a-f]{64})"' % SEAL.encode())


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a draft beside ``path`` to write to; it takes its place on leaving without an error.

    Missing folders are made. After an error (a full disk, Ctrl-C) nothing of the draft remains and
    ``path`` is as it was; an error of the system names ``path``.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield draft
        os.replace(draft, path)
    except OSError as error:
        # Nobody knows a draft; and of a full disk the system does not say what was written.
        if error.errno is not None and str(error.filename) in (str(draft), "None"):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    finally:
        draft.unlink(missing_ok=True)


def write_json(path: str | Path, content: Any) -> None:
    """Write ``content`` as JSON, see :func:`as_json`."""
    text = as_json(content)
    with replacing(path) as draft:
        draft.write_text(text + "\n", encoding="utf-8")


def as_json(content: Any) -> str:
    """The text of a JSON file; numbers must be finite (JSON knows no NaN)."""
    return json.dumps(content, indent=2, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy as numbers; anything else by its name."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def read_json(content: bytes) -> Any:
    """The content of a JSON file; ValueError, with the reason, for whatever is not proper JSON."""
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"it holds {constant}, which is no number")


def seal(path: Path) -> None:
    """Write the sha256 of a file into its field ``SEAL``, which holds ``UNSEALED`` so far."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        field = _SEALED.search(content)
        if field is None:
            raise ValueError(f"{path} has no field for its checksum")
        place = field.span(1)
        del field  # it holds on to the content
        content[slice(*place)] = _digest(content, place)


def is_sealed(path: Path) -> bool | None:
    """Whether the file is, to the bit, as it was sealed; None if it has no seal."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            field = _SEALED.search(content)
            if field is None:
                return None
            place, found = field.span(1), field[1]
            del field
            return found == _digest(content, place)


def _digest(content: mmap.mmap, place: tuple[int, int]) -> bytes:
    """The sha256 (hexadecimal) of the content without the checksum itself."""
    digest = hashlib.sha256()
    with memoryview(content) as view:
        for part in (slice(0, place[0]), slice(place[1], None)):
            with view[part] as piece:
                digest.update(piece)
    return digest.hexdigest().encode()
