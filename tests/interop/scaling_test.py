"""Which functions of a gradient are scalings, and gradients of scaled parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bk_jax.interop.scaling import find_scales, scaled

GRADS = {"b": np.zeros(2, np.float32), "w": np.zeros((2, 3), np.float32)}


def each(function):
    return lambda grads: jax.tree.map(function, grads)


SCALINGS = {
    "identity": (lambda g: g, [None, None]),
    "one leaf": (lambda g: {**g, "b": 3 * g["b"]}, [3, None]),
    "a chain": (each(lambda x: -(x / 4) * 2), [-0.5, -0.5]),
    "elements": (lambda g: {**g, "b": g["b"] * jnp.arange(2.0)}, [[0, 1], None]),
    "rows": (lambda g: {**g, "w": g["w"] * jnp.arange(2.0)[:, None]}, [None, [[0] * 3, [1] * 3]]),
}
OTHERS = {
    "affine": each(lambda x: x + 1),
    "a square": each(lambda x: x * x),
    "an inverse": each(lambda x: 1 / x),
    "a norm": each(lambda x: x / jnp.linalg.norm(x)),
    "a constant": each(jnp.zeros_like),
    "a broadcast": each(lambda x: x * jnp.ones((5, *x.shape))),
    "a reversal": lambda g: {**g, "b": g["b"][::-1]},
    "leaves mixed": lambda g: {**g, "b": g["b"] * g["w"][0, 0]},
    "other leaves": lambda g: [g["b"], g["w"]],
    "one leaf missing": lambda g: g["b"],
}


@pytest.mark.parametrize("name", SCALINGS)
def test_scalings_are_found(name):
    transform, expected = SCALINGS[name]
    found = find_scales(transform, GRADS)
    assert [s is None for s in found] == [s is None for s in expected]
    for scale, value in zip(found, expected, strict=True):
        if scale is not None:
            np.testing.assert_array_equal(scale, np.broadcast_to(value, scale.shape))


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_are_not(name):
    assert find_scales(OTHERS[name], GRADS) is None


def test_leaves_of_one_shape_must_stay_where_they_are():
    swap = lambda g: (g[1], g[0])  # noqa: E731
    assert find_scales(swap, (np.zeros(2), np.zeros(2))) is None


def test_a_python_number_is_a_parameter():
    (scale,) = find_scales(lambda g: g * 2.0, 3.0)
    assert scale == 2


def test_the_loss_stays_and_the_gradient_is_scaled():
    params = {"b": jnp.asarray([1.0, 2.0]), "w": jnp.ones((2, 3))}

    def loss(params):
        return jnp.sum(scaled(params, [3.0, None])["b"] ** 2) + jnp.sum(params["w"])

    value, grads = jax.value_and_grad(loss)(params)
    assert value == 11
    np.testing.assert_array_equal(grads["b"], [6, 12])
    np.testing.assert_array_equal(grads["w"], np.ones((2, 3)))
