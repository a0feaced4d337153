"""Equations that reduce axes, over the axis of examples and beside it, and sliding windows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from batching.same import EXTRA, Given, Place, Result, same


def beside(axis):
    return Place(axis, extra=True)


# One example's shape, where its examples are, the axes reduced, where they are afterwards.
AXES = [
    ((1, 2, 3), Place(0), (1, 2), Place(0)),
    ((1, 2, 3), Place(0), (0, 2), beside(0)),
    ((2, 1, 3), Place(1), (0,), Place(0)),
    ((2, 1, 3), Place(1), (0, 1), beside(0)),
    ((2, 1, 3), Place(1), (1,), beside(1)),
    ((2, 3, 1), Place(2), (0, 1, 2), EXTRA),
    ((2, 3, 1), Place(2), (1,), Place(1)),
]
REDUCTIONS = {
    "sum": (jnp.sum, np.float32),
    "prod": (jnp.prod, np.float32),
    "max": (jnp.max, np.float32),
    "min": (jnp.min, np.int32),
    "and": (jnp.all, np.bool_),
    "or": (jnp.any, np.bool_),
    "xor": (jnp.bitwise_xor.reduce, np.int32),
}


@pytest.mark.parametrize(("shape", "place", "axes", "after"), AXES, ids=str)
def test_reductions(shape, place, axes, after):
    def function(x):
        return [reduce(x.astype(dtype), axis=axes) for reduce, dtype in REDUCTIONS.values()]

    reductions = [after] * len(REDUCTIONS)
    assert same(function, Given(shape, place)) == Result(reductions)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_beside_the_examples_has_no_rule(name):
    reduce, dtype = REDUCTIONS[name]
    result = same(lambda x: reduce(x, axis=1), Given((2, 3), EXTRA, dtype, low=0))
    assert result == Result([EXTRA], (f"reduce_{name}",))


def test_a_mean_over_one_example_is_that_example():
    """What a loss divides by is the size of its own batch."""
    mean = lambda x: jnp.mean(x, 0) / x.shape[0]  # noqa: E731
    assert same(mean, Given((1, 4), Place(0))) == Result([EXTRA])


@pytest.mark.parametrize("find", [jnp.argmax, jnp.argmin])
@pytest.mark.parametrize(("axis", "after"), [(0, Place(0)), (2, Place(1))])
def test_positions_of_extremes(find, axis, after):
    given = Given((4, 1, 4), Place(1), low=0, high=3)
    assert same(functools.partial(find, axis=axis), given) == Result([after])


def test_positions_along_the_examples_have_no_rule():
    result = same(lambda x: lax.argmax(x, 0, np.int32), Given((1, 3), Place(0)))
    assert result == Result([EXTRA], ("argmax",))
    result = same(lambda x: lax.argmax(x, 0, np.int32), Given((3,), EXTRA))
    assert result == Result([EXTRA], ("argmax",))


WINDOWS = {
    "sum": (0.0, lax.add),
    "max": (-np.inf, lax.max),
    "min": (np.inf, lax.min),
}
IMAGES = [((1, 4, 5), Place(0)), ((4, 1, 5), Place(1)), ((4, 5, 1), Place(2))]
images = pytest.mark.parametrize(("shape", "place"), IMAGES, ids=["0", "1", "2"])


def pooled(name, x, axis, **options):
    """Windows of two by three, one step at a time and two."""
    window, steps = ([2, 3], [1, 2])
    init, reduce = WINDOWS[name]
    padding = [(0, 1), (1, 0)]
    for sizes, unit in ((window, 1), (steps, 1), (padding, (0, 0))):
        sizes.insert(axis, unit)
    return lax.reduce_window(x, init, reduce, window, steps, padding, **options)


@images
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(shape, place, name):
    options = {"base_dilation": (1, 2, 1), "window_dilation": (1, 1, 2)} if place.axis == 0 else {}
    function = lambda x: pooled(name, x, place.axis, **options)  # noqa: E731
    assert same(function, Given(shape, place)) == Result([place])


@images
@pytest.mark.parametrize("name", WINDOWS)
def test_gradients_of_windows(shape, place, name):
    """Of the sum a sum, of an extreme a choice: ties go to the same element for each example."""

    def function(x, cotangents):
        _, pullback = jax.vjp(lambda x: pooled(name, x, place.axis), x)
        return pullback(cotangents)

    out = jax.eval_shape(lambda x: pooled(name, x, place.axis), np.zeros(shape, np.float32))
    assert same(function, Given(shape, place), Given(out.shape, place)) == Result([place])
    result = same(function, Given(shape, place), Given(out.shape))
    assert result.fallbacks == ()


def test_derivatives_of_windows_in_the_direction_of_tangents():
    def function(x, tangents):
        return jax.jvp(lambda x: pooled("max", x, 0), (x,), (tangents,))[1]

    given = [Given((1, 4, 5), Place(0)), Given((1, 4, 5), Place(0))]
    assert same(function, *given) == Result([Place(0)])


def test_windows_by_a_function_of_the_user():
    def function(x):
        multiply = lambda a, b: a * b + 0  # noqa: E731
        return lax.reduce_window(x, 1.0, multiply, (1, 2), (1, 1), "VALID")

    assert same(function, Given((1, 4), Place(0))) == Result([Place(0)])


def test_windows_over_the_examples_have_no_rule():
    function = lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "SAME")  # noqa: E731
    result = same(function, Given((1, 3), Place(0)))
    assert result == Result([Place(0)], ("reduce_window_sum",))
    function = lambda x: lax.reduce_window(x, 0.0, lax.add, (2,), (1,), "SAME")  # noqa: E731
    result = same(function, Given((3,), EXTRA))
    assert result == Result([EXTRA], ("reduce_window_sum",))
