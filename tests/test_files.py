"""Files replaced whole or not at all. Oracles: what is on disk after success and after failure."""

import hashlib
import json

import numpy as np
import pytest

from fermibose.files import SEAL, UNSEALED, is_sealed, read_json, replacing, seal, write_json


def test_the_draft_takes_the_place_of_the_file(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with replacing(path) as draft:
        draft.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("problem", [OSError, KeyboardInterrupt])
def test_after_an_error_the_old_file_stands_and_no_draft_is_left(tmp_path, problem):
    path = tmp_path / "file.txt"
    path.write_text("old")

    def fail():
        with replacing(path) as draft:
            draft.write_text("half of the n")
            raise problem

    with pytest.raises(problem):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


def test_an_error_names_the_file_and_not_its_draft(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as found:
        write_json(tmp_path / "folder", 1)
    assert str(found.value) == f"[Errno 21] Is a directory: '{tmp_path / 'folder'}'"


def test_json_refuses_nan_before_anything_is_written(tmp_path):
    path = tmp_path / "numbers.json"
    write_json(path, {"a": [1.5, None]})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": [1.5, None]}


def test_numbers_and_arrays_of_numpy_are_written_as_numbers(tmp_path):
    write_json(tmp_path / "a", {"a": np.float32(0.5), "b": np.arange(3), "c": tmp_path})
    assert json.loads((tmp_path / "a").read_text()) == {
        "a": 0.5,
        "b": [0, 1, 2],
        "c": str(tmp_path),
    }
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "a", {"a": np.array([np.nan])})


def test_a_seal_is_the_sha256_of_all_that_stands_around_it(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {SEAL: UNSEALED, "more": {SEAL: UNSEALED}, "é": 1e-5})
    assert is_sealed(path) is False
    before = path.read_bytes()
    seal(path)
    content = path.read_bytes()
    around = before.replace(UNSEALED.encode(), b"", 1)
    assert json.loads(content)[SEAL] == hashlib.sha256(around).hexdigest()
    assert json.loads(content)["more"] == {SEAL: UNSEALED}  # the first is the seal
    assert is_sealed(path) is True
    path.write_bytes(content + b" ")
    assert is_sealed(path) is False


@pytest.mark.parametrize("content", [b"", b"{}", b'{"checksum": "abc"}'])
def test_a_file_without_a_seal_is_told_from_a_damaged_one(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert is_sealed(tmp_path / "a") is None


@pytest.mark.parametrize("bad", [b"", b"{", b"[NaN]", b"[-Infinity]", b"\xff", b"[" * 10**6])
def test_what_is_not_proper_json_is_a_value_error(bad):
    with pytest.raises(ValueError, match=r"."):
        read_json(bad)


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path):
    """The system's error of a write has no file name."""
    with (
        pytest.raises(OSError, match=r"No space left on device: '.*figure\.png'"),
        replacing(tmp_path / "figure.png"),
    ):
        raise OSError(28, "No space left on device")
