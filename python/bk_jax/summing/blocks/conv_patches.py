"""Convolutions of a plan for a GPU as dense layers: norms, gradients and sums from patches.

Patches exist for a part of the batch at a time (`planning.patches`): for the norm, and again for the
sum. Operands are images and output gradients in canonical form, `[B, weights, images, D, H, W, C]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.ops.conv_patches import conv_rows
from bk_jax.ops.dense_patches import is_image
from bk_jax.ops.numerics import SquaredNorms
from bk_jax.planning.cost import Patches
from bk_jax.planning.plan import Block
from bk_jax.program.sites import Site
from bk_jax.summing.blocks.in_parts import each_in_parts, sum_in_parts, waiting

Pair = tuple[jax.Array, jax.Array]


def are_made(patches: Patches | None, batch: int) -> bool:
    """Whether there are examples enough for the plan's parts; pixels are gathered otherwise."""
    return patches is not None and patches.at_once(batch) > 0


def norms(block: Block, operands: Sequence[Pair]) -> SquaredNorms:
    """Squared norms `[B]`: all uses of a kernel are one dense layer with their pixels as positions."""
    norm = ops.ghost_norm if block.route == "ghost" else ops.direct_norm

    def some(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        uses = zip(block.sites, arrays[::2], arrays[1::2], strict=True)
        layers = [_layer(site, x, g) for site, x, g in uses]
        return tuple(norm(*(_joined(parts) for parts in zip(*layers, strict=True))))

    flat = [array for pair in operands for array in pair]
    return SquaredNorms(*each_in_parts(some, flat, _size(block.cost.patches, flat[0])))


def gradients(
    site: Site, patches: Patches, x: jax.Array, g: jax.Array
) -> tuple[jax.Array, SquaredNorms]:
    """Gradients `[B, weights, kD, kH, kW, cin, O]` of every example, and their norms."""

    def some(x: jax.Array, g: jax.Array) -> tuple[jax.Array, ...]:
        found, squares = ops.per_sample_grad(*_layer(site, x, g))
        split = found.reshape(*x.shape[:2], site.use.groups, *found.shape[2:])
        return ops.kernel_of_rows(split, site.use.window, x.shape[-1]), *squares

    found, *squares = each_in_parts(some, (x, g), _size(patches, x))
    return found, SquaredNorms(*squares)


def kernel_sum(
    site: Site, patches: Patches, x: jax.Array, factor: jax.Array, g: jax.Array
) -> jax.Array:
    """The clipped sum `[weights, kD, kH, kW, cin, O]`.

    Images that are copied are zeros for examples with the factor 0, which do not count. So patches
    depend on the factors here: XLA would keep those of the norms until now if they were the same.
    """

    def add(total: Any, factor: jax.Array, x: jax.Array, g: jax.Array) -> jax.Array:
        a, rows = _layer(site, _counted(x, factor) if patches.copied else x, g)
        return ops.clipped_gemm(a, factor, rows, total)

    total = sum_in_parts(add, factor, (x, g), _size(patches, x))
    split = total.reshape(x.shape[1], site.use.groups, *total.shape[1:])
    return ops.kernel_of_rows(split, site.use.window, x.shape[-1])


def _counted(x: jax.Array, factor: jax.Array) -> jax.Array:
    """Zeros for examples with the factor 0."""
    return jnp.where((factor != 0).reshape(-1, *[1] * (x.ndim - 1)), x, 0)


def _size(patches: Patches | None, x: jax.Array) -> int:
    """Examples whose patches exist at a time."""
    assert patches is not None
    return patches.at_once(x.shape[0])


def _layer(site: Site, x: jax.Array, g: jax.Array) -> Pair:
    """Patches and output gradients of a site, `[B, weights * groups, T, k]`."""
    use, batch = site.use, x.shape[0]
    if not is_image(use.window, x.shape[3:6], g.shape[3:6]):
        x = waiting(x, g)  # patches depend on images alone, which are there before
    images, results = (array.reshape(-1, *array.shape[2:]) for array in (x, g))
    patches = ops.dense_patches(images, results.shape[2:5], use.window)
    rows = conv_rows(results, use.groups)
    a, b = (array.reshape(batch, -1, *array.shape[2:]) for array in (patches, rows))
    return a, b


def _joined(parts: Sequence[Any]) -> jax.Array:
    return jnp.concatenate(parts, axis=2) if len(parts) > 1 else parts[0]
