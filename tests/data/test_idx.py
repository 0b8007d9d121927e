"""IDX files. Oracle: files packed by hand with struct, and their numbers worked out in Python."""

import gzip
import struct
import time
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fermibose import checks
from fermibose.data import load_idx, read_idx
from fermibose.errors import FileFormatError, InputError

SMALL = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 20, 30, 40, 50, 255])  # 2 × 3


def test_file_written_byte_by_byte(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(SMALL)
    read = read_idx(path)
    assert read.dtype == np.uint8
    assert read.tolist() == [[10, 20, 30], [40, 50, 255]]
    read[0, 0] = 1  # the caller's own


def test_sizes_are_big_endian(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 1, 2]) + bytes(258))
    assert read_idx(str(path)).shape == (258,)


def test_gzip_is_told_by_content_not_by_name(tmp_path):
    plain_named_gz, gz_named_plain = tmp_path / "plain.gz", tmp_path / "compressed"
    plain_named_gz.write_bytes(SMALL)
    gz_named_plain.write_bytes(gzip.compress(SMALL))
    np.testing.assert_array_equal(read_idx(plain_named_gz), read_idx(gz_named_plain))


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=4, max_side=5)), st.booleans())
def test_any_array_comes_back(tmp_path_factory, idx_bytes, array, compress):
    path = tmp_path_factory.mktemp("idx") / "a"
    content = idx_bytes(array)
    path.write_bytes(gzip.compress(content) if compress else content)
    np.testing.assert_array_equal(read_idx(path), array, strict=True)


GZ = gzip.compress(SMALL, mtime=0)  # test names must not change from one process to the next


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\0\0\x08", "starts with 00 00 08"),
        (b"\x01" + SMALL[1:], "01 00 08 02"),
        (b"\0\0\x08\0" + SMALL[4:], "not an IDX file"),  # no dimensions
        (b"<html>404</html>", "web page"),
        (b"PK\x03\x04....", "zip archive"),
        (b"\0\0\x0d" + SMALL[3:], r"0x0d \(float32\)"),
        (b"\0\0\x42" + SMALL[3:], r"0x42 \(unknown\)"),
        (SMALL[:10], r"truncated: 10 bytes, its header alone has 12"),
        (SMALL[:-1], r"truncated: .* 2 × 3 = 6 bytes, it holds 5"),
        (SMALL + b"\0", r"trailing bytes: .* 2 × 3 = 6 bytes, it holds more"),
        (bytes([0, 0, 8, 2]) + b"\xff" * 8 + SMALL[12:], "no array holds"),  # sizes of 2^32 − 1
        (bytes([0, 0, 8, 4]) + bytes(4) + b"\xff" * 12, "no array holds"),  # and none of them
        (bytes([0, 0, 8, 65]) + b"\0\0\0\1" * 65 + b"x", "65 dimensions, which no array"),
        (bytes([0, 0, 8, 255]) + b"\0\0\0\1" * 255 + b"x", "255 dimensions, which no array"),
        (bytes([0, 0, 8, 2]) + b"\0\0\x20\0" * 2 + b"x", "truncated: .* it holds 1"),  # 67 MB
        (bytes([0, 0, 8, 2]) + b"\0\0\x40\0" * 2 + b"x", "268435456 bytes, but has only 13"),
        (GZ[:-4], "damaged gzip"),  # cut off
        (GZ[:-8] + bytes([GZ[-8] ^ 1]) + GZ[-7:], "damaged gzip"),  # wrong checksum
        (GZ[:10] + b"\xff" + GZ[11:], "damaged gzip"),  # bad block
    ],
)
def test_bad_file_is_named_with_what_was_found_and_the_remedy(tmp_path, content, says):
    path = tmp_path / "bad-file"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=says) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)
    assert "again" in str(caught.value) or "Convert" in str(caught.value)


@pytest.mark.parametrize(("name", "says"), [("none", "does not exist"), (".", "is a folder")])
def test_no_such_file(tmp_path, name, says):
    with pytest.raises(InputError, match=says):
        read_idx(tmp_path / name)


def test_folder(tmp_path, small, write_folder):
    x_train, y_train, x_test, y_test = load_idx(write_folder(tmp_path, small))
    assert [a.dtype for a in (x_train, x_test)] == [np.float32] * 2
    assert [a.dtype for a in (y_train, y_test)] == [np.int64] * 2
    # The float32 nearest to k/255: Python's own division, rounded once more by numpy.
    assert x_train.tolist() == [
        [float(np.float32((6 * i + j) / 255)) for j in range(6)] for i in range(6)
    ]
    assert y_train.tolist() == [1, 0, 1, 0, 0, 1]
    assert x_test[0, 0] == np.float32(232 / 255)
    assert x_test[-1, -1] == 1
    assert y_test.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("rename", [lambda n: n.replace("-idx", ".idx"), lambda n: n + ".gz"])
