r"""Local layers for images: a convolution, and a threshold for every pixel.

Both learn by the local rule: the forces on what the energy sees are in closed form, and the chain
rule carries them through this one layer.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, conv2d, max_pool2d

from fermibose import checks
from fermibose.errors import InputError
from fermibose.machine.inputs import as_images, image_shape_of
from fermibose.machine.local_rule import ACTIVATIONS, LocalLayer


class LocalConv(LocalLayer):
    r"""A convolution h = φ(max-pool(w * x + b)) that learns from the pairs of its own output.

    Every patch of ``size`` × ``size`` pixels (zeros around the image) meets ``filters`` filters; of
    each ``pool`` × ``pool`` squares the largest response is kept. The pair energy sees the features
    averaged to ``head`` × ``head`` places, while the output keeps all of them: what is to be alike
    in a class is roughly where a feature is, not where exactly.

    Inputs: (B, channels, rows, columns) or flattened. Output: (B, filters, rows/pool,
    columns/pool). φ grows, so that the pool may come first.
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        filters: int,
        *,
        size: int = 5,
        pool: int = 2,
        head: int = 7,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.image_shape = image_shape_of(image_shape)
        channels, rows, columns = self.image_shape
        filters, self.size, self.pool, self.head_size = (
            checks.whole(name, value, least=1)
            for name, value in (
                ("filters", filters),
                ("size", size),
                ("pool", pool),
                ("head", head),
            )
        )
        if self.size % 2 == 0 or self.pool > min(rows, columns):
            raise InputError(
                f"a filter has an odd size, and a pool fits into the image: got size {size} and "
                f"pool {pool} for images of {rows} × {columns}"
            )
        self.activation = ACTIVATIONS[checks.choice("activation", activation, ACTIVATIONS)]
        self.units = filters
        self.output_shape = filters, rows // self.pool, columns // self.pool
        shape = filters, channels, self.size, self.size
        self.weight = nn.Parameter(torch.zeros(shape), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(filters), requires_grad=False)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw w ~ N(0, 2/fan_in), for half of the responses are cut off, and set the bias to 0."""
        fan_in = self.weight[0].numel()
        self.weight.normal_(0.0, math.sqrt(2 / fan_in), generator=generator)
        self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """The features h, (B, filters, rows/pool, columns/pool)."""
        images = as_images(x, self.image_shape)
        # With the channels last, convolution and pool take a third of the time on a CPU. A single
        # channel has no order; only its strides tell torch which one is meant.
        if images.shape[1] == 1:
            images = images.reshape(len(x), *images.shape[2:], 1).permute(0, 3, 1, 2)
        images = images.contiguous(memory_format=torch.channels_last)
        z = conv2d(images, self.weight, self.bias, padding=self.size // 2)
        return self.activation.apply(max_pool2d(z, self.pool) if self.pool > 1 else z)

    def head(self, h: Tensor) -> Tensor:
        """The features averaged to head × head places, (B, head²·filters), or all if fewer.

        Place by place, as they lie in memory: what the pairs send back need not be turned around.
        """
        if min(h.shape[-2:]) > self.head_size:
            h = adaptive_avg_pool2d(h, self.head_size)
        return h.permute(0, 2, 3, 1).flatten(1)


class LocalPointwise(LocalLayer):
    r"""A threshold h = σ(k(x − t)) of every input by itself, learnt by the same pair energy.

    Two numbers are learnt: ln k of the steepness k, and the threshold t. Unbounded, an adversary
    drives them to a step at the edge of the range, where the layer keeps nothing; so k stays in
    ``steepness`` and t in ``thresholds``. A change of x by ε moves h by at most kε/4, but far from
    the threshold by hardly anything: a real defence where inputs are nearly binary. It is monotone,
    so a ball ‖x' − x‖∞ ≤ ε becomes exactly a box, and a fair attack acts behind it
    (:func:`fermibose.attacks.attack_behind`).
    """

    def __init__(
        self,
        *,
        steepness: tuple[float, float] = (1.0, 50.0),
        thresholds: tuple[float, float] = (0.2, 0.8),
    ) -> None:
        super().__init__()
        self.units = 1
        self.bounds = {
            name: (checks.number(name, low, above=0), checks.number(name, high, least=low))
            for name, (low, high) in (("steepness", steepness), ("thresholds", thresholds))
        }
        self.log_steepness = nn.Parameter(torch.tensor(math.log(3.0)), requires_grad=False)
        self.threshold = nn.Parameter(torch.tensor(0.5), requires_grad=False)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Begin soft and in the middle: k = 3, t = 1/2, or the nearest that is allowed."""
        self.log_steepness.fill_(math.log(3.0))
        self.threshold.fill_(0.5)
        self.constrain()

    @torch.no_grad()
    def constrain(self) -> None:
        """Keep k and t in their ranges."""
        self.log_steepness.clamp_(*map(math.log, self.bounds["steepness"]))
        self.threshold.clamp_(*self.bounds["thresholds"])

    def forward(self, x: Tensor) -> Tensor:
        """σ(k(x − t)), the shape of x."""
        return torch.sigmoid(self.steepness * (x - self.threshold))

    @property
    def steepness(self) -> Tensor:
        """k."""
        return self.log_steepness.exp()


@dataclass(frozen=True)
class Conv:
    """A :class:`LocalConv` in a recipe."""

    filters: int = 32
    size: int = 5
    pool: int = 2
    head: int = 7
    activation: str = "relu"
    kind: ClassVar[str] = "conv"

    def build(self, shape: tuple[int, ...]) -> LocalConv:
        """The layer, for inputs of this shape."""
        if len(shape) != 3:
            raise InputError("a convolution needs images: give image_shape, like (28, 28)")
        return LocalConv(shape, **asdict(self))


@dataclass(frozen=True)
class Pointwise:
    """A :class:`LocalPointwise` in a recipe."""

    steepness: tuple[float, float] = (1.0, 50.0)
    thresholds: tuple[float, float] = (0.2, 0.8)
    kind: ClassVar[str] = "pointwise"

    def build(self, shape: tuple[int, ...]) -> LocalPointwise:
        """The layer, for inputs of any shape."""
        return LocalPointwise(steepness=self.steepness, thresholds=self.thresholds)


Hidden: TypeAlias = int | Conv | Pointwise  # a number is a LocalDense of so many units
_KINDS: dict[str, Callable[..., Conv | Pointwise]] = {"conv": Conv, "pointwise": Pointwise}


def hidden_of(value: Any) -> Hidden:
    """A hidden layer as it stands in a recipe, from itself or from what :func:`plain_hidden` made.

    A wrong one is refused here, before anything is built.
    """
    if isinstance(value, (Conv, Pointwise)):
        return value
    if isinstance(value, dict):
        fields = {
            k: tuple(v) if isinstance(v, list) else v for k, v in value.items() if k != "kind"
        }
        return _KINDS[checks.choice("kind of a hidden layer", value.get("kind"), _KINDS)](**fields)
    return checks.whole("a width in hidden", value, least=1)


def plain_hidden(layer: Hidden) -> Any:
    """A hidden layer as JSON keeps it."""
    return layer if isinstance(layer, int) else {"kind": layer.kind} | asdict(layer)
