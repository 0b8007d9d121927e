"""Several ranks give what one gives; oracles: autograd of the pair loss, one process, counting.

Most ranks here are threads (``rank_threads.py``); the last tests start real ones by torchrun.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rank_job import RECIPES, weights
from rank_threads import together
from safetensors import safe_open
from safetensors.torch import load_file

from fermibose import PairEnergy
from fermibose.errors import FermiboseError, InputError
from fermibose.machine import FreeEnergy, LocalConv, LocalDense, PairLoss, RankLost, Ranks
from fermibose.machine.adversary import LocalAdversary
from fermibose.machine.checkpoint import Checkpoint, Position
from fermibose.machine.local_rule import LocalLayer
from fermibose.machine.loop import ALONE, Adam
from fermibose.machine.ranks import SharedCheckpoint, backend_for, device_of
from fermibose.threat import ThreatModel

ENERGIES = [
    PairEnergy(0.4),
    PairEnergy(0.4, coupling="averaged", softness=0.1),
    FreeEnergy(2.0, boson_weight=0.7),
]
LIMIT = 200  # seconds for one torchrun on a busy machine; alone it needs ten
RUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
HERE = Path(__file__).parent


def layer_of(kind: str) -> LocalLayer:
    layer = (
        LocalDense(36, 5, bias=True) if kind == "dense" else LocalConv((6, 6), 3, size=3, head=2)
    )
    layer.initialise(torch.Generator().manual_seed(3))
    return layer.double()


def batch_of(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    x = torch.rand(size, 36, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 3, (size,), generator=generator)


@pytest.mark.parametrize("energy", ENERGIES, ids=["labelled", "averaged", "free"])
@pytest.mark.parametrize("kind", ["dense", "convolution"])
@pytest.mark.parametrize(("size", "count"), [(12, 1), (12, 4), (11, 3), (5, 4), (3, 5), (1, 2)])
def test_gradient_is_that_of_the_pair_loss(energy, kind, size, count):
    """Unequal shards, ranks without a row (3 for 5), a batch without a pair: (1, 2)."""
    x, labels = batch_of(size)
    oracle = layer_of(kind)
    oracle.requires_grad_(True)
    h = oracle.head(oracle(x))
    (PairLoss(energy)(h, labels) + 0.3 * h.abs().mean()).backward()

    def work(ranks: Ranks):
        layer = layer_of(kind)
        report = layer.learn_from(ranks.part(x), labels, energy, ranks=ranks, activity=0.3)
        return [p.grad for p in layer.parameters()], report

    found, _ = together(count, work)
    loss = float(PairLoss(energy)(h.detach(), labels))
    for gradients, report in found:
        for gradient, parameter in zip(gradients, oracle.parameters(), strict=True):
            torch.testing.assert_close(gradient, parameter.grad, rtol=1e-9, atol=1e-12)
        assert report.energy == pytest.approx(loss, abs=1e-12)
        same = labels[:, None] == labels
        assert report.n_boson == int(same.triu(1).sum())
        assert report.n_fermion == int((~same).triu(1).sum())
        d2 = torch.cdist(h.detach(), h.detach()).square() / h.shape[1]
        expected = d2[(~same).triu(1)].mean()
        assert report.fermion_distance == pytest.approx(float(expected), abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("energy", ENERGIES, ids=["labelled", "averaged", "free"])
@pytest.mark.parametrize(
    "roles", [{}, {"own": True}, {"extra": True}, {"extra": True, "own": True}]
)
def test_queries_and_their_adversary_are_those_of_one_process(energy, roles):
    (x, labels), count = batch_of(7), 3
    alone = layer_of("dense")
    adversary = LocalAdversary(ThreatModel("l2", 0.5), steps=2, **roles)

    def perturbed(layer: LocalLayer, ranks: Ranks) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        return adversary.perturb(layer, x, labels, energy, generator, ranks)

    expected = perturbed(alone, ALONE)
    report = alone.learn_from(x, labels, energy, perturbed=expected, activity=0.2, **roles)

    def work(ranks: Ranks):
        layer = layer_of("dense")
        queries = perturbed(layer, ranks)
        queried = {"perturbed": queries, "activity": 0.2, **roles}
        got = layer.learn_from(ranks.part(x), labels, energy, ranks=ranks, **queried)
        return queries, layer.weight.grad, got

    found, _ = together(count, work)
    for rank, (queries, gradient, got) in enumerate(found):
        rows = expected[Ranks(rank, count).share(7)]
        torch.testing.assert_close(queries[: len(rows)], rows)
        torch.testing.assert_close(gradient, alone.weight.grad, rtol=1e-9, atol=1e-13)
        assert got == pytest.approx(report, rel=1e-9)


def test_blocks_of_rows_make_no_difference(monkeypatch):
    x, labels = batch_of(12)

    def gradients():
        def work(ranks: Ranks):
            layer = layer_of("dense")
            layer.learn_from(ranks.part(x), labels, ENERGIES[0], ranks=ranks)
            return layer.weight.grad

        return together(2, work)[0][1]

    whole = gradients()
    monkeypatch.setattr("fermibose.machine.queries.BLOCK", 12 * 4)
    torch.testing.assert_close(gradients(), whole, rtol=1e-12, atol=1e-15)


def test_a_step_is_two_messages_of_known_size():
    """One gather of representations and one sum of gradients, with three numbers to report."""
    size, inputs, units = 10, 36, 5
    x, labels = batch_of(size)

    def step(energy):
        def work(ranks: Ranks):
            layer = layer_of("dense").float()
            layer.learn_from(ranks.part(x.float()), labels, energy, ranks=ranks)

        return together(4, work)[1].messages

    rows = 4 * -(-size // 4)  # 12, for every rank sends as many
    gather = ("all_gather", 4 * rows * units)
    gradient = ("all_reduce", 4 * (inputs * units + units + 3))
    assert step(PairEnergy()) == [gather, gradient]
    # Also: the mean distance and two counts; the energy and its slope; the forces on the keys
    free = [("all_reduce", 4 * 3), ("all_reduce", 4 * 2), ("all_reduce", 4 * size * units)]
    assert step(FreeEnergy()) == [gather, *free, gradient]


def test_rows_are_shared_out_and_come_back():
    for count in (1, 2, 3, 5, 8):
        for size in (1, 2, 7, 8, 9):
            rows = torch.arange(float(size))[:, None]
            parts = [Ranks(r, count).part(rows) for r in range(count)]
            assert {len(part) for part in parts} == {-(-size // count)}
            shares = [range(size)[Ranks(r, count).share(size)] for r in range(count)]
            assert [i for share in shares for i in share] == list(range(size))
            back, _ = together(
                count, lambda ranks, rows=rows, size=size: ranks.gather(ranks.part(rows), size)
            )
            assert all(torch.equal(each, rows) for each in back)


def test_what_the_first_rank_has_counts(tmp_path):
    def work(ranks: Ranks):
        tensor = torch.full((3,), float(ranks.rank))
        ranks.same([tensor])
        return tensor

    assert all(torch.equal(each, torch.zeros(3)) for each in together(3, work)[0])


def test_checkpoint_is_written_by_the_first_rank_only(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(
        "fermibose.machine.checkpoint.Checkpoint.save",
        lambda self, *state, force: written.append(self.ranks.rank),
    )
    for rank in range(3):
        SharedCheckpoint(tmp_path / "c", "", Ranks(rank, 3)).save(None, None, force=True)
    assert written == [0]


def test_all_ranks_go_on_from_what_the_first_has_read(tmp_path):
    """Also an error is everybody's, though only the first rank sees the file."""

    def read(ranks: Ranks):
        path = tmp_path / "c" if ranks.first else tmp_path / "on another machine"
        keeper = SharedCheckpoint(path, "known", ranks)
        net, generator, records = torch.nn.Linear(2, 2), torch.Generator(), {}
        if not keeper.exists():
            return None
        try:
            position = keeper.restore(net, generator, records, stages=3)
        except FermiboseError as error:
            return str(error)
        return position, net.weight, generator.initial_seed(), records

    assert together(3, read)[0] == [None] * 3
    optimiser = Adam(layer_of("dense").parameters(), learning_rate=0.1)
    net, generator = torch.nn.Linear(2, 2), torch.Generator().manual_seed(7)
    state = net, optimiser, generator, {"layer 1": {"energy": [0.5]}}, Position(1, 4)
    Checkpoint(tmp_path / "c", "known").save(*state, force=True)
    for found in together(3, read)[0]:
        position, weight, seed, records = found
        assert position == (1, 4)
        assert torch.equal(weight, net.weight)
        assert seed == 7
        assert records == {"layer 1": {"energy": [0.5]}}
    (tmp_path / "c").write_bytes(b"nothing")
    assert all("not a readable checkpoint" in found for found in together(3, read)[0])


