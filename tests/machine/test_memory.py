"""Memory: peak of a process that trains, and inputs that stay where they are, to the same bits.

The peak is that of a child process, with all it loads: torch alone takes 220 MB.
"""

import gzip
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from fermibose.data import map_idx, paper_split, read_idx
from fermibose.errors import FileFormatError, InputError
from fermibose.machine import (
    Affine,
    Augmented,
    FermiBoseNet,
    FreeEnergy,
    KernelRidge,
    Recipe,
    Rescaling,
    Streamed,
    evaluate,
    inputs,
    memory_of,
    train,
)

X, Y = (part[::4] for part in paper_split()[:2])
MIB = 1 << 20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peak memory is told elsewhere")


def peak(script, *arguments):
    """Peak resident memory, in MiB, of a process that runs the script.

    Not ru_maxrss, which begins with that of the process that started it.
    """
    end = "\nprint(*(line for line in open('/proc/self/status') if 'VmHWM' in line))"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script) + end, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout.split()[-2]) // 1024  # it ends with kB


def sparse(path, size):
    """A file of zeros that takes no room on the disc, but for what is written."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_sixty_thousand_images_in_a_file_train_within_their_size_and_300_mb(tmp_path):
    path = sparse(tmp_path / "images", 60_000 * 784)
    pixels = np.memmap(path, np.uint8, "r+", shape=(60_000, 784))
    pixels[::50] = (255 * X[np.arange(1200) % len(X)]).astype(np.uint8)
    pixels.flush()
    used = peak(
        """
        import sys, numpy as np
        from fermibose.machine import Recipe, Streamed, train
        pixels = np.memmap(sys.argv[1], np.uint8, "r", shape=(60_000, 784))
        recipe = Recipe(hidden=(1000,), epochs=1, readout_epochs=0, batch_size=500)
        train(Streamed(pixels, divisor=255), np.arange(60_000) % 10, recipe)
        """,
        path,
    )
    assert used <= 60_000 * 784 / MIB + 300


def test_a_table_trains_within_one_and_a_half_times_its_size_and_300_mb():
    used = peak(
        """
        import numpy as np
        from fermibose import FermiBoseClassifier
        x = np.random.default_rng(0).random((100_000, 1000), dtype=np.float32)
        model = FermiBoseClassifier((50,), epochs=1, readout_epochs=1, batch_size=2000)
        model.fit(x, x[:, 0] > 0.5)
        """
    )
    assert used <= 1.5 * 100_000 * 1000 * 4 / MIB + 300


def test_memory_does_not_grow_with_a_mapped_table(tmp_path):
    """1 GB of float32 in a fifth of that beside torch; 20 GB take as much (docs/scale.md)."""
    path = sparse(tmp_path / "table", 1_000 * 250_000 * 4)
    table = np.memmap(path, np.float32, "r+", shape=(1_000, 250_000))
    table[::100, ::50] = 1
    table.flush()
    used = peak(
        """
        import sys, numpy as np
        from fermibose.machine import Recipe, train
        x = np.memmap(sys.argv[1], np.float32, "r", shape=(1_000, 250_000))
        recipe = Recipe(hidden=(2,), epochs=1, readout_epochs=0, batch_size=20)
        train(x, np.arange(1_000) % 2, recipe)
        """,
        path,
    )
    assert used <= 228 + 200


def test_the_pairs_of_a_large_batch_are_never_all_in_memory():
    """8192 samples: their Gram matrix alone would take 256 MiB."""
    used = peak(
        """
        import torch
        from fermibose import PairEnergy
        from fermibose.machine.local_rule import pair_force
        h = torch.rand(8192, 8)
        pair_force(h, torch.arange(8192) % 10, PairEnergy())
        """
    )
    assert used <= 228 + 180


class Items(Dataset):
    """Images one by one, with their labels or without."""

    def __init__(self, x, y=None):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, number):
        image = torch.tensor(self.x[number]).reshape(28, 28)
        return image if self.y is None else (image, int(self.y[number]))


def held_elsewhere(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    return {
        "array": (X, Y),
        "mapped file": (mapped, Y),
        "doubles": (X.astype(np.float64), Y),
        "streamed": (Streamed(2 * X, divisor=2), Y),
        "scaled": (
            Streamed(
                4 * X.astype(np.float64) + 1,
                scaling=Rescaling("global", np.ones(784), np.full(784, 0.25)),
            ),
            Y,
        ),
        "images": (Streamed(X.reshape(-1, 28, 28)), Y),
        "dataset": (Items(X, Y), None),
        "dataset without labels": (Items(X), Y),
    }


RECIPES = {
    "cross-entropy": Recipe(hidden=(60, 40), epochs=2, readout_epochs=2),
    "kernel": Recipe(hidden=(60,), epochs=1, readout=KernelRidge(components=10, centres=50)),
}


@pytest.mark.parametrize("name", RECIPES)
def test_inputs_train_to_the_same_bits_wherever_they_are(name, tmp_path, monkeypatch):
    expected = train(X, Y, RECIPES[name], test=(X[:99], Y[:99]))
    kinds = held_elsewhere(tmp_path)
    monkeypatch.setattr(inputs, "HELD", 4 * 62 * len(X))  # inputs stay, representations are held
    for kind, (x, y) in kinds.items():
        found = train(x, y, RECIPES[name], test=(X[:99], Y[:99]))
        for key, value in expected.net.state_dict().items():
            assert torch.equal(found.net.state_dict()[key], value), (kind, key)
        for stage, record in expected.history.items():
            for quantity, values in record.items():
                np.testing.assert_array_equal(found.history[stage][quantity], values)


def test_representations_computed_each_time_are_those_that_are_held(monkeypatch):
    """Up to rounding: a GEMM may group a row's sums by the rows that it stands beside."""
    recipe = RECIPES["cross-entropy"]
    expected = train(X, Y, recipe).net.state_dict()
    monkeypatch.setattr(inputs, "HELD", 0)
    found = train(X, Y, recipe).net.state_dict()
    assert torch.equal(found["layers.0.weight"], expected["layers.0.weight"])
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("readout", ["ridge", "prototype", KernelRidge(components=30, centres=70)])
@pytest.mark.parametrize("classes", [None, tuple(range(1, 11))])
def test_a_readout_found_in_passes_is_that_of_all_at_once(readout, classes, monkeypatch):
    recipe = Recipe(hidden=(50,), epochs=1, readout=readout, class_weight=classes)
    expected = train(X, Y, recipe).net
    monkeypatch.setattr(inputs, "HELD", 0)
    monkeypatch.setattr("fermibose.machine.training.HELD", 0)
    monkeypatch.setattr(inputs, "ROWS", 16)  # many blocks
    found = train(X, Y, recipe).net
    with torch.no_grad():
        images = torch.tensor(X)
        torch.testing.assert_close(found(images), expected(images), rtol=2e-3, atol=2e-3)


