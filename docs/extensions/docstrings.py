"""Docstrings and field comments as they are written here, made fit for autodoc.

A field is described by the comment behind it, `x: float # what it is`, where autodoc reads only
`#:`; and `|w|` is an absolute value, not a substitution of reStructuredText.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

LITERAL = re.compile(r"(`[^`]*`)")


def field_comments(kind: type) -> Iterator[tuple[str, str]]:
    """Names and comments of the fields in the body of a class, in order."""
    lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    (body,) = ast.parse("\n".join(lines)).body
    for node in body.body if isinstance(body, ast.ClassDef) else ():
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            rest = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode().strip()
            if rest.startswith("#"):
                yield node.target.id, rest.lstrip("# ")


def without_substitutions(lines: list[str]) -> Iterator[str]:
    """The lines with every bar escaped, but for literals and the directives of formulas."""
    formula = False
    for line in lines:
        if line.startswith(".. math::"):
            formula = True
        elif line and not line.startswith(" "):
            formula = False
        if formula:
            yield line
        else:
            parts = LITERAL.split(line)
            yield "".join(p if p.startswith("`") else p.replace("|", r"\|") for p in parts)


def improve(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Called by autodoc for every docstring."""
    if what == "class":
        fields = [f"- ``{field}``: {comment}" for field, comment in field_comments(obj)]
        lines += ["", "Fields:", "", *fields, ""] if fields else []
    lines[:] = without_substitutions(lines)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", improve)
    return {"parallel_read_safe": True}
