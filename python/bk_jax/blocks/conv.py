"""Convolution blocks: norms from patches or from stored kernel gradients, sums by XLA's own gradient."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.blocks.kept import Kept, Stored, merge_scans, stack_lengths, to_leaves
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype
from bk_jax.plan import Block
from bk_jax.sites import Path, ScanAxis, Site


@dataclasses.dataclass(frozen=True)
class Conv:
    """Images and output gradients of each site."""

    block: Block
    images: tuple[jax.Array, ...]
    gradients: tuple[jax.Array, ...]

    def norms(self) -> SquaredNorms:
        """Ghost norms of the patches, or the kernel gradients without keeping them."""
        if self.block.route == "ghost":
            return self._ghost_norms()
        return ops.sum_of_squares(_per_sample(self.block, self.images, self.gradients))

    def _ghost_norms(self) -> SquaredNorms:
        patches, outputs = [], []
        for site, image, gradient in zip(
            self.block.sites, self.images, self.gradients, strict=True
        ):
            depth = 1 + len(site.axes)
            patches.append(merge_scans(_vmap(site.use.patches, depth)(image), site.axes))
            flat = _vmap(site.use.output_gradient, depth)(gradient)
            outputs.append(merge_scans(flat, site.axes))
        return ops.ghost_norm(jnp.concatenate(patches, 2), jnp.concatenate(outputs, 2))

    def clipped_sum(self, factor: jax.Array) -> dict[int, jax.Array]:
        """The transpose of the batched convolution at the scaled output gradients."""
        parts = []
        for site, image, gradient in zip(
            self.block.sites, self.images, self.gradients, strict=True
        ):
            operands = _scale(image, gradient, factor, accumulation_dtype(gradient.dtype))
            parts.append(_transpose(site, functools.partial(_apply_batch, site), *operands))
        return to_leaves(self.block, sum(parts[1:], parts[0]))


def keep(block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Kept:
    """The kept arrays of a block of convolutions."""
    images = tuple(book[site.path] for site in block.sites)
    gradients = tuple(taps[site.path] for site in block.sites)
    if block.route == "store":
        return Stored(block, _per_sample(block, images, gradients))
    return Conv(block, images, gradients)


def _per_sample(
    block: Block, images: Sequence[jax.Array], gradients: Sequence[jax.Array]
) -> jax.Array:
    """Kernel gradients of every example, `[B, stack..., *kernel]`."""
    parts = []
    for site, image, gradient in zip(block.sites, images, gradients, strict=True):
        dtype = accumulation_dtype(gradient.dtype)
        one = functools.partial(_apply_scans, site, site.axes)
        pull = jax.vmap(lambda i, g, site=site, one=one: _transpose(site, one, i, g))
        parts.append(pull(image.astype(dtype), gradient.astype(dtype)))
    return sum(parts[1:], parts[0])


def _scale(
    image: jax.Array, gradient: jax.Array, factor: jax.Array, dtype: Any
) -> tuple[jax.Array, jax.Array]:
    """Scales each example's gradient; an example with the factor 0 is replaced by zeros."""

    def shaped(like: jax.Array) -> jax.Array:
        return factor.astype(dtype).reshape(-1, *[1] * (like.ndim - 1))

    image = jnp.where(shaped(image) != 0, image.astype(dtype), 0)
    scaled = jnp.where(shaped(gradient) != 0, gradient.astype(dtype) * shaped(gradient), 0)
    return image, scaled


def _transpose(site: Site, apply: Any, image: jax.Array, gradient: jax.Array) -> jax.Array:
    shape = (*stack_lengths(site.axes), *site.use.weight_shape)
    kernel = jax.ShapeDtypeStruct(shape, gradient.dtype)
    (out,) = jax.linear_transpose(lambda k: apply(k, image), kernel)(gradient)
    return out


def _apply_batch(site: Site, kernel: jax.Array, images: jax.Array) -> jax.Array:
    one = functools.partial(_apply_scans, site, site.axes)
    return jax.vmap(one, in_axes=(None, 0))(kernel, images)


def _apply_scans(
    site: Site, axes: Sequence[ScanAxis], kernel: jax.Array, image: jax.Array
) -> jax.Array:
    """The convolution of one example at every step of the enclosing scans."""
    if not axes:
        return site.use.apply(kernel, image)
    inner = functools.partial(_apply_scans, site, axes[1:])
    return jax.vmap(inner, in_axes=(0 if axes[0].stacked else None, 0))(kernel, image)


def _vmap(fun: Any, depth: int) -> Any:
    for _ in range(depth):
        fun = jax.vmap(fun)
    return fun
