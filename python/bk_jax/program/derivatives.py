"""Derivatives of a private gradient, which do not exist: an error in place of JAX's about some call.

Whatever enters goes through an identity whose derivative raises. XLA never sees it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

NO_DERIVATIVE = (
    "a private gradient has no derivative: its norms are upper bounds, it is clipped by them, and what "
    "came out of a derivative would be neither clipped nor noised. To leave it out of a function that "
    "is differentiated, pass jax.lax.stop_gradient of its arguments. A penalty on gradients, or any "
    "other derivative, belongs inside of loss_fn, where jax.grad works as ever."
)


@jax.custom_jvp
def _same(arrays: list[Any]) -> list[Any]:
    return arrays


@_same.defjvp
def _refuse(primals: Any, tangents: Any) -> Any:
    raise TypeError(NO_DERIVATIVE)


def refuse_derivatives(tree: Any) -> Any:
    """The same tree, with respect to which no derivative can be taken."""
    leaves, treedef = jax.tree_util.tree_flatten(tree)
    real = [i for i, leaf in enumerate(leaves) if _may_vary(leaf)]
    if not real:
        return tree
    for i, array in zip(real, _same([leaves[i] for i in real]), strict=True):
        leaves[i] = array
    return jax.tree_util.tree_unflatten(treedef, leaves)


def _may_vary(leaf: Any) -> bool:
    """Whether somebody may be differentiating with respect to it: only what is traced can be."""
    return isinstance(leaf, jax.core.Tracer) and jnp.issubdtype(leaf.dtype, jnp.inexact)
