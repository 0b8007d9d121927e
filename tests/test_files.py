"""Files replaced whole or not at all. Oracles: what is on disk after success and after failure."""

import json

import pytest

from fermibose.files import replacing, write_json


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
