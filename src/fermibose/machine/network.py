"""The network: a frozen stack of local layers and a linear readout, as one torch module."""

import hashlib
import math
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from fermibose import checks
from fermibose.errors import FermiboseError, FileFormatError, InputError
from fermibose.files import (
    SEAL,
    UNSEALED,
    is_sealed,
    read_json,
    replacing,
    seal,
    write_json,
)
from fermibose.machine.convolution import Hidden, LocalConv, hidden_of, plain_hidden
from fermibose.machine.inputs import image_shape_of
from fermibose.machine.local_rule import ACTIVATIONS, CHUNK, Dense, LocalDense, LocalLayer
from fermibose.machine.readouts import KernelReadout
from fermibose.machine.stored import check_numbers, check_shapes
from fermibose.summary import Summarised

_FOLDER = "give the folder that FermiBoseNet.save or `fbm train` wrote"
_AGAIN = "copy or train the model again"
FORMAT, FORMAT_VERSION = "fermibose-net", 2
WITHOUT_SEAL = 1  # the version that had a checksum of the weights only
DEEPEST = 1000  # hidden layers; torch needs minutes to load 50,000
LONGEST = 1 << 24  # bytes of a description: a hundred times those of a net with 10,000 classes
WEIGHTS, CONFIG = "model.safetensors", "model.json"
DIGITS = 16  # of the sha256 in the name of weights set aside while new ones are saved


