"""The figures of the gallery, made by the code that the page shows, when the site is built."""

import contextlib
import os
import re
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def draw_gallery(app: Any) -> None:
    """Run the blocks of gallery.md, in order, in the folder of the page."""
    page = Path(app.srcdir) / "gallery.md"
    figures = page.parent / "gallery"
    if figures.is_dir() and page.stat().st_mtime < figures.stat().st_mtime:
        return  # nothing of it has changed; `make clean` forgets that
    figures.mkdir(exist_ok=True)
    names: dict[str, Any] = {}
    with contextlib.chdir(page.parent):
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            exec(compile(block, str(page), "exec"), names)
    os.utime(figures)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", draw_gallery)
    return {"parallel_read_safe": True}
