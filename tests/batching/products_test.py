"""Matrix products with the examples at every position, and convolutions of every layout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from batching.same import EXTRA, Given, Place, Result, batched, same


def product(contracted, batch):
    return lambda x, y: lax.dot_general(x, y, (contracted, batch))


# Name: dimension numbers, left and right operand, where the product has its examples.
IN_PLACE = {
    "a pair of batch axes": (
        (((2,), (1,)), ((0,), (0,))),
        Given((1, 2, 3), Place(0)),
        Given((1, 3, 4), Place(0)),
        Place(0),
    ),
    "the second pair, crossed": (
        (((2,), (0,)), ((0, 3), (3, 1))),
        Given((2, 3, 4, 1), Place(3)),
        Given((4, 1, 5, 2), Place(1)),
        Place(1),
    ),
    "a pair, the right one elsewhere": (
        (((1,), (1,)), ((0,), (0,))),
        Given((1, 3), Place(0)),
        Given((1, 3, 1), Place(2)),
        Place(0),
    ),
    "a pair, the left one beside": (
        (((1,), (1,)), ((0,), (0,))),
        Given((1, 3), Place(1, extra=True)),
        Given((1, 3, 2), Place(0)),
        Place(0),
    ),
    "free on the left, right shared": (
        (((2,), (0,)), ((), ())),
        Given((1, 2, 3), Place(0)),
        Given((3, 4)),
        Place(0),
    ),
    "free on the left behind": (
        (((0,), (0,)), ((), ())),
        Given((3, 2, 1), Place(2)),
        Given((3, 4)),
        Place(1),
    ),
    "free on the right, left shared": (
        (((1,), (0,)), ((), ())),
        Given((4, 3)),
        Given((3, 1, 2), Place(1)),
        Place(1),
    ),
    "free on the right, other batch axes": (
        (((1,), (2,)), ((0,), (1,))),
        Given((2, 3, 5)),
        Given((1, 2, 3), Place(0)),
        Place(2),
    ),
    "an outer product": ((((), ()), ((), ())), Given((2,)), Given((3, 1), Place(1)), Place(2)),
}
# What is left to JAX.
BY_JAX = {
    "contracted on the left": (
        (((0,), (0,)), ((), ())),
        Given((1, 2), Place(0)),
        Given((1, 3)),
    ),
    "contracted on the right": ((((1,), (0,)), ((), ())), Given((2, 1)), Given((1, 3), Place(0))),
    "contracted on both sides": (
        (((0,), (0,)), ((), ())),
        Given((1, 2), Place(0)),
        Given((1, 3), Place(0)),
    ),
    "free on both sides": (
        (((1,), (1,)), ((), ())),
        Given((1, 3), Place(0)),
        Given((1, 3), Place(0)),
    ),
    "a batch axis whose like is shared": (
        (((2,), (1,)), ((0,), (0,))),
        Given((1, 2, 3), Place(0)),
        Given((1, 3, 4)),
    ),
    "vectors of each example": ((((0,), (0,)), ((), ())), Given((3,), EXTRA), Given((3, 2))),
    "extra on both sides": (
        (((1,), (0,)), ((), ())),
        Given((2, 3), EXTRA),
        Given((3, 4), Place(2, extra=True)),
    ),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_products_in_place(name):
    numbers, left, right, expected = IN_PLACE[name]
    assert same(product(*numbers), left, right) == Result([expected])


@pytest.mark.parametrize("name", BY_JAX)
def test_products_without_a_rule(name):
    numbers, left, right = BY_JAX[name]
    assert same(product(*numbers), left, right).fallbacks == ("dot_general",)


@pytest.mark.parametrize("left", [0, 1, 2])
@pytest.mark.parametrize("right", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 1, 2])
def test_any_axis_of_one_with_any_of_the_other(left, right, size):
    """All axes have size 1, so each may hold the examples: contracted, batch, free."""
    given = [Given((1, 1, 1), Place(axis)) for axis in (left, right)]
    shared = Given((1, 1, 1))
    one = product(((0,), (2,)), ((1,), (0,)))

    def function(x, y, z):
        return one(x, y), one(x, z), one(z, y)

    same(function, *given, shared, size=size)


def test_sums_of_small_numbers_in_large_ones():
    """The type that the product is asked for stays."""

    def function(x, y):
        return lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=np.int32)

    given = [Given((1, 9), Place(0), np.int8, 90, 120), Given((9, 2), dtype=np.int8)]
    assert same(function, *given) == Result([Place(0)])


# Layouts of image, kernel and result, the axis of images in both, features of the image, groups.
LAYOUTS = {
    "NHWC": (("NHWC", "HWIO", "NHWC"), (1, 4, 5, 2), (2, 3, 2, 4), 0, 0, 1),
    "NCHW": (("NCHW", "OIHW", "NCHW"), (1, 2, 4, 5), (4, 2, 2, 3), 0, 0, 1),
    "grouped": (("NHWC", "HWIO", "NHWC"), (1, 4, 5, 4), (2, 3, 2, 6), 0, 0, 2),
    "depthwise": (("NWC", "WIO", "NWC"), (1, 6, 3), (2, 1, 3), 0, 0, 3),
    "images last": (("CHWN", "IHWO", "CHWN"), (2, 4, 5, 1), (2, 2, 3, 4), 3, 3, 1),
    "images move": (("HNWC", "IHWO", "CHNW"), (4, 1, 5, 2), (2, 2, 3, 4), 1, 2, 1),
    "three dimensions": (("NDHWC", "DHWIO", "NDHWC"), (1, 2, 3, 3, 2), (2, 2, 2, 2, 3), 0, 0, 1),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_convolutions(name):
    layout, image, kernel, before, after, groups = LAYOUTS[name]

    def function(x, w):
        rank = len(image) - 2
        options = {"lhs_dilation": (2,) * rank, "feature_group_count": groups}
        steps, padding = (1,) * (rank - 1) + (2,), [(1, 0)] * rank
        return lax.conv_general_dilated(x, w, steps, padding, dimension_numbers=layout, **options)

    given = [Given(image, Place(before)), Given(kernel)]
    assert same(function, *given) == Result([Place(after)])

    def gradient(x, w):
        out, pullback = jax.vjp(lambda x: function(x, w), x)
        return pullback(out)

    assert same(gradient, *given) == Result([Place(before)])


def convolve(x, w, **options):
    return lax.conv_general_dilated(
        x, w, (1,), [(1, 1)], dimension_numbers=("NWC", "WIO", "NWC"), **options
    )


def test_gradients_of_kernels():
    """One of each example: a grouped convolution, which JAX's own rule makes."""

    def function(x, w):
        out, pullback = jax.vjp(lambda w: convolve(x, w), w)
        return pullback(out)

    result = same(function, Given((1, 5, 2), Place(0)), Given((3, 2, 4)))
    assert result.fallbacks == ("conv_general_dilated",)


