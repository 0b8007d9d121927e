"""A device that is not there: tensors that say they are elsewhere, and refuse every silent copy.

Numbers are kept on the CPU, behind a tensor of the device type "lazy" (for which autograd needs no
driver). As on a GPU, an operation on tensors of two devices fails (and so does indexing by a tensor
of the CPU, which torch would copy), a random number comes from the device's own generator, and
``.numpy()`` does not work. Explicit copies are recorded; so are scalars that are read.
"""

from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

FAR = torch.device("lazy", 0)
PLAIN, MADE = torch.Generator, torch.tensor
OURS: dict[int, torch.Generator] = {}
aten = torch.ops.aten


class SilentCopy(AssertionError):
    """What the device refuses."""


class FarGenerator(torch.Generator):
    @property
    def device(self) -> torch.device:
        return FAR


class AnyGenerator(torch.Generator):
    """What makes generators while there is the device."""

    def __new__(cls, device: Any = "cpu") -> torch.Generator:
        if torch.device(device).type != FAR.type:
            return PLAIN(device)
        made = PLAIN.__new__(FarGenerator)
        OURS[made._cdata] = made  # torch hands on what is inside of it only
        return made


class FarTensor(torch.Tensor):
    @staticmethod
    def __new__(cls, near: torch.Tensor) -> "FarTensor":
        return torch.Tensor._make_wrapper_subclass(
            cls,
            near.shape,
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            layout=near.layout,
            device=FAR,
        )

    def __init__(self, near: torch.Tensor) -> None:
        self.near = near

    def new_tensor(self, numbers: Any) -> "FarTensor":
        return MADE(numbers, dtype=self.dtype).to(FAR)

    def __repr__(self) -> str:
        return f"FarTensor({self.near})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise SilentCopy(f"{func} outside of the device")


class Device(TorchDispatchMode):
    """While it is entered there is the device FAR."""

    def __init__(self, *, float64: bool = True) -> None:
        super().__init__()
        self.float64 = float64
        self.to_host: list[tuple[int, ...]] = []  # shapes
        self.scalars = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        there = [t for t in tensors if isinstance(t, FarTensor)]
        asked = kwargs.get("device")
        far = asked.type == FAR.type if asked is not None else bool(there)
        copying = func in (aten._to_copy.default, aten.copy_.default)
        # A number on the CPU may meet any tensor, as everywhere in torch.
        here = [t for t in tensors if not isinstance(t, FarTensor) and (t.ndim or not there)]
        if there and here and not copying:
            raise SilentCopy(f"{func} on two devices: {[(t.device, t.shape) for t in tensors]}")
        generator = kwargs.get("generator")
        if generator is not None and (generator._cdata in OURS) != far:
            raise SilentCopy(f"{func} of another device's generator")
        if func is aten._local_scalar_dense.default:
            self.scalars += bool(there)
        if there and copying and not (far and isinstance(args[0], FarTensor)):
            self.to_host.append(tuple(there[0].shape))

        def near(value: Any) -> Any:
            return value.near if isinstance(value, FarTensor) else value

        given = dict(kwargs) | ({} if asked is None else {"device": torch.device("cpu")})
        out = func(*tree_map(near, args), **tree_map(near, given))
        if func is aten.copy_.default:
            return args[0]
        if not far:
            return out

        def moved(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or isinstance(value, FarTensor):
                return value
            if value.dtype == torch.float64 and not self.float64:
                raise TypeError(f"{func}: the device has no float64")
            return FarTensor(value)

        return return_and_correct_aliasing(func, args, kwargs, tree_map(moved, out))


@contextmanager
def far_device(monkeypatch, *, float64: bool = True):
    """The device, and generators and autocast for it."""
    with monkeypatch.context() as patch:
        autocast = torch.autocast

        def cast(device_type: str, **how: Any) -> Any:
            return nullcontext() if device_type == FAR.type else autocast(device_type, **how)

        def made(numbers: Any, device: Any = None, **how: Any) -> torch.Tensor:
            return MADE(numbers, **how).to(device or "cpu")  # torch.tensor asks no mode

        patch.setattr(torch, "tensor", made)
        patch.setattr(torch, "Generator", AnyGenerator)
        patch.setattr(torch, "autocast", cast)
        # Parameters are replaced, for what is behind one cannot be
        patch.setattr(torch.__future__, "_overwrite_module_params_on_conversion", True)
        if not float64:
            patch.setattr("fermibose.compute.WITHOUT_FLOAT64", ("mps", FAR.type))
        with Device(float64=float64) as device:
            yield device


def back(tensor: torch.Tensor) -> torch.Tensor:
    """Its numbers, on the CPU."""
    return tensor.near if isinstance(tensor, FarTensor) else tensor.detach()
