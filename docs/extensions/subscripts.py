"""Symbols as they are typed in prose, d_F, λ_w, D²_ij or e^{−βE}, with their indices set so."""

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

INDEX = re.compile(
    r"(?<![A-Za-z0-9_.])(?P<symbol>[A-Za-zα-ωΑ-Ωℓ‖][²′̂]?)_(?:\{(?P<long>[^{}]+)\}|(?P<low>[A-Za-z0-9α-ω∞]{1,2}))(?![A-Za-z0-9_])"
    r"|(?<=[\w)²])\^(?:\{(?P<power>[^{}]+)\}|(?P<high>[A-Za-z0-9μ]))(?![A-Za-z0-9_])"
)
PLAIN = (
    nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw,
    addnodes.desc_signature, addnodes.literal_strong, addnodes.literal_emphasis,
)  # fmt: skip


def pieces(text: str) -> Iterator[nodes.Node]:
    """The text with nodes for its indices and powers."""
    end = 0
    for found in INDEX.finditer(text):
        yield nodes.Text(text[end : found.start()] + (found["symbol"] or ""))
        low, high = found["long"] or found["low"], found["power"] or found["high"]
        yield nodes.subscript("", low) if low else nodes.superscript("", high)
        end = found.end()
    yield nodes.Text(text[end:])


class Subscripts(SphinxPostTransform):
    """Runs when all links and headings are known by what was typed."""

    default_priority = 900

    def run(self, **_: Any) -> None:
        """Replace every text that has indices and is no code."""
        for text in list(self.document.findall(nodes.Text)):
            node: Any = text
            while node is not None and not isinstance(node, PLAIN):
                node = node.parent
            if node is None and INDEX.search(text.astext()):
                text.parent.replace(text, list(pieces(text.astext())))


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_post_transform(Subscripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