class FermiBoseNet(Summarised, nn.Module):
    r"""Logits of the classes: x → φ(xW₁) → … → h → h·readout.

    hidden: widths of dense layers, :class:`Conv` and :class:`Pointwise`, in any order that fits;
    convolutions need ``image_shape``. kernel: (components, centres) of a readout by kernel ridge.

    The weights are frozen (no parameter requires a gradient), the net is in evaluation mode, and
    the map is differentiable in x, so any attack library can use it. Inputs of any shape (B, …) are
    flattened. If the training inputs were rescaled the net carries the rescaling
    x → (x − offset)·gain and takes raw inputs.
    """

    offset: Tensor | None
    gain: Tensor | None

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[Hidden],
        outputs: int,
        *,
        image_shape: Sequence[int] | None = None,
        activation: str = "half_tanh",
        bias: bool = False,
        readout_bias: bool = False,
        kernel: Sequence[int] | None = None,
        rescaled: bool = False,
        classes: Sequence[Any] | None = None,
        info: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        inputs = checks.whole("inputs", inputs, least=1)
        outputs = checks.whole("outputs", outputs, least=1)
        if len(hidden) > DEEPEST:
            raise InputError(f"a net has at most {DEEPEST} hidden layers, got {len(hidden)}")
        hidden = [int(h) if checks.is_whole(h, 1) else hidden_of(h) for h in hidden]
        activation = checks.choice("activation", activation, ACTIVATIONS)
        bias, readout_bias = checks.flag("bias", bias), checks.flag("readout_bias", readout_bias)
        rescaled = checks.flag("rescaled", rescaled)
        shape: tuple[int, ...] = (inputs,) if image_shape is None else image_shape_of(image_shape)
        if math.prod(shape) != inputs:
            raise InputError(
                f"inputs have {inputs} features, but images of shape {shape} have "
                f"{math.prod(shape)}; set image_shape"
            )
        layers: list[LocalLayer] = []
        for layer in hidden:
            if isinstance(layer, int):
                dense = LocalDense(math.prod(shape), layer, activation=activation, bias=bias)
                layers, shape = [*layers, dense], (layer,)
            else:
                layers.append(layer.build(shape))
                shape = getattr(layers[-1], "output_shape", shape)
        self.layers = nn.ModuleList(layers)
        self.readout: Dense | KernelReadout
        if kernel is None:
            self.readout = Dense(math.prod(shape), outputs, bias=readout_bias)
        else:
            components, centres = (checks.whole("a size of the kernel", n, least=1) for n in kernel)
            kernel = [min(components, math.prod(shape)), centres]
            self.readout = KernelReadout(math.prod(shape), outputs, *kernel)
        self.register_buffer(
            "offset", torch.zeros(inputs, dtype=torch.float64) if rescaled else None
        )
        self.register_buffer("gain", torch.ones(inputs, dtype=torch.float64) if rescaled else None)
        self.config: dict[str, Any] = {
            "inputs": inputs,
            "hidden": [h if isinstance(h, int) else plain_hidden(h) for h in hidden],
            "outputs": outputs,
            "image_shape": None if image_shape is None else list(image_shape_of(image_shape)),
            "activation": activation,
            "bias": bias,
            "readout_bias": readout_bias,
            "kernel": kernel,
            "rescaled": rescaled,
            "classes": list(range(outputs)) if classes is None else _plain(classes),
        }
        if len(self.config["classes"]) != outputs:
            raise InputError(f"{outputs} outputs need as many classes, got {checks.shown(classes)}")
        self.info = info or {}  # how it was trained: recipe, versions, scores
        self.eval()

    @property
    def summary(self) -> str:
        """Its shape, and how many numbers it holds."""
        hidden = [h if isinstance(h, int) else h["kind"] for h in self.config["hidden"]]
        shape = "-".join(map(str, (self.config["inputs"], *hidden, self.config["outputs"])))
        numbers = sum(tensor.numel() for tensor in self.state_dict().values())
        readout = "kernel readout" if self.config["kernel"] else "linear readout"
        return f"{shape}, {self.config['activation']}, {readout}, {numbers:,} numbers"

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all weights anew, as the layers do; the bias of the readout is 0."""
        for layer in (*self.local_layers, self.readout):
            layer.initialise(generator)

    @property
    def local_layers(self) -> list[LocalLayer]:
        """The hidden layers, first to last."""
        return [layer for layer in self.layers if isinstance(layer, LocalLayer)]

    def width(self, depth: int | None = None) -> int:
        """Numbers in what :meth:`represent` returns, of one input."""
        size = self.config["inputs"]
        for layer in self.local_layers[:depth]:
            shape = getattr(layer, "output_shape", None)
            size = math.prod(shape) if shape else size
            size = layer.units if isinstance(layer, LocalDense) else size
        return int(size)

    def take_raw_inputs(self, offset: Tensor, gain: Tensor) -> None:
        """From now on map inputs x → (x − offset)·gain first, as the training data were."""
        device = self.readout.weight.device
        self.offset, self.gain = offset.to(device), gain.to(device)
        self.config["rescaled"] = True

    def represent(self, x: Tensor, depth: int | None = None) -> Tensor:
        """Representation after the first ``depth`` hidden layers (all by default), (B, units)."""
        if not isinstance(x, Tensor):
            raise InputError(
                f"inputs must be a torch tensor, got {type(x).__name__}: torch.as_tensor makes one"
            )
        if x.ndim < 2:
            raise InputError(f"inputs must have shape (samples, …), got {tuple(x.shape)}")
        h = x.flatten(1)
        if h.shape[1] != self.config["inputs"]:
            raise InputError(
                f"inputs have {h.shape[1]} features, but the net takes {self.config['inputs']}"
            )
        return self._through(self.rescale(h), self.local_layers[:depth])

    def rescale(self, h: Tensor) -> Tensor:
        """Flat inputs as the first layer takes them, (B, inputs)."""
        if self.gain is not None and self.offset is not None:
            h = (h - self.offset) * self.gain
        return h.to(self.readout.weight.dtype)

    def represent_above(self, h: Tensor, depth: int) -> Tensor:
        """Representation after all hidden layers of what the first ``depth`` have made, (B, …)."""
        return self._through(h, self.local_layers[depth:])

    @classmethod
    def _through(cls, h: Tensor, layers: Sequence[LocalLayer]) -> Tensor:
        if len(h) > CHUNK and any(isinstance(layer, LocalConv) for layer in layers):
            return torch.cat([cls._through(part, layers) for part in h.split(CHUNK)])
        for layer in layers:
            h = layer(h.flatten(1) if isinstance(layer, LocalDense) else h)
        return h.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (B, outputs)."""
        return self.readout(self.represent(x))  # type: ignore[no-any-return]

    def save(self, folder: str | Path) -> None:
        """Write ``model.safetensors`` and ``model.json`` into ``folder`` (made if missing).

        A model that was there is kept until both are in place: killed at any moment, the folder
        loads as the old model or as the new one.
        """
        folder = Path(folder)
        tensors = {name: value.cpu().contiguous() for name, value in self.state_dict().items()}
        config = {SEAL: UNSEALED, "format": FORMAT, "format_version": FORMAT_VERSION, **self.config}
        old = folder / WEIGHTS
        try:
            _check_weights(tensors)
        except ValueError as error:
            raise FermiboseError(f"the model is not saved in {folder}: {error}") from error
        try:
            with replacing(folder / CONFIG) as text, replacing(old) as weights:
                weights.write_bytes(save(tensors))
                write_json(text, config | {"info": self.info, "sha256": _sha256(weights)})
                _check_length(text.stat().st_size, folder / CONFIG)
                seal(text)
                if old.is_file():  # for as long as model.json still speaks of them
                    with replacing(_aside(folder, _sha256(old)[:DIGITS])) as copy:
                        shutil.copyfile(old, copy)
            for aside in folder.glob(_aside(folder, "[0-9a-f]" * DIGITS).name):
                aside.unlink(missing_ok=True)
        except (OSError, SafetensorError) as error:
            raise FermiboseError(f"could not save the model in {folder}: {error}") from error

    @classmethod
    def load(cls, folder: str | Path) -> "FermiBoseNet":
        """Read a net written by :meth:`save`; anything else is refused with the reason.

        Every bit counts: both files have a checksum. A model of an earlier version, whose
        ``model.json`` has none, is read with a warning.
        """
        folder = Path(folder)
        config = _read_config(folder / CONFIG)
        digest = config.pop("sha256", None)
        weights = _aside(folder, str(digest)[:DIGITS])  # by a save that was cut short
        if not weights.is_file():
            weights = folder / WEIGHTS
        if not weights.is_file():
            raise FileFormatError(
                f"{folder} has no {WEIGHTS}; it is not a complete saved model: {_AGAIN}"
            )
        if _sha256(weights) != digest:
            raise FileFormatError(
                f"{weights} is truncated or corrupt (its checksum differs from {CONFIG}); {_AGAIN}"
            )
        try:
            tensors = load(weights.read_bytes())  # load_file takes no path that is not UTF-8
            _check_weights(tensors)
            _check_depth(config["hidden"], tensors)
            with torch.device("meta"):  # nothing is allocated before the shapes are known to fit
                net = cls(
                    config.pop("inputs"), config.pop("hidden"), config.pop("outputs"), **config
                )
            check_shapes(tensors, net.state_dict())
            net.load_state_dict(tensors, assign=True)
        except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:300]
            raise FileFormatError(
                f"the weights in {weights} do not fit their description in {CONFIG} ({reason}); "
                f"{_AGAIN}"
            ) from error
        return net


