"""Rows made by hand."""

from fermibose_paper.job import encode
from fermibose_paper.store import Row


def row(result, seed=0, *, name="training", data="", **params):
    text = None if result is None else encode(result, "the result")
    return Row("", name, 1, encode(params, "params"), seed, data, result_text=text)