def test_folder_with_other_usual_names(tmp_path, small, write_folder, rename):
    write_folder(tmp_path / "plain", small)
    other = write_folder(tmp_path / "other", small)
    for path in list(other.iterdir()):
        content = path.read_bytes()
        name = rename(path.name)
        (other / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        path.unlink()
    for a, b in zip(load_idx(tmp_path / "plain"), load_idx(other), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


def test_missing_folder_and_missing_file(tmp_path, small, write_folder):
    with pytest.raises(InputError, match=r"nowhere does not exist.*four IDX files"):
        load_idx(tmp_path / "nowhere")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="file is not a folder"):
        load_idx(tmp_path / "file")
    folder = write_folder(tmp_path / "data", small)
    for name in [path.name for path in folder.iterdir()]:
        kept = (folder / name).read_bytes()
        (folder / name).unlink()
        with pytest.raises(InputError, match=rf"data has no file {name} .*Put the four"):
            load_idx(folder)
        (folder / name).write_bytes(kept)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("labels_train", np.zeros(5, np.uint8), "holds 6 images but train-labels.* holds 5 labels"),
        ("labels_test", np.zeros(9, np.uint8), "holds 4 images but t10k-labels.* holds 9 labels"),
        ("labels_train", np.zeros((6, 1), np.uint8), r"2 dimension\(s\); labels have 1"),
        ("images_train", np.zeros(6, np.uint8), r"1 dimension\(s\); images have 3"),
        ("images_test", np.zeros((4, 3, 2), np.uint8), "2 × 3 pixels, test images 3 × 2"),
    ],
)
def test_files_that_do_not_belong_together(tmp_path, small, write_folder, field, value, says):
    with pytest.raises(FileFormatError, match=says):
        load_idx(write_folder(tmp_path, small | {field: value}))


@pytest.mark.parametrize("announced", [7, 10**9, 2**32 - 1])
def test_a_gzip_bomb_is_refused_from_its_header_on(tmp_path, write_folder, small, announced):
    """3 GB of zeros in 3 MB; what is announced is read, what is not is not even decompressed."""
    path = write_folder(tmp_path, small) / "train-images-idx3-ubyte"
    made = zlib.compressobj(9, zlib.DEFLATED, 31)  # 31: gzip
    header = bytes([0, 0, 8, 3]) + struct.pack(">III", announced, 1, 1)
    start = made.compress(header) + made.flush(zlib.Z_FULL_FLUSH)
    zeros = made.compress(bytes(2**24)) + made.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(start + 180 * zeros + made.flush())
    assert path.stat().st_size < 4e6
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(FileFormatError, match=f"{announced} images but .* 6 labels"):
        load_idx(tmp_path)
    if announced == 7:
        with pytest.raises(FileFormatError, match="trailing bytes"):
            read_idx(path)
    assert time.process_time() - started < 1
    assert tracemalloc.get_traced_memory()[1] < 2e7
    tracemalloc.stop()


def test_more_than_the_memory_holds_is_refused_from_the_header_on(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "free_memory", lambda: 29.0)
    (tmp_path / "a").write_bytes(SMALL)
    with pytest.raises(InputError, match=r"a announces takes .* GB, more than .*smaller set"):
        read_idx(tmp_path / "a")  # six bytes, and six numbers of four bytes
    monkeypatch.setattr(checks, "free_memory", lambda: 30.0)
    assert read_idx(tmp_path / "a").shape == (2, 3)


def test_blank_images_in_a_thousandth_of_their_bytes_are_refused_unless_unpacked(tmp_path):
    """A bomb that announces all it holds."""
    content = bytes([0, 0, 8, 3]) + struct.pack(">III", 100_000, 28, 28) + bytes(78_400_000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content, 6))
    with pytest.raises(FileFormatError, match=r"78400000 bytes, but has only \d+: .*gunzip"):
        read_idx(tmp_path / "a.gz")
    (tmp_path / "a").write_bytes(content)
    assert not read_idx(tmp_path / "a").any()


@pytest.mark.parametrize("shape", [(6, 0, 3), (6, 2, 0)])
def test_images_without_pixels(tmp_path, small, write_folder, shape):
    empty = {"images_train": np.zeros(shape, np.uint8)}
    with pytest.raises(FileFormatError, match=rf"images of {shape[1]} × {shape[2]} pixels"):
        load_idx(write_folder(tmp_path, small | empty))


def test_no_images_at_all(tmp_path, small, write_folder):
    empty = {"images_test": np.zeros((0, 2, 3), np.uint8), "labels_test": np.zeros(0, np.uint8)}
    with pytest.raises(FileFormatError, match="t10k-images-idx3-ubyte holds no images"):
        load_idx(write_folder(tmp_path, small | empty))
