"""Checkpoints: a training on disk, to go on from to the same bits; damage of one bit is noticed."""

import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from fermibose.checks import is_whole
from fermibose.errors import FermiboseError, FileFormatError
from fermibose.files import SEAL, UNSEALED, is_sealed, read_json, replacing, seal
from fermibose.machine.stored import check_numbers, check_shapes, check_types

if TYPE_CHECKING:
    from fermibose.machine.loop import Adam

Records = dict[str, dict[str, list[float]]]  # stage → quantity → one value per batch or epoch

FORMAT = "fermibose-checkpoint 2"
_BEFORE = {"position", "fingerprint"}  # the header of checkpoints written without a checksum


class Position(NamedTuple):
    """How far a training has come: the stage, and the epochs done in it."""

    stage: int
    epoch: int


class Checkpoint:
    """The checkpoint at ``path`` of a training with the given fingerprint.

    One safetensors file with weights, optimiser moments, the random generator's state and the
    records so far; its header holds the position, the fingerprint of recipe and data, and the
    checksum of all of the file. It is replaced atomically, so a crash or a full disk leaves the
    previous one intact. One written before there were checksums is taken with a warning.

    every: seconds that must pass between two saves that are not forced; saving each epoch of a
    small network would cost more than training it.
    """

    def __init__(self, path: str | Path, fingerprint: str, *, every: float = 5.0) -> None:
        self.path = Path(path)
        self.fingerprint = fingerprint
        self.every = every
        self._saved_at = time.monotonic()
        self._moments: dict[str, Tensor] | None = None  # restored, and not yet handed on
        self._epoch = 0

    def exists(self) -> bool:
        """Whether there is something to resume from."""
        return self.path.exists()

    def save(
        self,
        net: nn.Module,
        optimiser: "Adam",
        generator: torch.Generator,
        records: Records,
        position: Position,
        *,
        force: bool = False,
    ) -> None:
        """Replace the file, unless the last save is recent and ``force`` is off."""
        if not force and time.monotonic() - self._saved_at < self.every:
            return
        tensors = {f"net.{name}": value for name, value in net.state_dict().items()}
        tensors |= {f"optimiser.{name}": value for name, value in optimiser.state().items()}
        tensors = {name: value.cpu() for name, value in tensors.items()}
        tensors["generator"] = generator.get_state()
        for stage, quantities in records.items():
            for name, values in quantities.items():
                tensors[f"records.{stage}.{name}"] = torch.tensor(values, dtype=torch.float64)
        header = {"position": json.dumps(position), "fingerprint": self.fingerprint}
        header |= {"format": FORMAT, SEAL: UNSEALED}
        try:
            with replacing(self.path) as draft:
                save_file(tensors, draft, metadata=header)
                seal(draft)
        except (OSError, SafetensorError) as error:
            full = any(text in str(error) for text in ("No space left", "quota exceeded"))
            remedy = "make room" if full else "use a folder that can be written to"
            raise FermiboseError(
                f"could not write the checkpoint {self.path} ({error}); the previous one, if any, "
                f"is intact: {remedy} and resume"
            ) from error
        self._saved_at = time.monotonic()

    def restore(
        self, net: nn.Module, generator: torch.Generator, records: Records, *, stages: int
    ) -> Position:
        """Load weights, generator and records in place; returns where to go on."""
        tensors, header = self._read()
        if header.get("fingerprint") != self.fingerprint:
            raise FermiboseError(
                f"the checkpoint {self.path} belongs to a training with other settings, data or "
                "version; train with the same ones, or remove it to start afresh"
            )
        expected = {f"net.{name}": value for name, value in net.state_dict().items()}
        expected["generator"] = generator.get_state()
        found = {k: t for k, t in tensors.items() if not k.startswith(("optimiser.", "records."))}
        weights = _under("net.", tensors)
        try:
            check_shapes(found, expected)
            check_types(found, expected)
            check_numbers(weights)
            position = _position(header.get("position", "null"), stages)
            generator.set_state(found["generator"])
            for key, values in _under("records.", tensors).items():
                stage, name = key.split(".", 1)
                records.setdefault(stage, {})[name] = values.tolist()
        except (TypeError, ValueError, RuntimeError) as error:
            raise self._damaged(error) from error
        net.load_state_dict(weights)
        self._moments, self._epoch = _under("optimiser.", tensors), position.epoch
        return position

    def restore_optimiser(self, optimiser: "Adam", *, epochs: int) -> None:
        """Hand the moments found by :meth:`restore`, if any, to the optimiser of the stage."""
        if self._moments is None:
            return
        try:
            check_shapes(self._moments, optimiser.state())
            check_types(self._moments, optimiser.state())
            check_numbers(self._moments)
            if self._epoch > epochs:
                raise ValueError(f"it is in epoch {self._epoch} of {epochs}")
        except ValueError as error:
            raise self._damaged(error) from error
        optimiser.restore(self._moments)
        self._moments = None

    def _read(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        try:
            sealed = is_sealed(self.path)
            if sealed is False:
                raise ValueError("it is truncated or corrupt: its checksum differs")
            with safe_open(self.path, framework="pt") as file:
                header = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            if sealed is None and set(header) != _BEFORE:
                raise ValueError("its checksum is missing")
        except (SafetensorError, OSError, ValueError) as error:
            raise self._damaged(error) from error
        if sealed is None:
            warnings.warn(
                f"{self.path} was written without a checksum, by an earlier version: damage to it "
                "would not be noticed. It gets one with the next save.",
                stacklevel=5,
            )
        return tensors, header

    def _damaged(self, error: Exception) -> FileFormatError:
        reason = " ".join(str(error).split())[:200]
        return FileFormatError(
            f"{self.path} is not a readable checkpoint ({reason}); remove it to start afresh"
        )


def _position(text: str, stages: int) -> Position:
    numbers = read_json(text.encode())
    if not isinstance(numbers, list) or not all(is_whole(number, 0) for number in numbers):
        raise ValueError("how far it came is not told")
    position = Position(*numbers)
    if position.stage >= stages:
        raise ValueError(f"it is in stage {position.stage + 1} of {stages}")
    return position


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}
