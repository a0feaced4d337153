"""`pre_clip_scale` beside jax_privacy's hook for it: scale, clip, undo the scale, and take Adam's step.

That is jax_privacy's `scale_then_privatize` (Ganesh, McMahan and Thakurta, 2025) without noise. Version
2.0.0 has the hook, `clipped_grad(pre_clipping_transform=...)`; the wrapper of optimizers came later.
"""

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import optax
import pytest

import bk_jax

# jax_privacy calls it itself.
pytestmark = pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated:DeprecationWarning")

RNG = np.random.default_rng(0)
PARAMS = {
    "hidden": RNG.normal(size=(4, 6)).astype(np.float32),
    "out": RNG.normal(size=(6, 3)).astype(np.float32),
    "bias": np.zeros(3, np.float32),
}
X = RNG.normal(size=(8, 4)).astype(np.float32) * np.float32([1, 5, 0.1, 1])
Y = RNG.normal(size=(8, 3)).astype(np.float32)
OPTIMIZER, STEPS, NORM, FLOOR = optax.adam(0.05), 4, 0.7, 1e-2
# Over which axes of a matrix second moments are averaged before they become its scale.
AXES = {"number": (0, 1), "rows": (1,), "columns": (0,), "elements": ()}


def loss_fn(params, x, y):
    return jnp.mean((jnp.tanh(x @ params["hidden"]) @ params["out"] + params["bias"] - y) ** 2)


def scale_of(state, axes):
    """`1 / (sqrt(v) + floor)`, from what Adam keeps."""

    def scale(moments):
        within = tuple(axis for axis in axes if axis < moments.ndim)
        mean = jnp.mean(moments, within, keepdims=within != tuple(range(moments.ndim)))
        return 1 / (jnp.sqrt(mean) + FLOOR)

    return jax.tree.map(scale, state[0].nu)


def theirs(params, scale):
    grad_fn = jax_privacy.clipped_grad(
        loss_fn,
        l2_clip_norm=NORM,
        batch_argnums=(1, 2),
        pre_clipping_transform=lambda grads: jax.tree.map(jnp.multiply, grads, scale),
    )
    return grad_fn(params, X, Y)


def ours(params, scale):
    grad_fn = bk_jax.clipped_value_and_grad(
        loss_fn, l2_clip_norm=NORM, batch_argnums=(1, 2), pre_clip_scale=scale
    )
    return grad_fn(params, X, Y)[1]


def trained(clipped, axes):
    """Parameters after each step, and the norm of each clipped sum."""

    @jax.jit
    def step(params, state):
        scale = scale_of(state, axes)
        sums = clipped(params, scale)
        grads = jax.tree.map(jnp.divide, sums, scale)
        updates, state = OPTIMIZER.update(grads, state, params)
        return optax.apply_updates(params, updates), state, sums

    params, state, found = PARAMS, OPTIMIZER.init(PARAMS), []
    for _ in range(STEPS):
        params, state, sums = step(params, state)
        found.append((params, sums))
    return found


@pytest.mark.parametrize("axes", AXES.values(), ids=AXES)
def test_scaled_sums_and_steps_are_theirs(axes):
    for got, expected in zip(trained(ours, axes), trained(theirs, axes), strict=True):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4), got, expected
        )


def test_the_scale_matters_here():
    """Else the test above would pass without it."""
    one = jax.tree.map(lambda x: jnp.ones((), x.dtype), PARAMS)
    state = OPTIMIZER.init(PARAMS)
    for _ in range(2):
        _, state = OPTIMIZER.update(theirs(PARAMS, one), state, PARAMS)
    scale = scale_of(state, ())
    scaled = jax.tree.map(jnp.divide, theirs(PARAMS, scale), scale)
    plain = theirs(PARAMS, one)
    assert abs(scaled["hidden"] / plain["hidden"] - 1).max() > 0.1
