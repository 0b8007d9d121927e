"""Augmentations against SciPy's transformations of images, and against what they promise."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from fermibose.errors import InputError
from fermibose.machine import Affine, Augmented, Crop, Elastic, Flip, Noise, Shift

SHAPE = (2, 11, 14)
ALL = [
    Affine(SHAPE), Elastic(SHAPE), Crop(SHAPE), Flip(SHAPE), Shift(SHAPE), Noise(0.1),
]  # fmt: skip


def images(seed=0, n=5, shape=SHAPE):
    g = torch.Generator().manual_seed(seed)
    smooth = ndimage.gaussian_filter(
        torch.rand(n, *shape, generator=g).double().numpy(), (0, 0, 1, 1)
    )
    return torch.tensor(smooth), g


@pytest.mark.parametrize("transform", ALL, ids=lambda t: type(t).__name__)
def test_a_copy_of_the_same_shape_from_the_generator_alone(transform):
    x, _ = images()
    before = x.clone()
    flat = [transform(x.flatten(1), torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(flat[0], flat[1])
    assert not torch.equal(flat[0], flat[2])
    assert torch.equal(transform(x, torch.Generator().manual_seed(1)).flatten(1), flat[0])
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    "transform",
    [
        Affine(SHAPE, 0, 0, 0, 0),
        Elastic(SHAPE, strength=0),
        Crop(SHAPE, 1),
        Shift(SHAPE, 0),
        Noise(0),
    ],
    ids=lambda t: type(t).__name__,
)
def test_nothing_asked_for_is_nothing_done(transform):
    x, g = images()
    torch.testing.assert_close(transform(x, g), x, atol=1e-12, rtol=0)


def test_an_affine_map_is_that_of_scipy():
    """One image: the drawn numbers are read from the generator, the map is applied by SciPy."""
    x, _ = images(3, n=1)
    transform = Affine(SHAPE, shift=1.5, angle=20, scale=0.2, shear=0.3)
    found = transform(x, torch.Generator().manual_seed(7))
    u = 2 * torch.rand(1, 5, generator=torch.Generator().manual_seed(7), dtype=x.dtype)[0] - 1
    angle, scale = float(u[0]) * np.radians(20), 1 + 0.2 * float(u[1])
    cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
    # (row, column) of the source = matrix (row, column) + offset, about the middle
    matrix = np.array([[cos, sin], [0.3 * float(u[2]) - sin, cos]])
    middle = (np.array(SHAPE[1:]) - 1) / 2
    offset = middle - matrix @ middle + 1.5 * u[3:].numpy()
    for channel in range(2):
        expected = ndimage.affine_transform(
            x[0, channel].numpy(), matrix, offset, order=1, mode="constant"
        )
        inside = np.s_[3:-3, 3:-3]  # torch lets the border fade out, SciPy cuts it
        np.testing.assert_allclose(found[0, channel].numpy()[inside], expected[inside], atol=1e-9)


def test_affine_amounts_reach_as_far_as_they_say():
    """Moments of a spot: its centre moves by up to ``shift`` pixels along each side, uniformly."""
    rows, columns = np.mgrid[:21, :21]
    spot = torch.tensor(np.exp(-((rows - 10) ** 2 + (columns - 10) ** 2) / 8.0))
    x = spot.repeat(4000, 1, 1, 1)
    moved = Affine((21, 21), shift=3, angle=0, scale=0, shear=0)(
        x, torch.Generator().manual_seed(0)
    )
    weight = moved[:, 0] / moved[:, 0].sum((1, 2), keepdim=True)
    for axis in (torch.tensor(rows), torch.tensor(columns)):
        centre = (weight * axis).sum((1, 2)) - 10
        assert float(centre.abs().max()) == pytest.approx(3, abs=0.02)
        assert float(centre.std()) == pytest.approx(3 / np.sqrt(3), rel=0.03)


def test_elastic_displacements_are_smooth_and_of_the_strength_asked_for():
    """Ramps show the displacement itself: each pixel tells where it came from."""
    n, side, strength = 300, 40, 1.5
    ramp = torch.arange(side, dtype=torch.float64).expand(n, side, side)
    both = torch.stack([ramp, ramp.mT], 1)  # column and row of every pixel
    moved = Elastic((2, side, side), strength, smoothness=5)(both, torch.Generator().manual_seed(1))
    inside = np.s_[:, :, 8:-8, 8:-8]
    field = (moved - both)[inside]
    rms = field.square().mean((1, 2, 3)).sqrt()
    assert float(rms.mean()) == pytest.approx(strength / 2, rel=0.1)  # uniform up to the strength
    neighbours = (field[..., 1:] - field[..., :-1]).square().mean() / field.square().mean()
    # Gaussian correlations e^{−d²/4s²}: ⟨(f(d) − f(0))²⟩ = 2(1 − e^{−1/4s²})⟨f²⟩
    assert float(neighbours) == pytest.approx(2 * (1 - np.exp(-1 / 100)), rel=0.25)


def test_a_crop_is_a_window_brought_to_full_size():
    n, side = 400, 30
    ramp = torch.arange(side, dtype=torch.float64).expand(n, 1, side, side)
    window = Crop((side, side), least=0.6)(ramp, torch.Generator().manual_seed(2))[:, 0, 15]
    slope = (window[:, 20] - window[:, 10]) / 10  # columns of the source per column
    assert 0.6 <= float(slope.min()) < 0.62
    assert 0.98 < float(slope.max()) <= 1 + 1e-9
    ends = window[:, 0], window[:, -1]
    assert float(torch.stack(ends).min()) >= -1e-9
    assert float(torch.stack(ends).max()) <= side - 1 + 1e-9


def test_half_of_the_images_are_mirrored():
    x, g = images(4, n=400)
    found = Flip(SHAPE)(x, g)
    kept = (found == x).flatten(1).all(1)
    mirrored = (found == x.flip(-1)).flatten(1).all(1)
    assert bool((kept ^ mirrored).all())
    assert 150 < int(kept.sum()) < 250


def test_a_shift_moves_all_channels_alike():
    x, g = images(5, n=50)
    found = Shift(SHAPE, 2)(x, g)
    for image, moved in zip(x, found, strict=True):
        wide = torch.nn.functional.pad(image, (2, 2, 2, 2))
        assert any(
            torch.equal(wide[:, r : r + 11, c : c + 14], moved) for r in range(5) for c in range(5)
        )


def test_augmented_pairs_keep_their_labels_and_compose():
    x, _ = images(6)
    y = torch.tensor([0, 1, 1, 2, 0])
    views, labels = Augmented((Flip(SHAPE), Shift(SHAPE, 1))).views(
        x.flatten(1), y, torch.Generator().manual_seed(3)
    )
    g = torch.Generator().manual_seed(3)
    assert torch.equal(views, Shift(SHAPE, 1)(Flip(SHAPE)(x.flatten(1), g), g))
    assert torch.equal(labels, y)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Affine((28,)),
        lambda: Affine((28, 28), angle=-1),
        lambda: Affine((28, 28), scale=1.5),
        lambda: Elastic((28, 28), smoothness=0),
        lambda: Crop((28, 28), least=0),
        lambda: Flip("28"),
        lambda: Augmented(()),
        lambda: Augmented((Affine,)),
        lambda: Affine((5, 5))(torch.rand(2, 24), torch.Generator()),
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(InputError):
        wrong()
