"""Convolution blocks: images and output gradients in canonical form (`ops.conv`), then the routes.

| route | norm | sum |
|---|---|---|
| ghost | Gram matrices of pixels or patches | kernel gradient of the batch, scaled |
| fused | kernel gradient of each example, made in blocks that are dropped | the same |
| store | kernel gradient of each example | weighted sum of them |

Plans for GPUs have all of them from patches as well, as those of dense layers: `conv_patches`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import ops
from bk_jax.ops.conv_norm import Form
from bk_jax.ops.numerics import SquaredNorms, inflate, unit_roundoff
from bk_jax.planning.cost import Patches
from bk_jax.planning.plan import Block
from bk_jax.program.rules.conv import triple
from bk_jax.program.sites import Path, ScanAxis, Site
from bk_jax.sharding.partition import Rule, Shards, sharded
from bk_jax.summing.blocks import conv_patches
from bk_jax.summing.blocks.stored import Stored, stack_lengths, to_leaves
from bk_jax.summing.kept import Cut, Kept, Sums, added
from bk_jax.summing.norms import add_up


class Operands(NamedTuple):
    """Image and output gradient of one site, in canonical form."""

    image: jax.Array
    gradient: jax.Array


@dataclasses.dataclass(frozen=True)
class Conv:
    """Images and output gradients of each site."""

    block: Block
    operands: tuple[Operands, ...]

    @property
    def leaves(self) -> tuple[int, ...]:
        """The block's."""
        return self.block.leaves

    def squared_norms(self) -> SquaredNorms:
        """From Gram matrices, or from kernel gradients that are not kept."""
        sites, ghost = self.block.sites, self.block.route == "ghost"
        if conv_patches.are_made(self.block.cost.patches, self.operands[0].image.shape[0]):
            return conv_patches.norms(self.block, self.operands)
        if ghost and self.block.cost.pixel_d is None:
            return _patch_norms(sites, self.operands)
        if len(sites) > 1:
            return _norms_of_sum(sites, self.operands)
        return _norms(sites[0], self.operands[0], "pixel_gram" if ghost else "direct")

    def clipped_sum(self, factor: jax.Array, start: Sums) -> dict[int, jax.Array]:
        """The kernel gradient of the whole batch at the scaled output gradients."""
        patches = self.block.cost.patches
        parts = [
            _to_weight(site, _kernel_sum(x, factor, g, site=site, patches=patches), ())
            for site, (x, g) in zip(self.block.sites, self.operands, strict=True)
        ]
        return added(start, to_leaves(self.block, sum(parts[1:], parts[0])))

    @property
    def arrays(self) -> tuple[jax.Array, ...]:
        """Image and gradient of each site in turn."""
        return tuple(array for both in self.operands for array in both)

    @property
    def cut(self) -> Cut:
        """A part of the channels has its own part of the norm."""
        return Cut(_labels(self.block.sites), ("w", "c", "o"), _whole(self.block.sites))

    def on_device(self, shards: Shards, arrays: Sequence[jax.Array]) -> Sequence[Kept]:
        """Parts of all of them."""
        pairs = zip(arrays[::2], arrays[1::2], strict=True)
        return [dataclasses.replace(self, operands=tuple(Operands(*pair) for pair in pairs))]