def test_copies_of_keys_are_the_same_in_every_pass(monkeypatch):
    """Else the covariance would be of other copies than the regression."""
    recipe = Recipe(
        hidden=(40,),
        epochs=1,
        pairing=Augmented((Affine((28, 28)),)),
        readout=KernelRidge(components=20, centres=300, copies=2),
    )
    expected = train(X, Y, recipe).net
    monkeypatch.setattr("fermibose.machine.training.HELD", 0)
    found = train(X, Y, recipe).net
    with torch.no_grad():
        images = torch.tensor(X)
        torch.testing.assert_close(found(images), expected(images), rtol=2e-3, atol=2e-3)


def test_a_survey_in_blocks_is_that_of_the_whole(monkeypatch):
    monkeypatch.setattr(inputs, "ROWS", 3)
    survey = Streamed(X - 0.25).survey
    whole = torch.tensor(X - 0.25)
    assert (survey.low, survey.high) == (float(whole.min()), float(whole.max()))
    assert survey.mean_square == pytest.approx(float(whole.double().square().mean()), rel=1e-6)
    assert torch.equal(Streamed(X).survey.lit, torch.tensor((X != 0).any(0)))


def test_what_cannot_be_trained_on_is_named():
    class Endless(IterableDataset):
        def __iter__(self):
            yield from ()

    broken = X.copy()
    broken[7, 3] = np.nan
    for values, y, word in (
        (Endless(), None, "map-style"),
        (Items(X), None, "y is missing"),
        (X, None, "y is missing"),
        (Streamed(broken), Y, "NaN"),
        (Streamed(X), Y[:-1], "one whole number"),
    ):
        with pytest.raises(InputError, match=word):
            train(values, y, Recipe(hidden=(5,), epochs=1, readout_epochs=1))
    for values in (np.array(["a"]), [[1.0]], np.empty((0, 4))):
        with pytest.raises(InputError):
            Streamed(values)


