"""Fitting: how many examples at a time stay within a limit of memory.

XLA says how much temporary memory a compiled program needs. Steps of the whole batch, half of it, a
quarter and so on are compiled until one fits; nothing is run.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax

from bk_jax import _compat
from bk_jax.sharding.partition import many_devices


def largest_fitting(
    private: Callable[..., Any],
    plain: Callable[..., Any],
    arrays: Sequence[Any],
    size: int,
    limit: int | float | None,
) -> int:
    """The largest microbatch of a batch of `size` whose step stays within the limit.

    Args:
      private: the private step, of a microbatch size and arrays.
      plain: the plain step, of arrays.
      arrays: the arguments, or their types.
      size: the number of examples.
      limit: bytes (int), a share of the plain step's (float), or `None`: the device's memory.
    """
    if many_devices():
        raise ValueError(
            'memory_limit and microbatch_size="auto" go by the memory of one device, and this '
            "program sees several, whose share of the batch is decided later. Pass "
            "microbatch_size as a number."
        )
    types = [_compat.struct_of(jax.typeof(array)) for array in arrays]
    allowed = _allowed(limit, functools.partial(_temporary, plain, types))
    needed = {}
    for candidate in _halves(size):
        needed[candidate] = _temporary(functools.partial(private, candidate), types)
        if needed[candidate] <= allowed:
            return candidate
    raise ValueError(
        f"one example at a time takes {_megabytes(needed[min(needed)])} of temporary memory, and "
        f"memory_limit={limit!r} allows {_megabytes(allowed)}. Raise the limit, or make the example "
        "smaller: shorter sequences, or jax.checkpoint around the layers of the model."
    )


def _allowed(limit: int | float | None, of_plain: Callable[[], int]) -> float:
    if limit is None:
        return _device_memory()
    return limit * of_plain() if isinstance(limit, float) else limit


def _device_memory() -> int:
    """What the first device has; a CPU has the machine's."""
    found = jax.devices()[0].memory_stats() or {}
    return int(found.get("bytes_limit") or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _temporary(step: Callable[..., Any], types: Sequence[Any]) -> int:
    found: Any = jax.jit(step).lower(*types).compile().memory_analysis()
    return int(found.temp_size_in_bytes)


def _halves(size: int) -> list[int]:
    """The size, half of it and so on, down to 1.

    >>> _halves(12)
    [12, 6, 3, 2, 1]
    """
    sizes = [max(size, 1)]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // 2))
    return sizes


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.1f} MB"