def keep(block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Kept:
    """What is kept of a block of convolutions."""
    operands = tuple(_canonical(site, book[site.path], taps[site.path]) for site in block.sites)
    if block.route != "store":
        return Conv(block, operands)
    patches = block.cost.patches
    stored = [_store(site, both, patches) for site, both in zip(block.sites, operands, strict=True)]
    if len(stored) == 1:
        return Stored(block, *stored[0])
    parts = [gradients for gradients, _ in stored]
    return Stored(block, sum(parts[1:], parts[0]))


def _store(site: Site, both: Operands, patches: Patches | None) -> tuple[jax.Array, SquaredNorms]:
    """Gradients `[B, stack..., *weight_shape]` of every example, and their norms."""
    gradients, *norms = _kernel_of_each(*both, site=site, patches=patches)
    return _to_weight(site, gradients, (both.image.shape[0],)), SquaredNorms(*norms)


def _each_rule(x: jax.Array, g: jax.Array, *, site: Site, patches: Patches | None) -> Rule:
    del patches
    results = (f"b w x y z {_channels(site)}", "b", "b")
    return Rule(_labels([site]), results, _whole([site]), exchange="b")


@sharded(_each_rule)
def _kernel_of_each(
    shards: Shards, x: jax.Array, g: jax.Array, *, site: Site, patches: Patches | None
) -> tuple[jax.Array, ...]:
    if patches and conv_patches.are_made(patches, x.shape[0]):
        gradients, norms = conv_patches.gradients(site, patches, x, g)
    else:
        gradients, norms = _grads(site, Operands(x, g))
    return gradients, *add_up(shards, norms, ("w", "c", "o"))


def _sum_rule(
    x: jax.Array, factor: jax.Array, g: jax.Array, *, site: Site, patches: Patches | None
) -> Rule:
    del patches
    image, gradient = _labels([site])
    result = f"{'w ' if x.shape[1] != 1 else ''}x y z {_channels(site)}"
    return Rule((image, "b", gradient), (result,), _whole([site]), scatters=True)


@sharded(_sum_rule)
def _kernel_sum(
    shards: Shards,
    x: jax.Array,
    factor: jax.Array,
    g: jax.Array,
    *,
    site: Site,
    patches: Patches | None,
) -> jax.Array:
    """The clipped sum, with an axis of weights in front if there are several."""
    if patches and conv_patches.are_made(patches, x.shape[0]):
        total = conv_patches.kernel_sum(site, patches, x, factor, g)
        return shards.sum(total if x.shape[1] != 1 else total[0], "b")

    def one(x: jax.Array, g: jax.Array) -> jax.Array:
        return ops.conv_sum(x, factor, g, site.use.window)

    stacked = x.shape[1] != 1
    total = jax.vmap(one, in_axes=1)(x, g) if stacked else one(x[:, 0], g[:, 0])
    return shards.sum(total, "b")


def _labels(sites: Sequence[Site]) -> tuple[str, ...]:
    """Factors of the canonical arrays: examples, weights, images, pixels, channels."""
    return tuple(
        label
        for i in range(len(sites))
        for label in (f"b w i{i} d{i} h{i} v{i} c", f"b w i{i} e{i} j{i} u{i} o")
    )


def _whole(sites: Sequence[Site]) -> frozenset[str]:
    """Pixels overlap; channels of several groups are cut by group already."""
    pixels = {f"{name}{i}" for i in range(len(sites)) for name in "idhveju"} | set("xyz")
    return frozenset(pixels | ({"c", "o"} if sites[0].use.groups > 1 else set()))


def _channels(site: Site) -> str:
    """Factors of the channels of a kernel; with groups it has only a part of the image's."""
    return "part o" if site.use.groups > 1 else "c o"


def _norms(site: Site, both: Operands, form: Form) -> SquaredNorms:
    x, g = (_one_per_weight(part) for part in both)
    norms = ops.conv_norm(x, g, site.use.window, form)
    return _add_weights(norms, both.image.shape[0])


def _grads(site: Site, both: Operands) -> tuple[jax.Array, SquaredNorms]:
    """Gradients `[B, weights, kD, kH, kW, cin, O]` of every example, and their norms."""
    batch = both.image.shape[0]
    x, g = (_one_per_weight(part) for part in both)
    grads, norms = ops.conv_grad(x, g, site.use.window)
    stacked = grads.reshape(batch, both.image.shape[1], *grads.shape[1:])
    return stacked, _add_weights(norms, batch)


def _sum_of_grads(sites: Sequence[Site], operands: Sequence[Operands]) -> jax.Array:
    parts = [_grads(site, both)[0] for site, both in zip(sites, operands, strict=True)]
    return sum(parts[1:], parts[0])


def _patch_norms(sites: Sequence[Site], operands: Sequence[Operands]) -> SquaredNorms:
    """Ghost norms: all uses of a kernel are one dense layer with their patches as tokens."""
    patches, rows = [], []
    for site, both in zip(sites, operands, strict=True):
        window = site.use.window
        x, g = (_one_per_weight(part) for part in both)
        patches.append(ops.conv_patches(x, g.shape[2:5], window))
        rows.append(ops.conv_rows(g, window.groups))
    batch = operands[0].image.shape[0]
    return ops.ghost_norm(*(_join(parts, batch) for parts in (patches, rows)))


def _join(parts: Sequence[jax.Array], batch: int) -> jax.Array:
    """`[B * weights, groups, T, k]` of each site to `[B, weights * groups, all T, k]`."""
    joined = jnp.concatenate(parts, axis=2)
    weights = joined.shape[0] // max(batch, 1)
    return joined.reshape(batch, weights * joined.shape[1], *joined.shape[2:])


def _norms_of_sum(sites: Sequence[Site], operands: Sequence[Operands]) -> SquaredNorms:
    """Several uses of one kernel: their gradients add up before the norm is taken.

    The sum of computed gradients errs by no more than their errors together, each of which is the
    distance from its norm to the bound of it; the constant covers the roundings of this arithmetic.
    """
    norms = ops.sum_of_squares(_sum_of_grads(sites, operands))
    slack = jnp.zeros_like(norms.upper)
    for site, both in zip(sites, operands, strict=True):
        own = _norms(site, both, "direct")
        roundings = 16 * len(sites) * unit_roundoff(slack.dtype)
        slack += jnp.sqrt(own.upper) * (1 + roundings)
        slack -= jnp.sqrt(own.estimate) * (1 - roundings)
    return SquaredNorms(norms.estimate, inflate(jnp.square(jnp.sqrt(norms.upper) + slack), 4))


def _canonical(site: Site, image: jax.Array, gradient: jax.Array) -> Operands:
    """Both as `[B, weights, images, D, H, W, channels]`; scans that share the kernel join the images."""
    numbers = site.use.equation.params["dimension_numbers"]
    return Operands(
        _reorder(image, numbers.lhs_spec, site.axes),
        _reorder(gradient, numbers.out_spec, site.axes),
    )


def _reorder(array: jax.Array, spec: Sequence[int], axes: Sequence[ScanAxis]) -> jax.Array:
    stacked = [1 + i for i, axis in enumerate(axes) if axis.stacked]
    shared = [1 + i for i, axis in enumerate(axes) if not axis.stacked]
    image, feature, *spatial = (1 + len(axes) + i for i in spec)
    ordered = jnp.transpose(array, (0, *stacked, *shared, image, *spatial, feature))
    weights = math.prod(array.shape[i] for i in stacked)
    images = math.prod(array.shape[i] for i in (*shared, image))
    sizes = triple([array.shape[i] for i in spatial])
    return ordered.reshape(array.shape[0], weights, images, *sizes, array.shape[feature])


def _one_per_weight(array: jax.Array) -> jax.Array:
    """`[B, weights, ...]` to `[B * weights, ...]`."""
    return array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])


def _add_weights(norms: SquaredNorms, batch: int) -> SquaredNorms:
    """Norms `[B * weights]` to those of all weights of an example."""
    weights = norms.upper.size // max(batch, 1)
    if weights == 1:
        return norms
    estimate, upper = (jnp.sum(part.reshape(batch, weights), axis=1) for part in norms)
    return SquaredNorms(estimate, inflate(upper, weights))


def _to_weight(site: Site, kernel: jax.Array, lead: tuple[int, ...]) -> jax.Array:
    """`[..., kD, kH, kW, cin, O]` to `[*lead, stack..., *weight_shape]`."""
    out, features, *spatial = site.use.equation.params["dimension_numbers"].rhs_spec
    order = (*spatial, features, out)
    first = (*lead, *stack_lengths(site.axes))
    grouped = kernel.reshape(*first, *(site.use.weight_shape[i] for i in order))
    inverse = [len(first) + int(i) for i in np.argsort(order)]
    return jnp.transpose(grouped, [*range(len(first)), *inverse])