class Given(Dataset):
    """Whatever items there are."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number], number % 2


def test_items_of_a_dataset_are_numbers_as_many_as_the_first():
    ragged = [np.zeros(4), np.zeros(4), np.zeros((5, 1))]
    for items, word in ((ragged, "item 2 .* 5 numbers, the first has 4"), (["a", "b"], "item 0")):
        with pytest.raises(InputError, match=word):
            train(Given(items), None, Recipe(hidden=(5,), epochs=1, readout_epochs=1))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.half, torch.float64])
def test_tensors_of_any_precision_are_read(kind):
    values = torch.tensor(X[:6] - 0.3).to(kind).requires_grad_()
    rows = torch.tensor([4, 1])
    for source in (Streamed(values), Streamed(Given(list(values)))):
        assert torch.equal(source.rows(rows), values[rows].detach().float())


def test_what_was_written_to_a_private_mapping_is_kept(tmp_path, monkeypatch):
    """Pages of a copy on write are nowhere else: they are not given back."""
    np.save(tmp_path / "x.npy", X)
    mine = np.load(tmp_path / "x.npy", mmap_mode="c")
    mine[0] = 0.5
    monkeypatch.setattr(inputs, "TOUCHED", 0)
    rows = torch.arange(3)
    assert torch.equal(Streamed(mine).rows(rows), Streamed(mine).rows(rows))
    assert mine[0].tolist() == [0.5] * 784
    assert Streamed(mine).pages is None
    assert Streamed(np.load(tmp_path / "x.npy", mmap_mode="r")).pages is not None


def test_an_idx_file_is_mapped_as_it_is_read(tmp_path):
    pixels = (255 * X).astype(np.uint8).reshape(-1, 28, 28)
    header = b"\0\0\x08\x03" + np.array(pixels.shape, ">u4").tobytes()
    path = tmp_path / "images"
    path.write_bytes(header + pixels.tobytes())
    mapped = map_idx(path)
    assert isinstance(mapped, np.memmap)
    np.testing.assert_array_equal(mapped, read_idx(path))
    path.write_bytes(header + pixels.tobytes()[:-1])
    with pytest.raises(FileFormatError, match="announces"):
        map_idx(path)
    path.write_bytes(gzip.compress(header + pixels.tobytes()))
    with pytest.raises(InputError, match="gunzip"):
        map_idx(path)


def test_the_memory_check_counts_pairs_and_weights():
    small = Recipe(hidden=(1000,), batch_size=50)
    weights = 4 * 784 * 1000
    assert memory_of(small, samples=1000, inputs=784) == pytest.approx(5 * weights, rel=0.2)
    large = Recipe(hidden=(1000,), batch_size=32_768)
    needed = memory_of(large, samples=100_000, inputs=784)
    assert 5 * weights + 32_768 * 4 * 2784 < needed < 1.5e9
    whole = Recipe(hidden=(1000,), batch_size=4096)  # a matrix of pairs for each of four blocks
    rest = 5 * weights + 4096 * 4 * 2784
    assert memory_of(whole, samples=100_000, inputs=784) == pytest.approx(rest + 5 * 2**26, rel=0.1)
    free = Recipe(hidden=(1000,), batch_size=32_768, energy=FreeEnergy())
    assert memory_of(free, samples=100_000, inputs=784) > 40 * 32_768**2


def test_a_net_is_evaluated_on_streamed_inputs_as_on_all_at_once():
    net = FermiBoseNet(784, (30,), 10)
    net.initialise(torch.Generator().manual_seed(0))
    at_once, streamed = evaluate(net, X, Y), evaluate(net, Items(X, Y), None)
    assert at_once.accuracy == streamed.accuracy
    assert (at_once.confusion == streamed.confusion).all()
