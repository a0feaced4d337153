"""Blocks: the kept arrays of a block as one dense layer, and its gradient as gradients of leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax.plan import Block
from bk_jax.sites import Path, ScanAxis, Site
from bk_jax.views import transpose_view


class Operands(NamedTuple):
    """`left[B, N, T, rows]` and `right[B, N, T, columns]`: the gradient is `left^T right`."""

    left: jax.Array
    right: jax.Array


def operands(block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Operands:
    """Joins the sites of a block along the tokens."""
    parts = [_site_operands(site, book[site.path], taps[site.path]) for site in block.sites]
    if len(parts) == 1:
        return parts[0]
    left = jnp.concatenate([part.left for part in parts], axis=2)
    right = jnp.concatenate([part.right for part in parts], axis=2)
    return Operands(left, right)


def _site_operands(site: Site, activation: jax.Array, gradient: jax.Array) -> Operands:
    a = _merge_scans(activation, site.axes)
    g = _merge_scans(gradient, site.axes)
    return Operands(g, a) if site.use.swap else Operands(a, g)


def _merge_scans(array: jax.Array, axes: tuple[ScanAxis, ...]) -> jax.Array:
    """`[B, scans..., N, T, k]` to `[B, N', T', k]`: stacked scans join N, shared ones join T."""
    stacked = [1 + i for i, axis in enumerate(axes) if axis.stacked]
    shared = [1 + i for i, axis in enumerate(axes) if not axis.stacked]
    n_axis, t_axis, k_axis = (len(axes) + i for i in (1, 2, 3))
    order = (0, *stacked, n_axis, *shared, t_axis, k_axis)
    ordered = jnp.transpose(array, order)
    n = math.prod(array.shape[i] for i in (*stacked, n_axis))
    t = math.prod(array.shape[i] for i in (*shared, t_axis))
    return ordered.reshape(array.shape[0], n, t, array.shape[-1])


def leaf_gradients(block: Block, gradient: jax.Array) -> dict[int, jax.Array]:
    """Carries `[N', rows, columns]` back to every leaf of the block."""
    site = block.sites[0]
    stack = [axis.length for axis in site.axes if axis.stacked]
    n = site.use.sizes[0]
    weight = site.use.to_weight(gradient.reshape(*stack, n, *gradient.shape[1:]))
    out: dict[int, jax.Array] = {}
    for view in site.views:
        part = transpose_view(view, weight)
        out[view.leaf] = out[view.leaf] + part if view.leaf in out else part
    return out
