"""The functions that random programs call, besides those of JAX."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name


def fit(x: Any, shape: tuple[int, ...]) -> jax.Array:
    """The elements of `x` in another shape, repeated or cut off as needed."""
    flat = jnp.ravel(x)
    copies = -(-math.prod(shape) // flat.size)
    return jnp.tile(flat, copies)[: math.prod(shape)].reshape(shape)


def doubled_vjp(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose own derivative rule says twice what is true."""
    wrapped = jax.custom_vjp(fun)

    def backward(residuals: Any, cotangent: Any) -> Any:
        return jax.tree.map(lambda x: 2 * x, residuals(cotangent))

    wrapped.defvjp(lambda *args: jax.vjp(fun, *args), backward)
    return wrapped


def doubled_jvp(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The same by a rule for tangents."""
    wrapped = jax.custom_jvp(fun)

    @wrapped.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        out, tangent = jax.jvp(fun, primals, tangents)
        return out, 2 * tangent

    return wrapped


NAMES = {
    "jax": jax,
    "jnp": jnp,
    "lax": lax,
    "checkpoint_name": checkpoint_name,
    "fit": fit,
    "doubled_vjp": doubled_vjp,
    "doubled_jvp": doubled_jvp,
}