@pytest.mark.parametrize(
    "given",
    [
        (Given((1, 5, 2), Place(0)), Given((3, 2, 4), EXTRA)),
        (Given((1, 5, 2)), Given((3, 2, 4), EXTRA)),
        (Given((3, 5, 2), EXTRA), Given((3, 2, 4))),
        (Given((3, 1, 2), Place(1)), Given((3, 2, 4))),
        (Given((3, 5, 1), Place(2)), Given((3, 1, 4))),
    ],
    ids=["both", "kernel", "beside", "along pixels", "along features"],
)
def test_convolutions_without_a_rule(given):
    assert same(convolve, *given).fallbacks == ("conv_general_dilated",)


def test_convolutions_of_groups_of_images_have_no_rule():
    function = lambda x, w: convolve(x, w, batch_group_count=1)  # noqa: E731
    assert same(function, Given((1, 5, 2), Place(0)), Given((3, 2, 4))) == Result([Place(0)])
    function = lambda x, w: convolve(x, w, batch_group_count=2)  # noqa: E731
    result = same(function, Given((2, 5, 2), EXTRA), Given((3, 2, 4)))
    assert result.fallbacks == ("conv_general_dilated",)


def own_kernels(x, w):
    """A kernel of each example, and the gradients of both."""
    out, pullback = jax.vjp(convolve, x, w)
    return out, *pullback(out)


def own_choice(x, w):
    """The same where the example decides whether."""
    shapes = jax.eval_shape(own_kernels, x, w)
    other = lambda *_: tuple(jnp.zeros(out.shape, out.dtype) for out in shapes)  # noqa: E731
    return lax.cond(jnp.sum(x) > 0, other, own_kernels, x, w)


@pytest.mark.parametrize("function", [own_kernels, own_choice])
@pytest.mark.parametrize("size", [0, 1, 3])
def test_own_kernels_in_double_precision(x64, function, size):
    given = [Given((1, 5, 2), Place(0), np.float64), Given((3, 2, 4), EXTRA, np.float64)]
    same(function, *given, size=size)


@pytest.mark.parametrize("function", [own_kernels, own_choice])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_convolution_keeps_what_is_not_finite_to_its_example(x64, function, dtype):
    """XLA has no convolution with groups in float64, and multiplies by zeros instead."""
    x, w = np.ones((3, 5, 2), dtype), np.ones((3, 3, 2, 4), dtype)
    x[1], w[1] = np.nan, np.inf
    run, _, _ = batched(function, [Place(0), EXTRA], 3)
    for out in jax.jit(run)(-x, w):
        assert [np.isfinite(example).all() for example in out] == [True, False, True]
