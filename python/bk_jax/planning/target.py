"""Target: the device that a plan is for.

Routes are chosen when a step is traced, before JAX says what it lowers it for. So the plan is for, in
this order:

| | |
|---|---|
| `dp_value_and_grad(..., device="H100")` | what the caller names |
| `with jax.set_mesh(mesh):` | the devices of the mesh, here or elsewhere |
| `jax.default_device` | that device |
| otherwise | the first device of all processes |

All processes of a run must choose alike: none of these differs between them.
"""

from __future__ import annotations

from typing import Any

import jax

from bk_jax import _compat
from bk_jax.planning.default_rates import AVX512, nominal_rates
from bk_jax.planning.rates import Rates


def gpu_kind(device: str | None = None) -> str | None:
    """The kind of GPU to plan for, or None for anything else; `device` is what the caller names."""
    if device is not None:
        return None if device == "cpu" else device
    around = _compat.mesh_device() or _compat.default_device()
    if around is None or isinstance(around, str):
        is_gpu = (around or jax.default_backend()) in ("gpu", "cuda")
        return jax.devices()[0].device_kind if is_gpu else None
    return _kind_of(around)


def _kind_of(device: Any) -> str | None:
    """JAX's devices of GPUs have the platform `gpu`, those of a description `cuda`."""
    return str(device.device_kind) if device.platform in ("gpu", "cuda") else None


def planning_rates(device: str | None = None) -> Rates:
    """The shipped rates by which routes are chosen, never those of a calibration."""
    kind = gpu_kind(device)
    return AVX512 if kind is None else nominal_rates(kind)
