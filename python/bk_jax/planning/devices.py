"""Devices: what data sheets say of GPUs, for plans that are made where none was measured.

Storing the gradient of an example instead of computing it twice saves `2 T p d` flops, and moves it
to memory and back, `8 p d` bytes: it pays from `T = 4 flops / memory` tokens on.

>>> round(find_device("NVIDIA H100 80GB HBM3").stored_pays(itemsize=2))
1181
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Device:
    """A GPU.

    Attributes:
      kind: its name, as it occurs in JAX's `device_kind`.
      tf32: dense flops per second of tensor cores on float32.
      bf16: the same on bfloat16.
      fp32: flops per second without tensor cores.
      memory: bytes per second.
      loads: loads of single elements per second: 32 for each multiprocessor and cycle.
      launch: seconds to start a kernel: an assumption.
      multiprocessors: how many there are.
      gathering: share of `fp32` that shared memory leaves to the kernel that gathers pixels.
    """

    kind: str
    tf32: float
    bf16: float
    fp32: float
    memory: float
    loads: float
    launch: float = 4e-6
    multiprocessors: int = 108
    gathering: float = 1.0

    def flops(self, itemsize: int) -> float:
        """Of tensor cores, for elements of that many bytes."""
        return self.bf16 if itemsize < 4 else self.tf32

    def stored_pays(self, itemsize: int) -> float:
        """Tokens from which a stored gradient costs less than a second product."""
        return 4 * self.flops(itemsize) / self.memory

    def named(self) -> str:
        """With its article."""
        return f"{'an' if self.kind[0] in 'AH' else 'a'} {self.kind} GPU"


# SXM modules; B200: an eighth of HGX B200's, half of the sparse numbers. The first that fits counts.
# `loads` follows from `fp32`: 64 (A100) or 128 units with two flops a cycle, beside 32 that load. Both
# kinds of multiprocessor read 128 bytes of shared memory a cycle, as much as 64 units of ours use up.
DEVICES = (
    Device("A100-SXM4-80GB", 156e12, 312e12, 19.5e12, 2.039e12, 4.9e12),
    Device("A100", 156e12, 312e12, 19.5e12, 1.555e12, 4.9e12),  # 40 GB, as in the paper
    Device("H100", 495e12, 989e12, 66.9e12, 3.35e12, 8.4e12, multiprocessors=132, gathering=0.5),
    Device("B200", 1.1e15, 2.25e15, 75e12, 8.0e12, 9.4e12, multiprocessors=148, gathering=0.5),
)


def find_device(kind: str) -> Device | None:
    """The GPU that a `device_kind` names, if it is known."""
    return next((device for device in DEVICES if device.kind in kind), None)


def check_device(device: str | None) -> None:
    """Raises unless it is a device that plans can be made for."""
    if device is None or device == "cpu" or (isinstance(device, str) and find_device(device)):
        return
    known = ", ".join(f'"{one.kind}"' for one in DEVICES)
    raise ValueError(
        f'device must be "cpu", a GPU ({known}, alone or within a longer name), or None for the one '
        f"that the program is compiled for, got {device!r}."
    )
