"""Identity of jobs and exactness of values. Oracles: the bits themselves, and what must differ."""

import itertools
import math
from importlib import import_module

import numpy as np
import pytest
import sweep_measures as measures
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_common import bits

from fermibose.errors import InputError
from fermibose_paper import Job, measurement
from fermibose_paper.job import decode, encode

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text().filter(lambda key: key != "$float"), inner)
    ),
    max_leaves=20,
)


@settings(max_examples=50)
@given(plain)
def test_every_value_comes_back_with_its_type_and_bits(value):
    assert bits(decode(encode(value, "value"))) == bits(value)


def test_nan_comes_back_and_the_text_is_standard_json():
    text = encode({"x": [math.nan, -math.inf]}, "value")
    assert text == '{"x":[{"$float":"nan"},{"$float":"-inf"}]}'
    assert math.isnan(decode(text)["x"][0])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": (1.0, 2)}, '{"a":[1.0,2],"b":1}'),
        (np.float64(0.1), "0.1"),
        (np.int32(3), "3"),
        (np.bool_(True), "true"),
    ],
)
def test_canonical_text(value, text):
    assert encode(value, "value") == text


@pytest.mark.parametrize(
    "value", [np.float32(0.4), np.zeros(2), {1: 2}, {"$float": 1}, {3}, b"x", 1j, object()]
)
def test_values_without_an_exact_text_are_refused_by_name(value):
    with pytest.raises(InputError, match=r"params\['x'\]"):
        Job(measures.tally, {"scale": 1.0, "x": value})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: 2}, "x has the key 1: keys must be strings"),
        ({"$float": 1}, "x has the key '$float', which is reserved: use another"),
    ],
)
def test_a_key_that_is_refused_is_told_why(value, message):
    with pytest.raises(InputError) as error:
        encode(value, "x")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("seed", {"params": {"scale": 1.0, "seed": 3}}),
        ("seed", {"params": {"scale": 1.0}, "context": {"seed": 3}}),
        ("scale", {"params": {"scale": 1.0}, "context": {"scale": 1.0}}),
    ],
)
def test_an_argument_that_is_given_twice_is_named(name, job):
    with pytest.raises(InputError, match=f"^{name} is given twice: an argument is in params"):
        Job(measures.tally, **job)


def key(**changes):
    job = {"params": {"scale": 1.0, "kind": "a"}, "seed": 0, "data": "d", "context": {}} | changes
    return Job(measures.tally, **job).key


def test_the_key_is_of_what_is_computed_and_nothing_else():
    assert key() == key(params={"kind": "a", "scale": 1.0})
    assert key() == key(params={"kind": "a", "scale": np.float64(1.0)})
    assert key() == key(context={"pause": 0.1})
    others = [
        key(params={"kind": "a", "scale": 1}),
        key(params={"kind": "a", "scale": True}),
        key(params={"scale": 1.0}),
        key(seed=1),
        key(data="e"),
    ]
    assert len({key(), *others}) == 6


COUNTER = itertools.count()  # a module is imported once only
TEXT = """
from fermibose_paper import measurement

@measurement("edited", version=1)
def measure(*, seed):
    return {'x': 1}
"""


@pytest.fixture
def key_of(tmp_path, monkeypatch):
    """The key of the only job of a module with this text."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", True)

    def key_of(text, *, function="measure"):
        name = f"edited{next(COUNTER)}"
        (tmp_path / f"{name}.py").write_text(text)
        return Job(getattr(import_module(name), function)).key

    return key_of


def test_the_key_follows_name_and_version_of_the_measurement(key_of):
    keys = [key_of(TEXT.replace("=1)", "=2)")), key_of(TEXT.replace('"edited"', '"other"'))]
    assert len({key_of(TEXT), *keys}) == 3


def test_a_function_may_move_be_renamed_and_be_rewritten(key_of):
    renamed = key_of(TEXT.replace("measure(", "moved("), function="moved")
    assert key_of(TEXT) == renamed == key_of(TEXT.replace("'x': 1", "'x': 1.0"))


class Source:
    """Data of which only the checksum counts."""

    def __init__(self, checksum, folder):
        self.checksum, self.folder = checksum, folder

    def load(self):
        return self


def test_of_the_data_the_checksum_is_in_the_key_and_the_folder_is_not():
    def key(checksum, folder):
        return Job(measures.looks, data=Source(checksum, folder)).key

    assert key("a", "here") == key("a", "there")
    assert key("b", "here") != key("a", "here")


def test_a_job_does_not_follow_later_changes_of_its_parameters():
    params = {"scale": 1.0}
    job = Job(measures.tally, params)
    params["scale"] = 2.0
    assert job.params == {"scale": 1.0}


@measurement("twice", version=1)
def twice(*, seed):
    return {"seed": seed}


shadowed = twice


@measurement("twice", version=1)
def twice(*, seed):
    return {"seed": 2 * seed}


def test_functions_that_workers_cannot_import_are_refused():
    @measurement("inner", version=1)
    def inner(*, seed):
        return {}

    main = measurement("main", version=1)(lambda *, seed: {})
    main.__module__ = "__main__"
    for function in (inner, main, lambda *, seed: {}, shadowed, max, measures):
        with pytest.raises(InputError, match="cannot import"):
            Job(function)


def test_a_function_without_source_text_or_version_number_is_refused():
    names = {}
    exec("def measure(*, seed):\n    return {}", names)
    with pytest.raises(InputError, match="no source text"):
        measurement("x", version=1)(names["measure"])
    for name, version in (("x", "1"), (3, 1), ("", 1), (bits, 1), ("x", True)):
        with pytest.raises(InputError, match="mark a measurement with its name and version"):
            measurement(name, version=version)


def test_a_function_without_version_is_refused():
    with pytest.raises(InputError, match=r"@measurement\(NAME, version=1\)"):
        Job(bits)


endless = [1.0]
endless.append({"again": endless})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"params": {}}, "scale"),
        ({"params": {"scale": 1.0, "scales": 2}}, "scales"),
        ({"params": {"scale": 1.0, "seed": 2}}, "seed"),
        ({"params": None}, "params must be a dict of arguments by name, not a NoneType"),
        ({"params": [1]}, "not a list"),
        ({"params": "ab"}, "not a str"),
        ({"context": [("pause", 0.1)]}, "context must be a dict"),
        ({"params": {"scale": endless}}, "params contains itself"),
        ({"params": {"scale": 10**5000}}, r"params\['scale'\] is an integer of more than"),
        ({"seed": 10**5000}, "the seed must be an integer .*, not one of 16610 bits"),
        ({"context": {"scale": 2.0}}, "scale"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.0}, "seed"),
        ({"seed": True}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"data": None}, "data"),
    ],
)
def test_impossible_jobs_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        key(**changes)


def test_an_integer_of_four_thousand_digits_comes_back():
    assert decode(encode(-(10**4000), "value")) == -(10**4000)
