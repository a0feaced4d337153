"""Inside `shard_map`: every device runs the program on its own part, and types say what varies.

With `check_vma=True`, JAX's default, the type of a value names the mesh axes along which it differs
from device to device. Nothing else is needed:

| what varies | means | hence |
|---|---|---|
| the examples, along `data` | each device has its own | sums add up along `data`, noise once |
| a parameter, along `model` | each device has a part of it | squared norms add up along `model` |
| neither | a copy | nothing is added up |

A parameter that is a copy, but is used by computations that differ along `model`, gets its own tap,
whose cotangent JAX adds up. A loss that communicates along an axis of the examples would mix them:
an error. With `check_vma=False` nothing is known, so the sum stays that of the device's own
examples, and noise, which would be drawn on every device, is refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import _compat
from bk_jax.sharding.varying import vary


@dataclasses.dataclass(frozen=True)
class Manual:
    """The axes that `shard_map` maps, and those along which examples differ."""

    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    examples: tuple[str, ...] = ()
    typed: bool = True  # whether types say what varies: check_vma

    def __bool__(self) -> bool:
        return bool(self.sizes)

    def parts(self, leaf: Any) -> tuple[str, ...]:
        """The axes along which a parameter is split."""
        return tuple(sorted(_compat.varying(leaf) - set(self.examples)))

    def copies(self, paths: Sequence[str], arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Parameters as a separate copy for each device's examples."""
        for path, array in zip(paths, arrays, strict=True):
            if cut := sorted(_compat.varying(array) & set(self.examples)):
                raise ValueError(
                    f"parameter {path!r} differs between devices along {cut}, which have examples "
                    "of their own: their gradients would not be of one parameter. Pass it whole "
                    "(in_specs P()); XLA gathers one that is kept in parts."
                )
        return tuple(vary(array, self.examples) for array in arrays)

    def vary(self, tap: jax.Array, like: Any) -> jax.Array:
        """A tap on a parameter: it differs wherever the parameter or the example does."""
        return vary(tap, _compat.varying(like) | set(self.examples)) if self else tap

    def add_up(self, total: jax.Array) -> jax.Array:
        """The sum over the examples of all devices."""
        axes = tuple(sorted(set(self.examples) & _compat.varying(total)))
        return jax.lax.psum(total, axes) if axes else total


def find(examples: Sequence[Any]) -> Manual:
    """What is known at this point of the program."""
    mesh = jax.sharding.get_abstract_mesh()
    axes = mesh.manual_axes
    if not axes:
        return NOT_MANUAL
    differs = {axis for x in examples for axis in _compat.varying(x)}
    typed = bool(_compat.varying(jax.lax.axis_index(axes[0])))
    return Manual({axis: mesh.shape[axis] for axis in axes}, tuple(sorted(differs)), typed)


NOT_MANUAL = Manual()


def check_loss(manual: Manual, jaxpr: Any) -> None:
    """The loss of an example is its own, and one number on all devices that share the example."""
    for eqn in _compat.equations(jaxpr):
        names = _compat.collective_axes(eqn)
        mixed = names & set(manual.examples) if manual.typed else names
        if mixed:
            raise ValueError(
                f"the loss communicates ({eqn.primitive}, {_compat.source_line(eqn)}) along "
                f"{sorted(mixed)}, where the devices have different examples or may have: one example "
                "could change another's gradient. Gather parameters before dp_value_and_grad, reduce "
                "losses after it, and leave check_vma of shard_map on."
            )
    inner, _ = _compat.split_closed(jaxpr)
    extra = _compat.varying(inner.outvars[0].aval) - set(manual.examples)
    if extra:
        raise ValueError(
            f"the loss differs between devices along {sorted(extra)}, where they share an example. Add "
            f"the parts up inside the loss: jax.lax.psum(loss, {sorted(extra)})."
        )


def check_noise(manual: Manual, key: Any) -> None:
    """Noise is drawn once."""
    if not manual.typed:
        raise ValueError(
            "inside shard_map with check_vma=False nobody knows which devices have examples of their "
            "own: each would draw noise for its own sum. Leave check_vma on, or use "
            "clipped_value_and_grad and add noise after the sum over devices."
        )
    if manual and _compat.varying(key):
        raise ValueError(
            f"the key differs along {sorted(_compat.varying(key))}: noise would be drawn on every "
            "device. Pass one key to all of them (in_specs P())."
        )


def place(manual: Manual, total: jax.Array) -> tuple[jax.Array, tuple[int, ...]] | None:
    """Where a device's part of a sum lies, as `start` and `whole` of the noise: parts in a row.

    Seen this way, an array that is split along its first axis has the same noise as on one device.
    """
    axes = manual.parts(total) if manual else ()
    if not axes:
        return None
    count = math.prod(manual.sizes[axis] for axis in axes)
    index = jax.lax.axis_index(axes).astype(jnp.int32)
    lead = total.shape[0] if total.ndim else 1
    start = jnp.zeros(max(total.ndim, 1), jnp.int32).at[0].set(index * lead)
    return start, (count * lead, *total.shape[1:])
