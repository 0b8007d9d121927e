"""Pairing. Oracles: np.roll for shifts, counting pairs by hand, the noise's own statistics."""

import numpy as np
import pytest
import torch

from fermibose.errors import InputError
from fermibose.machine import ByLabel, InputNoise, Noise, SelfSupervised, Shift
from fermibose.machine.local_rule import count_pairs


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def test_by_label_passes_the_batch_through(generator):
    x, y = torch.rand(4, 3), torch.tensor([0, 1, 1, 2])
    views, labels = ByLabel().views(x, y, generator)
    assert views is x
    assert labels is y


def test_self_supervised_pairs_each_input_with_its_own_copy_only(generator):
    x = torch.rand(5, 3)
    views, labels = SelfSupervised((Noise(0.1),)).views(x, torch.zeros(5, dtype=int), generator)
    assert torch.equal(views[:5], x)
    assert (views[5:] - x).abs().max() < 0.6  # row i + 5 is the copy of row i
    assert count_pairs(labels.numpy()) == (5, 40)
    assert labels.tolist() == [0, 1, 2, 3, 4] * 2


def test_shift_moves_the_image_and_fills_with_zeros(generator):
    image = np.zeros((7, 9), dtype=np.float32)
    image[2:5, 3:6] = np.arange(1, 10).reshape(3, 3)  # far enough from the rim not to be cut
    shifted = Shift((7, 9), 2)(torch.from_numpy(image.reshape(1, -1)).repeat(400, 1), generator)
    expected = {
        np.roll(image, (down, right), axis=(0, 1)).tobytes()
        for down in range(-2, 3)
        for right in range(-2, 3)
    }
    found = {row.numpy().reshape(7, 9).tobytes() for row in shifted}
    assert found == expected  # all 25 shifts occur, nothing else does


def test_shift_does_not_wrap_around(generator):
    rim = torch.zeros(1, 16)
    rim[0, :4] = 1.0  # the first row of a 4×4 image
    shifted = Shift((4, 4), 1)(rim.repeat(200, 1), generator).view(200, 4, 4)
    assert shifted[:, 3].sum() == 0
    assert {int(total) for total in shifted.sum((1, 2))} == {0, 3, 4}


def test_noise_has_the_stated_width_and_stays_in_range(generator):
    noisy = Noise(0.1)(torch.full((200, 100), 0.5), generator)
    assert noisy.std().item() == pytest.approx(0.1, rel=0.02)
    strong = Noise(2.0)(torch.full((50, 50), 0.5), generator)
    assert strong.min() == 0
    assert strong.max() == 1


def test_bad_transformations_are_named(generator):
    with pytest.raises(InputError, match="does not fit"):
        Shift((4, 4), 4)
    with pytest.raises(InputError, match="15 features, but images of shape"):
        Shift((4, 4), 1)(torch.rand(2, 15), generator)
    with pytest.raises(InputError, match="sigma"):
        Noise(-1.0)
    for sigma in ("0.2", None, float("nan")):
        with pytest.raises(InputError, match="sigma"):
            Noise(sigma)
        with pytest.raises(InputError, match="sigma"):
            InputNoise(sigma)
    for shape in (64, (8,), (8, 0), (8.0, 8.0), "88"):
        with pytest.raises(InputError, match="image_shape must be"):
            Shift(shape)
    for pixels in (-1, 1.5, "2"):
        with pytest.raises(InputError, match="a shift must be a whole number"):
            Shift((8, 8), pixels)
    for transforms in ((), Noise(), None, "noise"):
        with pytest.raises(InputError, match="a tuple of at least one"):
            SelfSupervised(transforms)
    for transform in (Noise, 0.2):
        with pytest.raises(InputError, match="a transformation must be one like"):
            SelfSupervised((transform,))


@pytest.mark.parametrize("change", [lambda x: 255 * x, lambda x: x - 0.1])
def test_noise_that_would_clip_the_inputs_themselves_is_refused(generator, change):
    """Not even without noise would the copy be the input."""
    x = torch.rand(40, 3, generator=generator)
    with pytest.raises(InputError, match=r"clipped to \[0, 1\], but the inputs range from"):
        SelfSupervised((Noise(0.0),)).views(change(x), torch.zeros(40), generator)
    with pytest.raises(InputError, match=r"clipped to \[0, 1\], but the inputs range from"):
        InputNoise(0.0)(None, change(x), None, generator)
    assert torch.equal(Noise(0.0)(x, generator), x)
    wide = InputNoise(0.0, bounds=(-0.1, 255.0))
    assert torch.equal(wide(None, change(x), None, generator), change(x))
