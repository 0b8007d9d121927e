"""What test_ranks.py starts by torchrun: trainings in float64, to be compared with those alone."""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from fermibose import PairEnergy
from fermibose.machine import (
    Affine,
    Augmented,
    Conv,
    FreeEnergy,
    LocalAdversary,
    Ranks,
    Recipe,
    SelfSupervised,
    joined,
)
from fermibose.machine.inputs import Held, as_tensors
from fermibose.machine.loop import train_stages
from fermibose.machine.training import CrossEntropyReadout, LayerStage, new_net
from fermibose.threat import ThreatModel

SIDE, SAMPLES = 8, 23
COMMON = {"batch_size": 10, "epochs": 3, "readout_epochs": 3}
RECIPES = {  # the last batch of 23 samples has 3: fewer than 4 ranks
    "hinge": Recipe(hidden=(12, 8), bias=True, activity=0.1, **COMMON),
    "averaged": Recipe(hidden=(12,), energy=PairEnergy(coupling="averaged"), **COMMON),
    "self-supervised": Recipe(hidden=(12,), pairing=SelfSupervised(), **COMMON),
    "convolution": Recipe(
        hidden=(Conv(4, size=3), 6),
        image_shape=(SIDE, SIDE),
        energy=(FreeEnergy(2.0), PairEnergy(0.4, softness=0.1)),
        adversary=(LocalAdversary(ThreatModel("linf", 0.1), own=True, extra=True), None),
        pairing=Augmented((Affine((SIDE, SIDE)),)),
        schedule="cosine",
        averaging=0.9,
        **COMMON,
    ),
}


def images() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    y = torch.arange(SAMPLES) % 3
    x = torch.rand(SAMPLES, SIDE * SIDE, generator=generator) * 0.5 + 0.2 * y[:, None]
    x[:, ::6] = 0  # pixels that are never lit: their weights are set apart
    return as_tensors(x.numpy(), y.numpy())


def weights(recipe: Recipe, ranks: Ranks) -> dict[str, torch.Tensor]:
    """What a training in float64 ends with: in float32 Adam takes rounding for a gradient."""
    x, y = images()
    net, generator = new_net(x, y, recipe)
    net, x = net.double(), x.double()
    stages = [
        lambda number=number: LayerStage(net, number, Held(x), y, recipe, generator, ranks)
        for number in range(len(recipe.hidden))
    ]
    stages.append(lambda: CrossEntropyReadout(net, Held(x), y, recipe, generator, ranks=ranks))
    records = {}
    with torch.no_grad():
        train_stages(
            net,
            stages,
            batch_size=recipe.batch_size,
            generator=generator,
            records=records,
            ranks=ranks,
        )
    found = {f"net.{name}": value for name, value in net.state_dict().items()}
    for stage, quantities in records.items():
        for name, values in quantities.items():
            found[f"{stage}.{name}"] = torch.tensor(values, dtype=torch.float64)
    return found


def main(folder: Path) -> None:
    with joined() as ranks:
        assert ranks.count > 1
        for name, recipe in RECIPES.items():
            save_file(weights(recipe, ranks), folder / f"{name}.{ranks.rank}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
