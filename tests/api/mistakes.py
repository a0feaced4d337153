"""How to make a mistake: functions without arguments that call the transform, most of them wrongly."""

from __future__ import annotations

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

import bk_jax

W = np.ones((3, 2), np.float32)
X = np.ones((4, 3), np.float32)


def dense(w, x):
    return jnp.sum(x @ w)


def make(**options):
    """The transform alone: errors that need no call."""
    return lambda: bk_jax.dp_value_and_grad(dense, **options)


def call(*args, loss=dense, key=None, is_padding_example=None, **options):
    """The transform and one call of it."""
    options = {"noise_multiplier": 0.0, **options}

    def run():
        grad_fn = bk_jax.dp_value_and_grad(loss, **options)
        return grad_fn(*args, key=key, is_padding_example=is_padding_example)

    return run


def call_with(w):
    """A call of the transform as a function of the batch."""
    return lambda x: bk_jax.dp_value_and_grad(dense, noise_multiplier=0.0)(w, x)


def symbolic(sizes):
    """A batch whose sizes are not known."""
    return jax.ShapeDtypeStruct(jax.export.symbolic_shape(sizes), np.float32)


def traced_clip_norm(value):
    """A clip norm that is known only when the program runs."""
    return lambda: jax.jit(
        lambda norm: bk_jax.dp_value_and_grad(dense, l2_clip_norm=norm, noise_multiplier=0.0)(W, X)
    )(value)


def regularised(w, x):
    return jnp.sum(x @ w) + jnp.sum(jnp.square(w))


def joined(params, x):
    return jnp.sum(x @ jnp.concatenate([params["a"], params["b"]], axis=1))
