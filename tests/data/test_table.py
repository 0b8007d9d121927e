"""Tables from CSV files. Oracles: the rows written by hand, scikit-learn's scaling, the library."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from fermibose import FermiBoseNet
from fermibose.cli import app
from fermibose.data import load_dataset
from fermibose.errors import FileFormatError, InputError
from fermibose.machine import evaluate


@pytest.fixture
def table(tmp_path):
    """Sixty rows, two classes apart in ``a``; ``b`` is noise in other units."""
    rng = np.random.default_rng(0)
    kinds = np.tile(["yes", "no"], 30)
    a = np.where(kinds == "yes", 1.0, -1.0) + 0.3 * rng.normal(size=60)
    b = 1000 + 50 * rng.normal(size=60)
    lines = ["a,kind,b", *(f"{x},{k},{z}" for x, k, z in zip(a, kinds, b, strict=True))]
    path = tmp_path / "flowers.csv"
    path.write_text("\n".join(lines) + "\n")
    return path, np.column_stack([a, b]), kinds


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_every_fifth_row_of_a_class_is_for_testing_and_ranges_are_those_of_training(table):
    path, x, kinds = table
    found = load_dataset(path, target="kind")
    test = np.zeros(60, dtype=bool)
    for kind in ("yes", "no"):
        test[np.flatnonzero(kinds == kind)[4::5]] = True
    assert (found.classes, found.target, found.name) == (("no", "yes"), "kind", "flowers")
    assert found.y_test.tolist() == (kinds[test] == "yes").astype(int).tolist()
    low, high = x[~test].min(0), x[~test].max(0)
    assert np.allclose(found.x_train, (x[~test] - low) / (high - low), atol=1e-6)
    assert np.allclose(found.x_test, np.clip((x[test] - low) / (high - low), 0, 1), atol=1e-6)


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("a,b\n1,x\n2,y\n", "c", "has no column 'c': choose one of a, b"),
        ("a,b,c\n1,x,u\n2,y,v\n", None, "the column 'b' of .* other things than numbers"),
        ("a,b\n1,x\n,y\n", None, "has empty cells"),
        ("a,b\n1,x\n2,x\n", None, "names one class only: x"),
        ("a,b\n1,x\n2,y\n", None, "fewer than 5 rows"),
        (",a,b\n0,1,x\n1,2,y\n", None, "column without a name, such as the row numbers"),
        ("a,b\n9,1,x\n9,2,y\n", None, "more cells than its header has names"),
        ("a\n1\n", None, "must have a header, two columns and a row"),
        ("", None, "cannot be read as a CSV file"),
    ],
)
def test_what_is_no_table_of_numbers_and_classes_is_refused(tmp_path, text, target, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises((InputError, FileFormatError), match=message):
        load_dataset(path, target=target)


def test_a_table_that_is_not_there_is_told_without_the_words_of_the_system(tmp_path):
    with pytest.raises(InputError, match=r"^there is no file .*none\.csv: name the CSV file"):
        load_dataset(tmp_path / "none.csv")


def test_a_target_is_for_tables():
    with pytest.raises(InputError, match="a column of a CSV file, which 'digits' is not"):
        load_dataset("digits", target="label")


def test_a_table_is_trained_and_judged_from_the_command_line(table, tmp_path):
    path, _, _ = table
    options = ["--data", path, "--target", "kind", "--hidden", 20, "--epochs", 20]
    run("train", *options, "--readout", "ridge", "--output", tmp_path / "run")
    recipe = json.loads((tmp_path / "run" / "metrics.json").read_text())["recipe"]
    # The preset of tables, which nobody had to name
    assert (recipe["energy"]["boson_weight"], recipe["weight_decay"], recipe["bias"]) == (
        0.3,
        0.001,
        True,
    )
    net, data = FermiBoseNet.load(tmp_path / "run"), load_dataset(path, target="kind")
    assert net.config["classes"] == ["no", "yes"]
    found = evaluate(net, data.x_test, data.y_test)
    assert found.accuracy == 1.0  # six deviations apart
    judged = ["evaluate", str(tmp_path / "run"), "--data", str(path), "--json"]
    told = json.loads(CliRunner().invoke(app, judged).stdout)
    assert told["class_accuracy"] == {"no": 1.0, "yes": 1.0}
    run("train", *options, "--boson-weight", 1, "--output", tmp_path / "own")
    own = json.loads((tmp_path / "own" / "metrics.json").read_text())["recipe"]
    assert own["energy"]["boson_weight"] == 1.0  # what is given is taken, also the usual value