def test_a_rank_with_other_data_is_refused(monkeypatch):
    ranks = Ranks(1, 2)
    monkeypatch.setattr(Ranks, "_send", lambda self, message, box, source: box.__setitem__(0, "a"))
    ranks.check_same("a")
    with pytest.raises(InputError, match="rank 1 has other data or settings than rank 0"):
        ranks.check_same("b")


def test_errors_of_the_first_rank_and_of_the_network(monkeypatch):
    error = FermiboseError("the checkpoint is damaged")
    monkeypatch.setattr("torch.distributed.broadcast_object_list", lambda box, source: None)
    with pytest.raises(FermiboseError, match="damaged"):
        Ranks(0, 2).told(error)

    def broken(*parts):
        raise RuntimeError("Connection reset by peer")

    monkeypatch.setattr("torch.distributed.all_reduce", broken)
    with pytest.raises(RankLost, match=r"a rank was lost.*same command goes on"):
        Ranks(0, 2).total(torch.zeros(1))


def test_messages_follow_the_device():
    assert (backend_for("cpu"), backend_for("cuda:1")) == ("gloo", "nccl")


def test_each_rank_has_a_gpu_of_its_own(monkeypatch):
    assert device_of("cpu").type == "cpu"
    monkeypatch.setenv("LOCAL_RANK", "3")
    with pytest.raises(InputError, match="there is no device 'cuda:3' here"):
        device_of("cuda")


