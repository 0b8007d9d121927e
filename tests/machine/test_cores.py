"""Several cores. Oracle: one core, to the bit; and the same formula in plain torch."""

import threading
import time
from dataclasses import replace

import pytest
import torch

from fermibose import PairEnergy
from fermibose.data import paper_split
from fermibose.machine import (
    Affine,
    Augmented,
    Conv,
    FreeEnergy,
    KernelRidge,
    LocalDense,
    Recipe,
    cores,
    local_rule,
    preset,
    train,
)
from fermibose.machine.cores import cut, on_threads, pieces_of, product, several
from fermibose.machine.loop import Adam

X, Y = (part[::5] for part in paper_split()[:2])
SHORT = {"epochs": 1, "readout_epochs": 1}
RECIPES = {
    "paper": Recipe(batch_size=100, **SHORT),
    "deep, odd widths": Recipe(hidden=(1001, 130), bias=True, batch_size=66, **SHORT),
    "table": Recipe(**SHORT | preset("table") | {"batch_size": 100}),
    "ridge": Recipe(hidden=(500,), readout="ridge", activation="tanh", **SHORT),
    "dense, robust": Recipe(
        **preset("robust", shape=(28, 28), dense=True)
        | {"epochs": 1, "hidden": (600,), "readout": KernelRidge(components=20, copies=1)}
    ),
    "convolutions": Recipe(
        **preset("robust", shape=(28, 28))
        | {"hidden": (Conv(8), Conv(12, size=3), 40), "epochs": 1}
        | {"readout": KernelRidge(components=20, copies=1, centres=60)}
    ),
    "accurate": Recipe(
        hidden=(Conv(8), 300),
        image_shape=(28, 28),
        energy=FreeEnergy(5.0),
        pairing=Augmented((Affine((28, 28)),)),
        **SHORT,
    ),
}


def bits(training):
    weights = {k: v.numpy().tobytes() for k, v in training.net.state_dict().items()}
    history = {s: {k: v.tobytes() for k, v in q.items()} for s, q in training.history.items()}
    return weights, history


@pytest.mark.parametrize("name", RECIPES)
def test_a_training_is_the_same_to_the_bit_on_one_two_and_four_threads(name):
    recipe = RECIPES[name]
    one, *others = (
        bits(train(X, Y, replace(recipe, threads=threads), test=(X[:50], Y[:50])))
        for threads in (1, 2, 4)
    )
    assert all(other == one for other in others)


def test_several_threads_share_the_pieces():
    """A meeting of all: each waits in its first piece until the others have begun one."""
    together = threading.Barrier(3, timeout=120)
    seen = set()

    def meet(piece):
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            together.wait()
        return piece

    with several(3):
        assert on_threads(meet, range(9)) == list(range(9))
    assert len(seen) == 3


@pytest.mark.parametrize(
    "shape", [(50, 600, 1000), (700, 100, 300), (3, 5, 2), (40, 3000, 130), (90, 700, 10)]
)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_product_in_pieces_is_the_product(shape, threads, monkeypatch):
    monkeypatch.setattr(cores, "PRODUCTS", 1 << 20)
    rows, inner, columns = shape
    g = torch.Generator().manual_seed(0)
    a, b = torch.rand(rows, inner, generator=g), torch.rand(inner, columns, generator=g)
    bias = torch.rand(columns, generator=g)
    place = torch.full((rows, columns), float("nan"))  # of what was there before
    with several(threads):
        plain, shifted = product(a, b), product(a, b, bias=bias)
        turned = product(b.T, a.T)
        product(a, b, factor=0.5, out=place)
        twice = product(a, b, bias=bias, factor=2)
    assert torch.equal(2 * place, plain)
    assert torch.equal(twice, 2 * shifted)
    wide = a.double() @ b.double()
    torch.testing.assert_close(plain.double(), wide, rtol=1e-5, atol=0)
    torch.testing.assert_close(shifted.double(), wide + bias, rtol=1e-5, atol=0)
    torch.testing.assert_close(turned.T.double(), wide, rtol=1e-5, atol=0)


def test_a_product_is_cut_alike_by_any_number_of_threads(monkeypatch):
    a, b = torch.rand(2000, 100), torch.rand(100, 200)
    monkeypatch.setattr(cores, "PRODUCTS", 1 << 20)
    piece = cores._product
    found = []
    for threads in (1, 2, 4):
        shapes = []

        def note(left, right, *others, shapes=shapes):
            shapes.append((tuple(left.shape), tuple(right.shape)))
            piece(left, right, *others)

        monkeypatch.setattr(cores, "_product", note)
        with several(threads):
            product(a, b)
        found.append(sorted(shapes))
    assert len(found[0]) > 1
    assert found[0] == found[1] == found[2]


