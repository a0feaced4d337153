"""Noise as a gradient transformation, for use in a chain of optax transformations.

    grad_fn = bk_jax.clipped_value_and_grad(loss_fn, l2_clip_norm=1.0)
    optimizer = optax.chain(
        privacy.gaussian_privatizer(plan.noise_multiplier * grad_fn.sensitivity(), bk_jax.random.key()),
        optax.scale(1 / plan.batch_size),
        optax.adam(1e-3),
    )

Anything with the same two functions can take its place, such as the matrix-factorization
privatizers of jax_privacy: they receive a sum of clipped gradients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax._extras import require
from bk_jax.noise import add_noise
from bk_jax.privacy import checks


class GaussianState(NamedTuple):
    """The key that the next steps are split from, and the number of steps so far.

    >>> import bk_jax, jax.numpy as jnp
    >>> transformation = gaussian_privatizer(1.0, bk_jax.random.key())
    >>> state = transformation.init(jnp.zeros(2))
    >>> _, state = transformation.update(jnp.zeros(2), state)
    >>> int(state.steps)
    1
    """

    key: jax.Array
    steps: jax.Array


def gaussian_privatizer(stddev: float, key: jax.Array) -> Any:
    """An `optax.GradientTransformation` that adds independent Gaussian noise to clipped sums.

    Every update splits the key in its state and throws the used half away, so no two updates of a
    run draw the same noise. But a state restored from an old checkpoint draws it again, and the key
    in it must not be published. `bk_jax.privacy.open_ledger` with `dp_value_and_grad` avoids both:
    it refuses to go back, and its checkpoints hold no secret.

    Args:
      stddev: `noise_multiplier * grad_fn.sensitivity()`.
      key: a secret key, from `bk_jax.random.key()`. There is no default.

    The noise is that of `dp_value_and_grad` with `key=step_key` from `key, step_key =
    jax.random.split(key)`. Integer and boolean leaves are left alone.

    >>> import bk_jax, jax.numpy as jnp, optax
    >>> grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(w * x))
    >>> noise = gaussian_privatizer(1.1 * grad_fn.sensitivity(), bk_jax.random.key())
    >>> optimizer = optax.chain(noise, optax.scale(1 / 8), optax.adam(1e-3))
    >>> state = optimizer.init(jnp.zeros(3))
    >>> _, sums = grad_fn(jnp.zeros(3), jnp.ones((8, 3)))
    >>> updates, state = optimizer.update(sums, state)
    >>> updates.shape
    (3,)
    """
    optax = require("optax", "optax")
    deviation = checks.positive("stddev", stddev)

    def init(params: Any) -> GaussianState:
        del params
        return GaussianState(key, jnp.zeros((), jnp.int32))

    def update(updates: Any, state: GaussianState, params: Any = None) -> tuple[Any, GaussianState]:
        del params
        following, step_key = jax.random.split(state.key)
        noisy = add_noise_to_tree(updates, step_key, deviation)
        return noisy, GaussianState(following, state.steps + 1)

    return optax.GradientTransformation(init, update)


def add_noise_to_tree(sums: Any, key: jax.Array, stddev: Any) -> Any:
    """Noise for the real leaves of a tree of sums, identical to what `dp_value_and_grad` adds."""
    leaves, treedef = jax.tree_util.tree_flatten(sums)
    real = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    for i, noisy in zip(real, add_noise([leaves[i] for i in real], key, stddev), strict=True):
        leaves[i] = noisy
    return jax.tree_util.tree_unflatten(treedef, leaves)
