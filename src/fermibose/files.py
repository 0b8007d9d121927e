"""Writing files such that a reader meets the whole new file or the whole old one."""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a draft beside ``path`` to write to; it takes its place on leaving without an error.

    Missing folders are made. After an error (a full disk, Ctrl-C) nothing of the draft remains and
    ``path`` is as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield draft
        os.replace(draft, path)
    except OSError as error:
        if str(error.filename) == str(draft):
            raise OSError(error.errno, error.strerror, str(path)) from None  # nobody knows a draft
        raise
    finally:
        draft.unlink(missing_ok=True)


def write_json(path: str | Path, content: Any) -> None:
    """Write ``content`` as JSON; numbers must be finite (JSON knows no NaN)."""
    text = json.dumps(content, indent=2, allow_nan=False, default=str)
    with replacing(path) as draft:
        draft.write_text(text + "\n", encoding="utf-8")