def test_pieces_cover_everything_once_and_do_not_depend_on_threads():
    for length in (1, 15, 16, 17, 1000, 1001, 123_457):
        for pieces in (1, 2, 4, 32):
            parts = cut(length, pieces)
            assert [i for part in parts for i in range(length)[part]] == list(range(length))
            assert len(parts) <= pieces
            assert all(part.start % 16 == 0 for part in parts)
    assert [pieces_of(n, 100) for n in (0, 99, 100, 199, 200, 399, 400, 1000)] == (
        [1, 1, 1, 1, 2, 2, 4, 8]
    )


def test_adam_in_pieces_moves_every_number_as_torch_does(monkeypatch):
    monkeypatch.setattr(cores, "NUMBERS", 100)
    g = torch.Generator().manual_seed(0)
    shapes = (37, 29), (5,), (400,)
    ours = [torch.nn.Parameter(torch.randn(s, generator=g), requires_grad=False) for s in shapes]
    theirs = [torch.nn.Parameter(p.clone()) for p in ours]
    adam = Adam(ours, learning_rate=0.1, weight_decay=0.01)
    assert len(adam.pieces) > 4
    oracle = torch.optim.Adam(theirs, lr=0.1, weight_decay=0.01)
    with several(3):
        for _ in range(5):
            for p, q in zip(ours, theirs, strict=True):
                p.grad = torch.randn(p.shape, generator=g)
                q.grad = p.grad.clone()
            adam.step()
            oracle.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q.detach(), rtol=1e-5, atol=1e-6)


def test_work_inside_work_stays_on_its_thread_and_is_whole():
    """A crew that answered for work inside its work would hand it on half done."""
    caller = threading.get_ident()

    def slowly(piece):
        time.sleep(0.05 + 0.3 * piece)
        return threading.get_ident()

    def outer(_):
        if threading.get_ident() != caller:
            time.sleep(0.02)
            return None
        return on_threads(slowly, range(2))

    with several(2):
        found = [inner for inner in on_threads(outer, range(3)) if inner is not None]
    assert found
    assert all(inner == [caller, caller] for inner in found)


def test_an_error_in_a_helper_reaches_the_caller_and_the_crew_goes_on():
    caller = threading.get_ident()
    together = threading.Barrier(2, timeout=120)

    def fail(piece):
        together.wait()
        if threading.get_ident() != caller:
            raise ZeroDivisionError(f"piece {piece}")

    with several(2):
        for _ in range(3):
            with pytest.raises(ZeroDivisionError, match="piece"):
                on_threads(fail, range(2))
        assert on_threads(abs, range(6)) == list(range(6))


def test_helpers_flush_denormals_and_end_with_the_training():
    before = threading.active_count()
    caller = threading.get_ident()
    together = threading.Barrier(3, timeout=120)
    tiny = torch.full((4,), 1e-30)

    def vanish(_):
        together.wait()
        return threading.get_ident(), float((tiny * 1e-10).sum())  # 10⁻⁴⁰ is denormal

    with several(3):
        found = on_threads(vanish, range(3))
        assert threading.active_count() == before + 2
    assert [value for thread, value in found if thread != caller] == [0.0, 0.0]
    assert threading.active_count() == before


def test_strips_of_the_pair_matrix_give_the_force_of_the_whole(monkeypatch):
    g = torch.Generator().manual_seed(0)
    h, labels = torch.rand(120, 30, generator=g).double(), torch.arange(120) % 4
    for shift in (0.0, 50.0):  # where what all have in common is taken off first
        whole, report = local_rule.pair_force(h + shift, labels, PairEnergy())
        for strip in (120 * 7, 120 * 50, 1):
            with monkeypatch.context() as patch:
                patch.setattr(local_rule, "STRIP", strip)
                patch.setattr(local_rule, "BLOCK", 120 * 3)
                force, again = local_rule.pair_force(h + shift, labels, PairEnergy())
            torch.testing.assert_close(force, whole, rtol=1e-9, atol=1e-15)
            assert again == pytest.approx(report, rel=1e-9)


def test_a_layer_alone_learns_as_before_without_a_crew():
    layer = LocalDense(784, 64)
    layer.initialise(torch.Generator().manual_seed(0))
    x, y = torch.tensor(X[:40]), torch.tensor(Y[:40])
    layer.learn_from(x, y, PairEnergy())
    alone = layer.weight.grad.clone()
    with several(2):
        layer.learn_from(x, y, PairEnergy())
    assert torch.equal(layer.weight.grad, alone)
