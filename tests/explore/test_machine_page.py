"""Nets under attack. Oracles: logits of the net itself, gradients by autograd, PCA by NumPy."""

import re

import numpy as np
import pytest
import torch

from fermibose import FermiBoseNet
from fermibose.errors import InputError
from fermibose.explore import machine_page
from fermibose.explore.choices import ATTACKS, strengths
from fermibose.explore.machine_page import Course, contest, course, page
from fermibose.explore.serve import Settings


@pytest.fixture(scope="module")
def between(settings):
    return contest(settings)


def test_fgsm_is_one_signed_step_for_every_strength(between, settings):
    net = FermiBoseNet.load(settings.rival)
    found = course(between, "MLP", 12, "FGSM (ℓ∞)")
    x = torch.tensor(between.images[12:13], requires_grad=True)
    label = torch.tensor(between.labels[12:13])
    torch.nn.functional.cross_entropy(net(x), label).backward()
    for k in (0, 7, 30):
        wanted = (x + found.strengths[k] * x.grad.sign()).clamp(0, 1).detach()
        np.testing.assert_allclose(found.images[k], wanted[0], atol=1e-6)
        np.testing.assert_allclose(found.logits[k], net(wanted)[0], rtol=1e-4, atol=1e-4)
    assert found.strengths[7] == pytest.approx(0.07)


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_stays_within_its_strength(between, attack):
    found = course(between, "machine", 5, attack)
    change = found.images.astype(float) - between.images[5]
    assert found.images.min() >= 0
    assert found.images.max() <= 1
    np.testing.assert_array_equal(found.images[0], between.images[5])
    if ATTACKS[attack][0] == "linf":
        assert np.all(np.abs(change).max(1) <= found.strengths + 1e-6)
    if ATTACKS[attack][0] == "l2":
        assert np.all(np.linalg.norm(change, axis=1) <= found.strengths + 1e-5)
    assert np.abs(change[-1]).max() > 0.05


def test_the_plane_is_that_of_the_largest_variance(between, settings):
    net, plane = FermiBoseNet.load(settings.machine), between.planes["machine"]
    data = machine_page.load_dataset("digits")
    cloud, labels = machine_page._first(data, machine_page.CLOUD)
    h = net.represent(torch.tensor(cloud)).numpy().astype(float)
    values = np.sort(np.linalg.eigvalsh(np.cov(h.T)))[::-1]
    np.testing.assert_allclose(np.var(plane.points, axis=0, ddof=1), values[:2], rtol=1e-5)
    assert plane.share == pytest.approx(values[:2].sum() / values.sum(), rel=1e-5)
    assert between.cloud_names == [str(label) for label in labels]
    way = course(between, "machine", 0, "noise").way[0]  # the image itself is in the cloud
    np.testing.assert_allclose(way, plane.points[0], atol=1e-5)


def test_fooled_at_the_least_strength_with_a_wrong_answer():
    logits = np.array([[2.0, 1], [2, 1], [1, 2], [2, 1], [1, 2]])
    grid = np.array([0, 0.1, 0.2, 0.3, 0.4])
    found = Course(grid, np.zeros((5, 1), np.float32), logits, np.zeros((5, 2)), label=0)
    assert found.fooled_at == 0.2
    assert Course(grid, found.images, logits, found.way, label=1).fooled_at == 0
    assert Course(grid[:2], found.images, logits[:2], found.way, label=0).fooled_at is None


def test_the_page_says_what_the_nets_say(between, settings):
    html = page(between, 33, "FGSM (ℓ∞)", 0.15)
    for name, folder in (("machine", settings.machine), ("MLP", settings.rival)):
        found = course(between, name, 33, "FGSM (ℓ∞)")
        with torch.no_grad():
            said = int(FermiBoseNet.load(folder)(torch.tensor(found.images[15:16])).argmax())
        assert f'data-net="{name}" data-says="{said}"' in html
        right = "right" if said == between.labels[33] else "WRONG"
        assert f"{name} says {said}: {right}" in html
    assert re.search(r"ε = 0.15: the machine .*; the MLP ", html)


def test_an_image_that_is_misread_anyway_is_not_said_to_be_fooled():
    logits = np.array([[2.0, 1], [1, 2]])
    grid, images, way = np.array([0, 0.1]), np.zeros((2, 1), np.float32), np.zeros((2, 2))
    courses = {
        "machine": Course(grid, images, logits, way, label=0),
        "MLP": Course(grid, images, logits, way, label=1),
    }
    told = machine_page.summary(courses, 0, 0.1)
    assert "the machine is fooled from ε = 0.1 on; the MLP misreads it without any attack." in told


@pytest.mark.parametrize(
    ("image", "attack", "strength", "word"),
    [(100, "noise", 0.1, "from 0 to 99"), (-1, "noise", 0.1, "whole number"),
     ("/etc/passwd", "noise", 0.1, "whole number"), (1, "/etc/passwd", 0.1, "attack must be"),
     (1, "noise", 1e9, "finite number"), (1, "noise", "9" * 10**6, "finite number")],
)  # fmt: skip
def test_what_no_slider_says_is_refused(between, image, attack, strength, word):
    with pytest.raises(InputError, match=word) as caught:
        page(between, image, attack, strength)
    assert len(str(caught.value)) < 400


def test_missing_nets_are_told_how_to_make(settings, tmp_path):
    with pytest.raises(InputError, match="fbm demo"):
        contest(Settings(machine=str(tmp_path), rival=settings.rival))


def test_nets_of_other_images_are_refused(settings):
    with pytest.raises(InputError, match=r"takes 64 inputs.*784.*--data"):
        contest(Settings(machine=settings.machine, rival=settings.rival, data="mnist5k"))


def test_strengths_are_even():
    assert strengths("PGD (ℓ2)")[:3] == [0, 0.1, 0.2]
    assert len(strengths("noise")) == 31
