"""A stand-in for `bk_jax._cuda`: programs can be lowered for GPUs where that was not built.

Nothing can run them. What handlers check, and how large their workspaces are, only the module knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import pytest

from bk_jax import _native
from support.structure import fresh_jit

WORKSPACE = 96
WITHOUT_WORKSPACE = (
    "bk_chacha_bits", "bk_clip_factor", "bk_gaussian", "bk_gaussians", "bk_weighted_sum",
)  # fmt: skip
TARGETS = (*sorted(set(_native.TARGETS) - set(_native.ON_CPUS_ALONE)), *_native.ON_GPUS_ALONE)


class Module:
    """What Python asks of the module."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def workspace_bytes(self, target: str, given: Any, made: Any, attributes: Any) -> int:
        self.asked.append((target, given, made))
        return 0 if target in WITHOUT_WORKSPACE else WORKSPACE


def register(patch: pytest.MonkeyPatch, without: tuple[str, ...] = ()) -> Module:
    """The calls for CUDA count as registered, until the patch is undone."""
    module = Module()
    targets = tuple(target for target in TARGETS if target not in without)
    library = _native.Library(module, targets, "no device")
    patch.setattr(_native, "cuda_library", lambda: library)
    return module


def lowered(fun: Callable[..., Any], *operands: Any, platform: str = "cuda") -> str:
    """The program for a GPU, as text."""
    jitted: Any = fresh_jit(fun)
    return jitted.trace(*operands).lower(lowering_platforms=(platform,)).as_text()


def calls(text: str, target: str) -> list[str]:
    """The types of the calls of a target: `(tensor<...>, ...) -> (...)`."""
    found = re.findall(rf"stablehlo\.custom_call @{target}\(.*", text)
    return [line.rpartition(" : (")[2] for line in found]


def shapes(call: str) -> tuple[list[str], list[str]]:
    """Operands and results of a call, without workspaces."""
    operands, _, results = call.partition("->")
    workspace = f"{WORKSPACE}xui8"
    made = [one for one in re.findall(r"tensor<(.*?)>", results) if one != workspace]
    return re.findall(r"tensor<(.*?)>", operands), made


def targets_of(text: str) -> list[str]:
    """All calls of ours, in their order."""
    return re.findall(r"stablehlo\.custom_call @(bk_\w+)\(", text)


def normal_arrays(*shapes: tuple[int, ...], dtype: Any) -> list[jax.Array]:
    """Different for each."""
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return [jax.random.normal(k, s, dtype) for k, s in zip(keys, shapes, strict=True)]
