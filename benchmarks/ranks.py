"""What ranks say to each other in a step, how long it takes, and where more of them stop paying.

    torchrun --nproc-per-node 2 benchmarks/ranks.py    a step of one dense layer, 784-1000
    python benchmarks/ranks.py                         the same alone, and the estimate

The estimate takes a step of the dense layer for a batch B on K ranks as

    T(K) = [4 B d N + 4 B² N]/(K R) + 40 B²/(K M) + 28 d N/M
         + [B N 4 + 2 d N 4] (K−1)/(K W) + 2 log₂K α

with R the FLOP/s of a rank in GEMMs, M its memory's bytes/s, W the network's bytes/s for each rank
and α its latency. The terms: GEMMs of the layer and of the pairs; ten passes over a B×B matrix in
float32; Adam on all weights, on every rank the same; the gather of representations, the sum of
gradients. K pays as long as doubling it still saves a quarter of the time.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from fermibose import PairEnergy
from fermibose.machine import FreeEnergy, LocalDense, Ranks, compute_settings, joined
from fermibose.machine.loop import ALONE, Adam

D, N = 784, 1000
BATCHES = (1024, 4096)
ROUNDS = 5


@dataclass(frozen=True)
class Counting(Ranks):
    """Ranks whose messages are counted."""

    messages: Counter = field(default_factory=Counter)  # name → number, "bytes", "seconds"

    def _send(self, message: Callable[..., Any], *tensors: Any) -> None:
        started = time.perf_counter()
        super()._send(message, *tensors)
        parts = tensors[0] if isinstance(tensors[0], list) else tensors[:1]
        self.messages["seconds"] += time.perf_counter() - started
        self.messages["bytes"] += sum(part.nbytes for part in parts)
        self.messages[message.__name__] += 1


def step(batch: int, energy: PairEnergy | FreeEnergy, ranks: Counting) -> Callable[[], None]:
    """One step of the layer and its Adam."""
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.rand(batch, D, generator=generator), torch.arange(batch) % 10
    layer = LocalDense(D, N)
    layer.initialise(generator)
    optimiser, own = Adam(layer.parameters(), learning_rate=0.01), ranks.part(x)

    def take() -> None:
        if ranks.count == 1:
            layer.learn_from(x, labels, energy)
        else:
            layer.learn_from(own, labels, energy, ranks=ranks)
        optimiser.step()

    return take


def measure(ranks: Ranks) -> None:
    """Print messages, bytes and seconds of a step."""
    for energy in (PairEnergy(), FreeEnergy()):
        for batch in BATCHES:
            counting = Counting(ranks.rank, ranks.count)
            take = step(batch, energy, counting)
            take()
            counting.messages.clear()
            started = time.perf_counter()
            for _ in range(ROUNDS):
                take()
            seconds = (time.perf_counter() - started) / ROUNDS
            per = {name: value / ROUNDS for name, value in counting.messages.items()}
            waited, size = per.pop("seconds", 0.0), per.pop("bytes", 0.0)
            if ranks.first:
                told = ", ".join(f"{count:g} {name}" for name, count in per.items()) or "none"
                print(
                    f"{type(energy).__name__}, batch {batch}, {ranks.count} ranks: "
                    f"{seconds * 1e3:.0f} ms a step, {waited * 1e3:.0f} of them in messages "
                    f"({told}; {size / 1e6:.2f} MB)"
                )


class Hardware(NamedTuple):
    """What the estimate assumes of one rank."""

    name: str
    flops: float  # R, float32 GEMM
    memory: float  # M, bytes/s
    network: float  # W, bytes/s for each rank, in and out
    latency: float  # α, seconds a hop


HARDWARE = (
    Hardware("core, 10 Gbit/s", 50e9, 5e9, 1.25e9 / 16, 30e-6),  # 16 cores share a network card
    Hardware("16 cores, 100 Gbit/s", 800e9, 80e9, 12.5e9, 5e-6),
    Hardware("GPU, 400 Gbit/s", 15e12, 1.5e12, 50e9, 10e-6),
)


def estimate(batch: int, ranks: int, of: Hardware) -> float:
    """T(K), seconds of a step."""
    work = 4 * batch * D * N + 4 * batch**2 * N
    passes = 40 * batch**2 / of.memory
    adam = 28 * D * N / of.memory
    moved = 4 * (batch * N + 2 * D * N) * (ranks - 1) / ranks / of.network
    return (work / of.flops + passes) / ranks + adam + moved + 2 * math.log2(ranks) * of.latency


def pays_up_to(batch: int, of: Hardware) -> int:
    """The largest power of 2 that is at least 4/3 times as fast as half as many ranks."""
    ranks = 1
    while estimate(batch, 2 * ranks, of) < 0.75 * estimate(batch, ranks, of):
        ranks *= 2
    return ranks


def table() -> list[str]:
    """The estimate, as it stands in docs/ranks.md."""
    lines = ["| rank | batch | 1 rank | speed-up on 8 | on 64 | on 512 | pays up to |"]
    lines.append("|---|---|---|---|---|---|---|")
    for of in HARDWARE:
        for batch in (4096, 65536):
            one = estimate(batch, 1, of)
            gains = [f"{one / estimate(batch, k, of):.1f}" for k in (8, 64, 512)]
            cells = [of.name, f"{batch:,}", f"{one:.3g} s", *gains, str(pays_up_to(batch, of))]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    with joined() as ranks, compute_settings(1), torch.no_grad():
        measure(ranks)
    if ranks == ALONE:
        print("\n".join(table()))
