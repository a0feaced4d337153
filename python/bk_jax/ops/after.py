"""After: a value that is there only once others are. It says in which order XLA's CPU code is to run.

XLA's CPU scheduler starts whatever can run, so all sums of a model are made before the first is used,
and all exist at once. A chain of sums, each after the one before, lets every sum be used and freed
early. XLA removes `jax.lax.optimization_barrier` before it schedules; a custom call stays.
"""

from __future__ import annotations

import jax

from bk_jax import _native


def after(x: jax.Array, *others: jax.Array) -> jax.Array:
    """`x`, bit for bit. On a CPU nothing that reads it runs before `others` are there.

    >>> import jax.numpy as jnp
    >>> print(after(jnp.asarray([1.0, 2.0]), jnp.zeros(3)))
    [1. 2.]
    """
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    (result,) = _native.call("bk_after", after_twin, [out], x, *others)
    return result


def after_twin(x: jax.Array, *others: jax.Array) -> tuple[jax.Array]:
    """The same in plain JAX, in any order."""
    del others
    return (x,)