def environment() -> dict[str, str]:
    """One thread each, as in the tests' own process."""
    return os.environ | {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}


def torchrun(count: int, *command: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*RUN, "--nproc-per-node", str(count), *command],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def assert_as_alone(found: dict[str, torch.Tensor], name: str) -> None:
    alone = weights(RECIPES[name], ALONE)
    assert set(found) == set(alone)
    for key, value in alone.items():
        torch.testing.assert_close(
            found[key], value, rtol=0, atol=1e-6, equal_nan=True, msg=f"{name}: {key}"
        )


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("count", [2, 4])
def test_trainings_end_with_the_weights_of_one_process(name, count):
    for found in together(count, lambda ranks: weights(RECIPES[name], ranks))[0]:
        assert_as_alone(found, name)


def test_trainings_by_torchrun_do_so_too(tmp_path):
    job = torchrun(2, str(HERE / "rank_job.py"), str(tmp_path))
    output, _ = job.communicate(timeout=LIMIT)
    assert job.returncode == 0, output
    for name in RECIPES:
        for rank in range(2):
            assert_as_alone(load_file(tmp_path / f"{name}.{rank}.safetensors"), name)


def test_a_killed_rank_ends_the_job_and_another_number_of_ranks_goes_on(tmp_path):
    """One clear line and the last checkpoint; then one process ends what two began."""
    checkpoint = tmp_path / "checkpoint.safetensors"
    options = "train --data digits --hidden 8 --epochs 8 --batch-size 500 --readout ridge --output"
    command = [*options.split(), str(tmp_path)]
    job = torchrun(2, str(HERE / "rank_victim.py"), "5", *command)
    output, _ = job.communicate(timeout=LIMIT)
    told = [line for line in output.splitlines() if line.startswith("error:")]
    assert job.returncode != 0
    assert len(told) == 1, output
    assert "a rank was lost" in told[0]
    assert "same command goes on" in told[0]
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.name]
    with safe_open(checkpoint, framework="pt") as file:
        epochs = json.loads(file.metadata()["position"])[1]
        before = file.get_tensor("records.layer 1.energy").tolist()
    assert epochs == 4  # the fifth could not be agreed upon
    assert len(before) == 3 * epochs

    again = [sys.executable, "-m", "fermibose", *command]
    subprocess.run(again, env=environment(), check=True, timeout=LIMIT, capture_output=True)
    energy = json.loads((tmp_path / "metrics.json").read_text())["history"]["layer 1"]["energy"]
    assert energy[: len(before)] == before
    assert len(energy) == 3 * 8
    assert energy[-1] < before[-1] < before[0]
    assert not checkpoint.exists()