def _plain(classes: Sequence[Any]) -> list[Any]:
    """Names of classes as JSON keeps them: a number of NumPy's would come back as a word."""
    listed = isinstance(classes, (list, tuple, np.ndarray))
    names = [name.item() if isinstance(name, np.generic) else name for name in classes]
    if not listed or any(isinstance(name, (list, tuple, dict, np.ndarray)) for name in names):
        raise InputError(f"classes must be a list of words or numbers, got {checks.shown(classes)}")
    return names


def _check_weights(tensors: Mapping[str, Tensor]) -> None:
    """ValueError unless the weights are finite and of one type."""
    check_numbers(tensors)
    types = {str(t.dtype) for name, t in tensors.items() if name not in ("offset", "gain")}
    if len(types) != 1:
        raise ValueError(f"the weights are of different types: {', '.join(sorted(types))}")


def _check_depth(hidden: Any, tensors: Mapping[str, Tensor]) -> None:
    """ValueError unless there is a weight for each layer; making many layers takes its time."""
    found = len({name.split(".")[1] for name in tensors if name.startswith("layers.")})
    if not isinstance(hidden, list) or len(hidden) != found:
        raise ValueError(f"there are {found} hidden layers, but hidden is {checks.shown(hidden)}")


def _check_length(size: int, path: Path) -> None:
    if size > LONGEST:
        raise FileFormatError(
            f"{path} has {size} bytes, more than the {LONGEST} that describe a net: keep less in "
            "its info"
        )


def _read_config(path: Path) -> dict[str, Any]:
    try:
        _check_length(path.stat().st_size, path)
        sealed = is_sealed(path)
        if sealed is False:
            raise FileFormatError(f"{path} is corrupt (its checksum differs); {_AGAIN}")
        config = read_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        what = "it is a file" if path.parent.is_file() else f"it has no {path.name}"
        raise FileFormatError(f"{path.parent} is not a saved model: {what}; {_FOLDER}") from None
    except OSError as error:
        raise FileFormatError(
            f"{path} cannot be read ({error.strerror}): check its permissions"
        ) from error
    except FileFormatError:
        raise
    except ValueError as error:
        raise FileFormatError(f"{path} is not readable as JSON ({error}); {_AGAIN}") from error
    if not isinstance(config, dict) or config.pop("format", None) != FORMAT:
        raise FileFormatError(f"{path} does not describe a fermibose net; {_FOLDER}")
    version = config.pop("format_version", None)
    if not checks.is_whole(version) or version not in (WITHOUT_SEAL, FORMAT_VERSION):
        raise FileFormatError(
            f"{path} has format version {checks.shown(version)}, this package reads "
            f"{WITHOUT_SEAL} and {FORMAT_VERSION}; install the version of fermibose that wrote it"
        )
    if version == WITHOUT_SEAL:
        warnings.warn(
            f"{path} was written without a checksum, by an earlier version: damage to it would not "
            "be noticed. Save the net again.",
            stacklevel=3,
        )
    elif sealed is None or config.pop(SEAL, None) is None:
        raise FileFormatError(f"{path} is corrupt (its checksum is missing); {_AGAIN}")
    if not isinstance(config.get("info", {}), dict):
        raise FileFormatError(
            f"{path} is damaged: how the net was trained (info) is not told as names with values; "
            f"{_AGAIN}"
        )
    return config


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _aside(folder: Path, digits: str) -> Path:
    return folder / f"model.{digits}.safetensors"
