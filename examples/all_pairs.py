"""What is gained by using every pair of the samples?

One unit with very many weights learns two Gaussian clusters from n = γN samples. In the paper's
theory each sample is in one pair only; the machine uses every pair. Theory and a simulation of
both, side by side.
"""

# %%
# The theory of both, for the same samples: γ samples per weight make α = γ/2 disjoint pairs.

from fermibose.theory import Problem, solve

print("samples per weight    disjoint pairs       all pairs")
for gamma in (0.5, 1, 2, 5):
    disjoint = solve(Problem(alpha=gamma / 2))
    every = solve(Problem(samples=gamma, pairing="all"))
    print(
        f"{gamma:18g}    accuracy {disjoint.accuracy:.3f}      {every.accuracy:.3f}"
        f"{'' if disjoint.rs_stable else '   (disjoint pairs: a glass)'}"
    )

# %%
# AT is what tells the glass: above 1 the weights have very many states, and replica symmetry is
# broken. With all pairs it stays below 1.

disjoint, every = solve(Problem(alpha=2.5)), solve(Problem(samples=5, pairing="all"))
print(f"AT: {disjoint.at_eigenvalue:.2f} with disjoint pairs, {every.at_eigenvalue:.2f} with all")

# %%
# Is the theory right about one instance of finite size? Message passing on 1000 weights says so
# at once, and descent from ten random starts counts the minima that a glass would have.

from fermibose.cavity import amp, minima, sample_instance

problem = Problem(samples=1, pairing="all")
theory, found = solve(problem), amp(sample_instance(problem, 1000, seed=1))
print(f"all pairs, γ = 1: M {theory.M:.3f} in theory, {abs(found.M):.3f} on an instance")
print(found.verdict)

cold = Problem(samples=2, pairing="all", beta=float("inf"))
for partners in (1, None):
    instance = sample_instance(cold, 200, seed=0, partners=partners)
    ends = minima(instance, starts=10, seed=0)
    name = "one partner each" if partners else "all pairs"
    print(f"{name}: number of different minima from 10 starts: {ends.distinct}")

# %%
# The same as a picture.

import numpy as np

from fermibose.plotting import COLOURS, figure
from fermibose.theory import trace

gammas = np.linspace(0.3, 5, 10)
lines = {
    "disjoint pairs": trace(Problem(), "alpha", gammas / 2).column("accuracy"),
    "all pairs": trace(Problem(pairing="all"), "samples", gammas).column("accuracy"),
}
with figure("all_pairs.png") as (_, ax):
    for (name, accuracy), colour in zip(lines.items(), ("baseline", "machine"), strict=True):
        ax.plot(gammas, 100 * accuracy, color=COLOURS[colour], label=name)
    ax.set(xlabel="samples per weight γ", ylabel="accuracy (%)")
    ax.legend()
print("all_pairs.png: accuracy against the number of samples")
