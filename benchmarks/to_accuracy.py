"""Time and memory to accuracy on all of MNIST and Fashion-MNIST, beside what else there is.

    python benchmarks/to_accuracy.py FOLDER [FOLDER ...]    folders of IDX files

Every contender has a process of its own and one thread. A row is what it has after so many epochs:
processor seconds (data loading left out), peak memory of the process (torch and the 60,000 images
included), accuracy on the test images. Nothing was chosen by these numbers: the machine has the
paper's settings, the local layers those that did well on the last 10,000 training images (trained
on the others), and what learns by backpropagation the usual ones (Adam 0.001, mini-batches of 128
or scikit-learn's own).
"""

import subprocess
import sys
import time
from functools import partial

import torch
from sklearn.neural_network import MLPClassifier
from torch import nn

from fermibose.data import load_dataset
from fermibose.machine import (
    Affine,
    Augmented,
    Conv,
    Flip,
    FreeEnergy,
    KernelRidge,
    Recipe,
    compute_settings,
    train,
    train_mlp,
)

SHAPE = (28, 28)
BATCH = 128


def accuracy(net, x, y):
    """The share of images that a torch net classifies rightly."""
    with torch.no_grad():
        told = torch.cat([net(part).argmax(1) for part in torch.as_tensor(x).split(1000)])
    return float((told == torch.as_tensor(y)).double().mean())


def _epochs(count):
    return "1 epoch" if count == 1 else f"{count} epochs"


def machine(data, epochs, **changes):
    """A machine trained anew for each number of epochs; its readout is part of the time."""
    for count in epochs:
        start = time.process_time()
        training = train(data.x_train, data.y_train, Recipe(epochs=count, **changes), show=False)
        used = time.process_time() - start
        yield f"{_epochs(count)} a layer", used, accuracy(training.net, data.x_test, data.y_test)


def of_images(data):
    """What nets have that see images changed: digits move a little, clothes are mirrored."""
    return {
        "pairing": Augmented((Flip(SHAPE) if "fashion" in data.name else Affine(SHAPE),)),
        "schedule": "cosine", "activation": "relu", "bias": True, "image_shape": SHAPE,
    }  # fmt: skip


def local_layers(data, epochs, **changes):
    """Pairs of *nearest* neighbours and a kernel's readout."""
    readout = KernelRidge(2.0, 0.1, copies=1)
    settings = {"energy": FreeEnergy(20.0), "weight_decay": 0.0, "readout": readout}
    yield from machine(data, epochs, **settings, **of_images(data), **changes)


def by_backpropagation(data, epochs, layers):
    """A plain torch net, told after each epoch."""
    torch.manual_seed(0)
    x, y = torch.as_tensor(data.x_train), torch.as_tensor(data.y_train)
    net = layers()
    adam = torch.optim.Adam(net.parameters(), lr=0.001, fused=True)
    used = 0.0
    for count in range(1, epochs + 1):
        start = time.process_time()
        for index in torch.randperm(len(x)).split(BATCH):
            adam.zero_grad()
            nn.functional.cross_entropy(net(x[index]), y[index]).backward()
            adam.step()
        used += time.process_time() - start
        yield _epochs(count), used, accuracy(net, data.x_test, data.y_test)


def of_changed_images(data, epochs, hidden):
    """The same nets, but of the images that local layers see, and with their schedule."""
    start = time.process_time()
    recipe = Recipe(hidden, epochs=epochs, batch_size=BATCH, **of_images(data))
    training = train_mlp(data.x_train, data.y_train, recipe, show=False)
    used = time.process_time() - start
    yield _epochs(epochs), used, accuracy(training.net, data.x_test, data.y_test)


def mlp():
    return nn.Sequential(nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 10))


def cnn():
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def of_sklearn(data, epochs):
    """scikit-learn's MLPClassifier, an epoch at a time."""
    model = MLPClassifier((1000,), random_state=0)
    used = 0.0
    for count in range(1, epochs + 1):
        start = time.process_time()
        model.partial_fit(data.x_train, data.y_train, classes=range(10))
        used += time.process_time() - start
        yield _epochs(count), used, model.score(data.x_test, data.y_test)


CONTENDERS = {
    "machine as printed": partial(machine, epochs=(1, 5), readout_epochs=5),
    "machine as printed, ridge readout": partial(machine, epochs=(1, 5), readout="ridge"),
    "local dense layer": partial(
        local_layers, epochs=(30,), hidden=(2000,), batch_size=1000, learning_rate=0.005
    ),
    "local convolutions": partial(
        local_layers,
        epochs=(5,),
        hidden=(Conv(32), Conv(64, size=3), Conv(64, size=3, pool=1)),
        batch_size=400,
        learning_rate=(0.005, 0.01, 0.005),
    ),
    "MLP": partial(by_backpropagation, epochs=5, layers=mlp),
    "CNN": partial(by_backpropagation, epochs=3, layers=cnn),
    "MLP, images changed": partial(of_changed_images, epochs=30, hidden=(1000,)),
    "CNN, images changed": partial(of_changed_images, epochs=15, hidden=(Conv(16), Conv(32), 128)),
    "scikit-learn's MLP": partial(of_sklearn, epochs=3),
}


def peak():
    """Peak resident memory of this process, in MB."""
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = (line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def alone(folder, name):
    """One contender, in this process."""
    data = load_dataset(folder)
    with compute_settings(1):
        for told, used, score in CONTENDERS[name](data):
            print(f"| {name} | {told} | {used:.1f} | {peak():.0f} | {score:.2%} |", flush=True)


def main(folders):
    """All of them, one after another."""
    print("| | after | processor seconds | peak MB | test |\n|---|---|---|---|---|", flush=True)
    for folder in folders:
        print(f"| **{folder}** | | | | |", flush=True)
        for name in CONTENDERS:
            subprocess.run([sys.executable, __file__, "--alone", folder, name], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        alone(*sys.argv[2:])
    else:
        main(sys.argv[1:] or sys.exit(__doc__))
