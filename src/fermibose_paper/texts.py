"""The words of the report."""

from typing import NamedTuple

from markupsafe import Markup

LEAD = (
    "A network trained layer by layer, without backpropagation, by pulling inputs of one class "
    "together and pushing inputs of different classes apart. What the paper printed, what its "
    "figures really show, and what we measured."
)

MACHINE = (
    Markup(
        "Two inputs of the same class are a <em>boson</em> pair and attract; two of different "
        "classes are a <em>fermion</em> pair and repel until their squared distance in the layer "
        "reaches the target d<sub>F</sub>. A pair at squared distance D² (a mean over units) costs "
        "D² if it is a boson pair and max(d<sub>F</sub> − D², 0) if it is a fermion pair. Each "
        "layer minimises the mean of this energy over all pairs of a mini-batch, is frozen, and "
        "feeds the next; a linear readout classifies at the end. No gradient crosses a layer."
    ),
    Markup(
        "The published figures show another loss: that of a program which multiplies distances of "
        "shape (P, 1) by labels of shape (P,). The product has shape (P, P): every pair feels the "
        "<em>average</em> label of its batch. The ratio of the distances that were recorded, and "
        "every curve below, say so. We call this coupling "
        "<b>averaged</b>. The loss as printed, in which each pair feels its own label, is called "
        "<b>labelled</b>; it is the method, and the default here. Both are measured below, beside "
        "the published numbers."
    ),
)

ATTACKS = (
    "The machine has the paper's settings and d_F = 0.4, near the best of the labelled curve; the "
    "baselines are tuned. AutoAttack gives "
    "each seed other images, so its error bars hold the spread of seeds and of images. All methods "
    "learn from the same 1000 images. The machine as printed is far more robust than the MLP of "
    "its shape, but kernels on pixels and adversarial training beat it.",
    Markup(
        "The tables of this section travel with the package: they are of the published split, "
        "whatever the figures above are of. Each of their rows names its parameters, seed, data "
        "and versions; <code>fbm reproduce robustness --full</code> measures them anew."
    ),
)


class About(NamedTuple):
    """Title, introduction and description of a figure."""

    title: str
    paragraphs: tuple[str, ...]
    alt: str
    caption: str


ABOUT = {
    "fig2": About(
        "Figure 2: theory against single instances",
        (
            "The generalization loss of one unit on a Gaussian mixture, from replica theory "
            "(corrected equations), against belief propagation, approximate message passing and "
            "Monte Carlo sampling on single instances.",
        ),
        "Test loss against alpha and delta: theory curves with points from message passing and "
        "sampling; accuracy and fermion distance against d_F from theory.",
        "Error bars: standard error over instances. Filled marks: the instances that converged. "
        "Open marks: none did, last sweeps of all. Marks at the same α or Δ stand side by side "
        "around it. Dotted: replica symmetry is unstable.",
    ),
    "instances": About(
        "Single instances against the theory",
        (
            "Message passing from a start that knows nothing, on instances of growing size, where "
            "replica symmetry is stable; and Hamiltonian Monte Carlo, which owes nothing to the "
            "cavity method, with and without tempering, on the same instances.",
        ),
        "Deviation of M, q, Q and test loss of AMP from theory against 1/N, part of the instances "
        "that converge, and M of sampling minus that of AMP.",
        "Error bars: standard error over the instances that converged.",
    ),
    "rho": About(
        "Accuracy against the fraction of boson pairs",
        (
            "With more boson pairs there is less that keeps classes apart; the accuracy falls to "
            "chance where the fermion pairs no longer sustain a magnetisation.",
        ),
        "Test accuracy of the theory against the fraction rho of boson pairs.",
        "Theory for infinitely many inputs.",
    ),
    "fig3": About(
        "Figure 3: training, distances, and the geometry of the hidden layer",
        (
            "Accuracy during the training of the readout, distances of pairs during that "
            "of the hidden layer, and the first principal components of the representation at "
            "d_F = 1.2.",
        ),
        "Accuracy per epoch of machine and MLP, distances of boson and fermion pairs per epoch, "
        "and hidden representations on their first principal components.",
        "Bands: standard deviation over seeds.",
    ),
    "fig4": About(
        "Figure 4: accuracy against the target distance",
        (
            "The published curve has two maxima, a double ascent. It belongs to the averaged "
            "coupling: with the loss as printed there is one broad maximum.",
        ),
        "Test accuracy and fermion distance against d_F: published points, averaged and labelled "
        "coupling, MLP as a dashed line.",
        "Error bars: standard error over seeds. Marked points are found automatically.",
    ),
    "fig5": About(
        "Figure 5: robustness against FGSM and noise",
        (
            "Accuracy on the first 100 test images of each class against the strength of an "
            "attack, and the area under these curves against d_F.",
        ),
        "Accuracy against strength of FGSM and of noise for machine and MLP, areas under the "
        "curves against d_F, and adversarial images.",
        "Error bars: standard error over seeds.",
    ),
    "beyond": About(
        "Beyond the paper",
        (
            "One setting changed at a time: width, number of training images, data, class balance, "
            "depth, batch size.",
        ),
        "Test accuracy against d_F for several widths, training sizes, depths and batch sizes.",
        "Left averaged, right labelled coupling; dashed: MLP.",
    ),
}
