"""Checkpoints: one safetensors file from which a training resumes bit for bit.

The file holds weights, optimiser moments, the random generator's state and the records so far; its
header holds the position and a fingerprint of the recipe and the data. It is replaced atomically,
so a crash or a full disk leaves the previous one intact.
"""

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from fermibose.errors import FermiboseError, FileFormatError
from fermibose.files import replacing
from fermibose.machine.adam import Adam


class Position(NamedTuple):
    """How far a training has come: the stage, and the epochs done in it."""

    stage: int
    epoch: int


class Checkpoint:
    """The checkpoint at ``path`` of a training with the given fingerprint.

    every: seconds that must pass between two saves that are not forced; saving each epoch of a
    small network would cost more than training it.
    """

    def __init__(self, path: str | Path, fingerprint: str, *, every: float = 5.0) -> None:
        self.path = Path(path)
        self.fingerprint = fingerprint
        self.every = every
        self._saved_at = time.monotonic()
        self._moments: dict[str, Tensor] = {}

    def exists(self) -> bool:
        """Whether there is something to resume from."""
        return self.path.exists()

    def save(
        self,
        net: nn.Module,
        optimiser: Adam,
        generator: torch.Generator,
        records: Any,
        position: Position,
        *,
        force: bool = False,
    ) -> None:
        """Replace the file, unless the last save is recent and ``force`` is off."""
        if not force and time.monotonic() - self._saved_at < self.every:
            return
        tensors = {f"net.{name}": value for name, value in net.state_dict().items()}
        tensors |= {f"optimiser.{name}": value for name, value in optimiser.state().items()}
        tensors["generator"] = generator.get_state()
        for stage, quantities in records.items():
            for name, values in quantities.items():
                tensors[f"records.{stage}.{name}"] = torch.tensor(values, dtype=torch.float64)
        header = {"position": json.dumps(position), "fingerprint": self.fingerprint}
        try:
            with replacing(self.path) as draft:
                save_file(tensors, draft, metadata=header)
        except (OSError, SafetensorError) as error:
            full = any(text in str(error) for text in ("No space left", "quota exceeded"))
            remedy = "make room" if full else "use a folder that can be written to"
            raise FermiboseError(
                f"could not write the checkpoint {self.path} ({error}); the previous one, if any, "
                f"is intact: {remedy} and resume"
            ) from error
        self._saved_at = time.monotonic()

    def restore(self, net: nn.Module, generator: torch.Generator, records: Any) -> Position:
        """Load weights, generator and records in place; returns where to go on."""
        tensors, header = self._read()
        if header.get("fingerprint") != self.fingerprint:
            raise FermiboseError(
                f"the checkpoint {self.path} belongs to a training with other settings, data or "
                "version; train with the same ones, or remove it to start afresh"
            )
        net.load_state_dict(_under("net.", tensors))
        generator.set_state(tensors["generator"])
        for key, values in _under("records.", tensors).items():
            stage, name = key.split(".", 1)
            records.setdefault(stage, {})[name] = values.tolist()
        self._moments = _under("optimiser.", tensors)
        return Position(*json.loads(header["position"]))

    def restore_optimiser(self, optimiser: Adam) -> None:
        """Hand the moments found by :meth:`restore` to the optimiser of the resumed stage."""
        if self._moments:
            optimiser.restore(self._moments)
        self._moments = {}

    def _read(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        try:
            with safe_open(self.path, framework="pt") as file:
                header = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise FileFormatError(
                f"{self.path} is not a readable checkpoint ({error}); remove it to start afresh"
            ) from error
        return tensors, header


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}
