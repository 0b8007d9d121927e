"""From few labels to a robust classifier, and to a number that can be trusted.

Twenty labelled digits of each class, 8 × 8 pixels. Three presets are trained and
attacked; one is audited, and as far as that goes proved.
"""

# %%
# Data: 200 images to learn from; others, which no choice is made on, to judge by.

import torch

from fermibose import FermiBoseClassifier
from fermibose.attacks import ThreatModel, audit, pgd
from fermibose.data import load_dataset

data = load_dataset("digits", train_per_class=20, test_per_class=15)
x, y = data.x_test, data.y_test
threat = ThreatModel("linf", epsilon=0.1)  # every pixel may move by a tenth of its range

# %%
# Train and attack: the paper's machine, and the presets for few labels (local convolutions,
# free-energy pairs, augmented images; "robust" learns against a local adversary besides).

models = {}
for preset in ("paper", "accurate", "robust"):
    model = FermiBoseClassifier(preset=preset, image_shape=(8, 8), random_state=0)
    model.fit(data.x_train, data.y_train)
    found = pgd(model.net_, x, y, threat)
    models[preset] = model
    print(f"{preset:9} clean {found.clean_accuracy:.3f}, under PGD {found.robust_accuracy:.3f}")

# %%
# Is the number of PGD the truth? The audit attacks with everything it has and then asks whether
# the outcome can be trusted. Here on few images and with few queries, to be quick; give it a
# thousand images and minutes for a number to publish.

verdict = audit(models["paper"].net_, x[::3], y[::3], threat, probe=30, square_queries=200)
print(verdict.verdict)
for check in verdict.checks:
    if check.outcome != "passed":
        print(f"{check.outcome}: {check.name}, {check.evidence}")

# %%
# An attack gives an upper bound of the robust accuracy. A certificate is a proof, so a lower bound.

from fermibose.attacks import certified_radius

proof = certified_radius(models["paper"].net_, x, y, norm="linf")
strengths = (0.01, 0.03, 0.1)
for epsilon, proved in zip(strengths, proof.accuracy(strengths), strict=True):
    attacked = pgd(models["paper"].net_, x, y, ThreatModel("linf", epsilon)).robust_accuracy
    print(f"ℓ∞ {epsilon}: between {proved:.3f} (proved) and {attacked:.3f} (attacked)")

# %%
# Keep it: safetensors and JSON, nothing pickled.

from fermibose import FermiBoseNet

models["robust"].net_.save("few-labels")
net = FermiBoseNet.load("few-labels")
assert torch.equal(net(torch.from_numpy(x)), models["robust"].net_(torch.from_numpy(x)))
print("saved to few-labels/")
