"""Draws rule.png: the energy of a pair, the forces it makes among representations, and what they
lead to.

    python docs/figures/rule.py

The points are those of a real layer of two units (fermibose.machine.LocalDense) on two classes
in the plane, and the arrows are the forces it feels, −∂L/∂h of `pair_force`.
"""

from pathlib import Path

import numpy as np
import torch

from fermibose import PairEnergy
from fermibose.machine import LocalDense
from fermibose.machine.local_rule import pair_force
from fermibose.plotting import COLOURS, figure

ENERGY = PairEnergy(d_f=0.4, boson_weight=0.3)
STEPS = 60
MARKS = (("o", COLOURS["machine"]), ("s", COLOURS["baseline"]))


def draw_energy(ax):
    d2 = np.linspace(0, 0.8, 200)
    for kind, same in (("boson", 1), ("fermion", 0)):
        energy = PairEnergy(d_f=0.4).energy(d2, np.full_like(d2, same))
        ax.plot(d2, energy, color=COLOURS[kind], lw=2.5)
    ax.text(0.52, 0.60, "boson pair:\nsame class,\nattracts", color=COLOURS["boson"], ha="right")
    ax.text(0.04, 0.42, "fermion pair:\nother class, repels\nup to $d_F$", color="#9A4A77")
    ax.set(xlabel="squared distance D²", ylabel="energy of the pair", xticks=[0, 0.4, 0.8])
    ax.set_xticklabels(["0", "$d_F$", ""])
    ax.set(ylim=(0, 0.8), yticks=[0, 0.4, 0.8])
    ax.set_title("1  Every pair has an energy")


def draw_points(ax, h, labels, title):
    for label, (mark, colour) in enumerate(MARKS):
        look = {"marker": mark, "color": colour, "s": 42, "zorder": 3, "clip_on": False}
        ax.scatter(*h[labels == label].T, label=f"class {label + 1}", **look)
    ax.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 1], yticks=[0, 1], aspect="equal")
    ax.set(xlabel="unit 1", ylabel="unit 2")
    ax.set_title(title)


def main():
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(12) % 2
    centres = torch.tensor([[0.35, 0.2, 0.5], [-0.35, 0.2, -0.4]])
    x = centres[labels] + 0.45 * torch.randn(12, 3, generator=generator)
    layer = LocalDense(3, 2)
    layer.initialise(generator)
    before = layer(x)
    force, _ = pair_force(before.clone(), labels, ENERGY)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(STEPS):
        layer.learn_from(x, labels, ENERGY)
        optimiser.step()
    with figure(Path(__file__).with_name("rule.png"), columns=3, size=(11.5, 3.6)) as (_, grid):
        draw_energy(grid[0, 0])
        draw_points(grid[0, 1], before, labels, "2  Its forces act on a layer's output")
        arrows = -force / force.norm(dim=1).max() * 0.14  # none leaves the panel
        grid[0, 1].quiver(
            *before.T, *arrows.T, angles="xy", scale_units="xy", scale=1,
            width=0.009, color="#555555",
        )  # fmt: skip
        draw_points(grid[0, 2], layer(x), labels, "3  The layer learns, alone")
        grid[0, 2].legend(loc="upper right")


if __name__ == "__main__":
    main()
