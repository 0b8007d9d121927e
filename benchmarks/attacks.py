"""Speed of the attacks, as ratios to bare passes of the same net measured in the same run.

    python benchmarks/attacks.py           print the ratios
    python benchmarks/attacks.py check     exit with 1 if one exceeds its limit

The net is the paper's 784-1000-10 on 4000 images. Labels are the net's own answers, so that every
image is attacked; PGD is given so small an ε that none ever leaves the batch: the most work there
can be. A ratio is the smallest of several repeats over the smallest of as many bare runs.
"""

import sys
import time
from collections.abc import Callable

import torch

from fermibose import FermiBoseNet
from fermibose.attacks import ThreatModel, accuracy_curve, pgd

IMAGES, BATCH, STEPS, STRENGTHS, REPEATS = 4000, 1000, 40, 80, 5
LIMITS = {"FGSM curve, 80 strengths": 1.2, "PGD-40, ℓ∞": 1.3, "PGD-40, ℓ2": 1.3}


def forward(net: FermiBoseNet, x: torch.Tensor) -> None:
    with torch.no_grad():
        for part in x.split(BATCH):
            net(part).argmax(1)


def forward_backward(net: FermiBoseNet, x: torch.Tensor, y: torch.Tensor) -> None:
    for part, labels in zip(x.split(BATCH), y.split(BATCH), strict=True):
        part = part.requires_grad_()
        torch.autograd.grad(torch.nn.functional.cross_entropy(net(part), labels), part)


def fastest(jobs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Shortest time of each job; the jobs take turns, so that all meet the same other load."""
    times: dict[str, float] = {}
    for _ in range(REPEATS):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            times[name] = min(times.get(name, float("inf")), time.perf_counter() - started)
    return times


def ratios() -> dict[str, float]:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    net = FermiBoseNet(784, (1000,), 10)
    net.initialise(generator)
    x = torch.rand(IMAGES, 784, generator=generator)
    y = net(x).argmax(1)
    tiny = 1e-7
    options = {"steps": STEPS, "losses": ("cross_entropy",), "batch_size": BATCH, "show": False}
    times = fastest(
        {
            "forward": lambda: forward(net, x),
            "both": lambda: forward_backward(net, x, y),
            "curve": lambda: accuracy_curve(
                net, x, y, ThreatModel("linf"), batch_size=BATCH, show=False
            ),
            "linf": lambda: pgd(net, x, y, ThreatModel("linf", tiny), **options),
            "l2": lambda: pgd(net, x, y, ThreatModel("l2", tiny), **options),
        }
    )
    backward = times["both"] - times["forward"]
    return {
        "FGSM curve, 80 strengths": times["curve"]
        / ((STRENGTHS + 1) * times["forward"] + backward),
        "PGD-40, ℓ∞": times["linf"] / (STEPS * times["both"]),
        "PGD-40, ℓ2": times["l2"] / (STEPS * times["both"]),
    }


def main() -> int:
    found = ratios()
    print(f"{'cost relative to bare passes of the net':42} ratio  limit")
    for name, ratio in found.items():
        print(f"{name:42} {ratio:5.2f}  {LIMITS[name]:5.2f}")
    slow = [name for name, ratio in found.items() if ratio > LIMITS[name]]
    if "check" in sys.argv[1:] and slow:
        print(f"too slow: {', '.join(slow)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
