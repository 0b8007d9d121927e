"""The local layers in a network and a training loop of your own.

Two ways: LocalDense, a layer that computes its own gradient in closed form; and PairLoss, the
pair energy as a loss for any torch module. In both, no gradient crosses from one layer to the
next.
"""

# %%
# Data: 8 × 8 digits, 400 for training.

import torch
from torch import nn

from fermibose import PairEnergy, PairLoss
from fermibose.data import load_dataset
from fermibose.machine import LocalDense

data = load_dataset("digits", train_per_class=40)
x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
x_test, y_test = torch.from_numpy(data.x_test), torch.from_numpy(data.y_test)
generator = torch.Generator().manual_seed(0)
torch.manual_seed(0)


def batches(size=50):
    """The training data once, shuffled."""
    return torch.randperm(len(x), generator=generator).split(size)


def read_out(features, features_test):
    """Test accuracy of a linear readout on frozen features."""
    readout = nn.Linear(features.shape[1], 10)
    optimiser = torch.optim.Adam(readout.parameters(), lr=0.01)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(readout(features), y).backward()
        optimiser.step()
    return (readout(features_test).argmax(1) == y_test).double().mean()


# %%
# Way 1: a stack of LocalDense. `learn_from` writes the gradient into `.grad`; which optimiser
# takes it is up to you. The second layer learns on what the first, frozen, makes of the inputs.

energy = PairEnergy(d_f=0.4)
features, features_test = x, x_test
for depth in (1, 2):
    layer = LocalDense(features.shape[1], 200)
    layer.initialise(generator)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.01)
    for _ in range(40):
        for rows in batches():
            report = layer.learn_from(features[rows], y[rows], energy)
            optimiser.step()
    features, features_test = layer(features), layer(features_test)
    print(
        f"LocalDense, layer {depth}: boson D² {report.boson_distance:.2f}, fermion D² "
        f"{report.fermion_distance:.2f}, accuracy {read_out(features, features_test):.3f}"
    )

# %%
# Way 2: any module of yours, with PairLoss and autograd. `detach` is what keeps it local: each
# block has its own loss, and its gradient ends where the block begins.

blocks = nn.ModuleList(
    [
        nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.Sigmoid()),
        nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.Sigmoid()),
    ]
)
loss = PairLoss(PairEnergy(d_f=0.1, boson_weight=0.3))
optimiser = torch.optim.Adam(blocks.parameters(), lr=0.01)
for _ in range(30):
    for rows in batches():
        optimiser.zero_grad()
        h = x[rows]
        for block in blocks:
            h = block(h.detach())
            loss(h, y[rows]).backward()
        optimiser.step()

with torch.no_grad():
    h, h_test = x, x_test
    for block in blocks:
        h, h_test = block(h), block(h_test)
print(f"two convolutions by PairLoss: accuracy {read_out(h.flatten(1), h_test.flatten(1)):.3f}")

# %%
# Or beside another loss, as a term that makes the classes lie apart: plain backpropagation, your
# network, one more line.

network = nn.Sequential(nn.Linear(64, 200), nn.Sigmoid())
head = nn.Linear(200, 10)
pairs = PairLoss(PairEnergy(d_f=0.2))
optimiser = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=0.01)
for _ in range(30):
    for rows in batches():
        optimiser.zero_grad()
        h = network(x[rows])
        (nn.functional.cross_entropy(head(h), y[rows]) + pairs(h, y[rows])).backward()
        optimiser.step()
accuracy = (head(network(x_test)).argmax(1) == y_test).double().mean()
print(f"cross-entropy with pairs as a second term: accuracy {accuracy:.3f}")
