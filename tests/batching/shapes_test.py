"""Equations that move elements: where the examples are afterwards, and what has no rule."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from batching.same import EXTRA, Given, Place, Result, same
from bk_jax import _compat


def beside(axis):
    return Place(axis, extra=True)


# Name: one example's shape and place, the function, where the result has its examples.
IN_PLACE = {
    "broadcast: new axes around": ((2, 1), Place(1), lambda x: x[None, :, None, :, None], Place(3)),
    "broadcast: an old axis repeated": (
        (1, 2, 1),
        Place(0),
        lambda x: jnp.broadcast_to(x, (1, 2, 4)),
        Place(0),
    ),
    "broadcast: that axis repeated": (
        (2, 1, 3),
        Place(1),
        lambda x: jnp.broadcast_to(x, (2, 4, 3)),
        beside(1),
    ),
    "broadcast: that axis repeated beside a new one": (
        (1, 3),
        Place(0),
        lambda x: jnp.broadcast_to(x, (1, 4, 3)),
        Place(0),
    ),
    "broadcast: extra to a new axis": ((2,), beside(1), lambda x: x[:, None], Place(1)),
    "broadcast: extra in front to a new axis": ((2,), EXTRA, lambda x: x[None], Place(0)),
    "broadcast: extra, no new axis there": ((2, 3), EXTRA, lambda x: x[:, None], EXTRA),
    "broadcast: extra in the middle": (
        (2, 3),
        beside(1),
        lambda x: jnp.broadcast_to(x, (4, 2, 3)),
        beside(2),
    ),
    "broadcast: a scalar": ((), EXTRA, lambda x: jnp.broadcast_to(x, (2, 1, 3)), Place(1)),
    "broadcast: a scalar, no axis of size 1": ((), EXTRA, lambda x: jnp.full((2, 3), x), EXTRA),
    "reshape: behind the axis": ((1, 6), Place(0), lambda x: x.reshape(1, 2, 3), Place(0)),
    "reshape: in front of the axis": ((6, 1), Place(1), lambda x: x.reshape(2, 3, 1), Place(2)),
    "reshape: merged with what follows": (
        (2, 1, 3),
        Place(1),
        lambda x: x.reshape(2, 3),
        beside(1),
    ),
    "reshape: all merged": ((1, 2, 3), Place(0), jnp.ravel, EXTRA),
    "reshape: examples last, merged": ((2, 3, 1), Place(2), jnp.ravel, beside(1)),
    "reshape: rows across the axis": ((2, 1, 3), Place(1), lambda x: x.reshape(3, 2), EXTRA),
    "reshape: rows across, then an axis": ((2, 1, 3), Place(1), lambda x: x.reshape(1, 6), EXTRA),
    "reshape: several axes of size 1": (
        (1, 1, 6),
        Place(1),
        lambda x: x.reshape(1, 1, 2, 3),
        Place(1),
    ),
    "reshape: extra to an axis of size 1": ((6,), EXTRA, lambda x: x.reshape(1, 2, 3), Place(0)),
    "reshape: extra in the middle": ((2, 6), beside(1), lambda x: x.reshape(2, 3, 2), beside(1)),
    "reshape: to a scalar": ((1, 1), Place(1), lambda x: x.reshape(()), EXTRA),
    "reshape: of a scalar": ((), EXTRA, lambda x: x.reshape(1, 1), Place(0)),
    "reshape: nothing": ((1, 0), Place(0), lambda x: x.reshape(0, 4), EXTRA),
    "transpose": ((2, 1, 3), Place(1), lambda x: x.transpose(2, 0, 1), Place(2)),
    "transpose, examples in front": ((1, 2, 3), Place(0), lambda x: x.transpose(1, 2, 0), Place(2)),
    "transpose, examples last": ((2, 3, 1), Place(2), lambda x: x.T, Place(0)),
    "squeeze: others": ((1, 2, 1, 1), Place(2), lambda x: lax.squeeze(x, (0, 3)), Place(1)),
    "squeeze: that axis": ((1, 2, 1, 3), Place(2), lambda x: lax.squeeze(x, (0, 2)), beside(1)),
    "squeeze: that axis in front": ((1, 3), Place(0), lambda x: x[0], EXTRA),
    "slice": ((1, 5), Place(0), lambda x: lax.slice(x, (0, 1), (1, 4), (1, 2)), Place(0)),
    "slice, that axis with a stride": (
        (5, 1),
        Place(1),
        lambda x: lax.slice(x, (1, 0), (5, 1), (1, 2)),
        Place(1),
    ),
    "slice, examples in the middle": ((2, 1, 5), Place(1), lambda x: x[1:, :, :-1], Place(1)),
    "pad": ((1, 2), Place(0), lambda x: jnp.pad(x, ((0, 0), (1, 2))), Place(0)),
    "pad inside": ((2, 1), Place(1), lambda x: lax.pad(x, 7.0, ((1, -1, 2), (0, 0, 3))), Place(1)),
    "rev": ((2, 1, 3), Place(1), lambda x: lax.rev(x, (1, 2)), Place(1)),
    "rev of that axis alone": ((1, 3), Place(0), lambda x: lax.rev(x, (0,)), Place(0)),
    "tile": ((1, 2), Place(0), lambda x: jnp.tile(x, (1, 3)), Place(0)),
    "tile, examples last": ((2, 1), Place(1), lambda x: jnp.tile(x, (2, 1)), Place(1)),
    "cumsum": ((1, 4), Place(0), lambda x: lax.cumsum(x, 1), Place(0)),
    "cumprod": ((4, 1), Place(1), lambda x: lax.cumprod(x, 0, reverse=True), Place(1)),
    "cummax": ((2, 1, 4), Place(1), lambda x: lax.cummax(x, 2), Place(1)),
    "cummin": ((2, 1, 4), Place(1), lambda x: lax.cummin(x, 0), Place(1)),
    "cumlogsumexp": ((1, 4), Place(0), lambda x: lax.cumlogsumexp(x, 1), Place(0)),
    "sort": ((1, 5), Place(0), jnp.sort, Place(0)),
    "sort, examples last": ((5, 1), Place(1), lambda x: jnp.sort(x, 0), Place(1)),
}

# What is left to JAX, with the primitive that is named.
BY_JAX = {
    "squeeze beside": ((1, 2), beside(2), lambda x: lax.squeeze(x, (0,)), "squeeze"),
    "transpose beside": ((2, 3), EXTRA, jnp.transpose, "transpose"),
    "an empty slice": ((1, 2), Place(0), lambda x: x[:0], "slice"),
    "slice beside": ((4,), EXTRA, lambda x: x[1:], "slice"),
    "pad of that axis": ((1, 2), Place(0), lambda x: jnp.pad(x, ((1, 0), (0, 0))), "pad"),
    "pad beside": ((2,), EXTRA, lambda x: jnp.pad(x, 1), "pad"),
    "rev beside": ((2,), EXTRA, jnp.flip, "rev"),
    "tile of that axis": ((1, 2), Place(0), lambda x: jnp.tile(x, (2, 1)), "tile"),
    "split beside": ((4,), EXTRA, lambda x: jnp.split(x, 2), "split"),
    "cumsum along that axis": ((1, 2), Place(0), lambda x: lax.cumsum(x, 0), "cumsum"),
    "sort along that axis": ((1, 2), Place(0), lambda x: jnp.sort(x, 0), "sort"),
    "sort beside": ((4,), EXTRA, jnp.sort, "sort"),
    "concatenated along that axis": (
        (1, 2),
        Place(0),
        lambda x: jnp.concatenate([x, x]),
        "concatenate",
    ),
    "concatenated beside": ((2,), EXTRA, lambda x: jnp.concatenate([x, x]), "concatenate"),
    "unstacked along that axis": ((1, 2), Place(0), jnp.unstack, "unstack"),
}
STACKED = [Place(0), beside(0), beside(1), beside(2)]

if _compat.stack_p is None:  # older JAX concatenates and slices instead
    del BY_JAX["unstacked along that axis"], STACKED[1:]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    shape, place, function, expected = IN_PLACE[name]
    assert same(function, Given(shape, place)) == Result([expected])


@pytest.mark.parametrize("name", BY_JAX)
def test_without_a_rule(name):
    shape, place, function, primitive = BY_JAX[name]
    result = same(function, Given(shape, place))
    assert result.fallbacks == (primitive,)


@pytest.mark.parametrize("size", [0, 1, 2])
def test_any_number_of_examples(size):
    def function(x):
        rows = x.reshape(1, 2, 2)
        return rows, rows.transpose(2, 0, 1), x[0], jnp.broadcast_to(x, (5, 1, 4)), x[:, 1:]

    expected = [Place(0), Place(1), EXTRA, Place(1), Place(0)]
    assert same(function, Given((1, 4), Place(0)), size=size) == Result(expected)


def test_a_reshape_that_moves_elements_by_their_dimensions():
    function = lambda x: lax.reshape(x, (6,), dimensions=(1, 0, 2))  # noqa: E731
    result = same(function, Given((2, 1, 3), Place(1)))
    assert result.fallbacks in ((), ("reshape",))  # JAX may write a transpose and a reshape


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_split(axis):
    shape = (*[2] * axis, 1, *[2] * (2 - axis))
    along = (axis + 1) % 3
    function = lambda x: jnp.split(x, 2, along)  # noqa: E731
    assert same(function, Given(shape, Place(axis))) == Result([Place(axis)] * 2)


def test_concatenate_across_with_every_sort_of_operand():
    kinds = [Place(0), Place(1), EXTRA, Place(2, extra=True)]
    given = [Given((1, 1), place) for place in kinds]
    function = lambda *parts: jnp.concatenate(parts, 1)  # noqa: E731
    assert same(function, *given, Given((1, 3))) == Result([Place(0)])


def test_padding_with_a_value_of_each_example():
    function = lambda x, value: lax.pad(x, value, ((1, 1, 0), (0, 0, 0)))  # noqa: E731
    result = same(function, Given((2, 1), Place(1)), Given((), EXTRA))
    assert result.fallbacks == ("pad",)
    result = same(function, Given((2, 1)), Given((), EXTRA))
    assert result.fallbacks == ("pad",)


@pytest.mark.parametrize("new", [0, 1, 2])
@pytest.mark.parametrize("place", STACKED)
def test_stack(new, place):
    shape = (2, 3) if place.extra else (1, 3)
    given = [Given(shape, place), Given(shape), Given(shape, place)]
    expected = Place(place.axis + (new <= place.axis), place.extra)
    assert same(lambda *parts: jnp.stack(parts, new), *given) == Result([expected])


def test_unstack():
    assert same(jnp.unstack, Given((2, 1, 3), Place(1))) == Result([Place(0)] * 2)
    last = lambda x: jnp.unstack(x, axis=2)  # noqa: E731
    assert same(last, Given((2, 1, 3), Place(1))) == Result([Place(1)] * 3)


def test_sort_of_several_operands():
    """Keys are of each example, what goes with them is shared, or has its examples elsewhere."""
    keys, shared = Given((5, 1), Place(1), low=0, high=3), Given((5, 1), low=0, high=99)
    elsewhere = Given((5, 1), EXTRA)
    function = lambda *parts: lax.sort(parts, dimension=0, num_keys=2)  # noqa: E731
    assert same(function, keys, shared) == Result([Place(1)] * 2)
    result = same(function, keys, shared, elsewhere)
    assert result.fallbacks == ("sort",)


@pytest.mark.parametrize("place", [Place(0), Place(1)])
def test_top_k(place):
    shape = (1, 5) if place.axis == 0 else (2, 1, 5)
    assert same(lambda x: lax.top_k(x, 2), Given(shape, place)) == Result([place] * 2)


def test_integers_and_truth_values():
    for dtype in (np.int32, np.uint8, np.bool_):
        given = Given((1, 6), Place(0), dtype, 0, 2)
        assert same(lambda x: x.reshape(1, 3, 2)[:, ::-1], given) == Result([Place(0)])
