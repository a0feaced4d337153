"""Gathers, scatters and dynamic slices: indices shared or of each example, in range and not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from batching.same import ABSENT, EXTRA, Given, Place, Result, same

INDICES = {"dtype": np.int32, "low": -7, "high": 7}  # some are out of range, on either side
INSIDE = {"dtype": np.int32, "low": 0, "high": 4}


def ids(shape, place=ABSENT, **elements):
    return Given(shape, place, **(elements or INDICES))


# Rows of a table for all examples.
LOOKUPS = {
    "rows": (lambda w, i: w[i], (5, 2), ids((1, 3), Place(0)), Place(0)),
    "rows, filled": (
        lambda w, i: w.at[i].get(mode="fill", fill_value=9),
        (5, 2),
        ids((3, 1), Place(1)),
        Place(1),
    ),
    "rows, clipped": (
        lambda w, i: jnp.take(w, i, axis=0, mode="clip"),
        (5, 2),
        ids((2, 1, 3), Place(1)),
        Place(1),
    ),
    "columns": (
        lambda w, i: jnp.take(w, i, axis=1),
        (2, 5, 3),
        ids((1, 4), Place(0)),
        Place(1),
    ),
    "last axis": (lambda w, i: w[..., i], (2, 5), ids((3, 1), Place(1)), Place(2)),
    "one row of each": (lambda w, i: w[i], (5, 2), ids((1,), Place(0)), Place(0)),
    "elements by pairs": (
        lambda w, i: w[i, i],
        (5, 5),
        ids((1, 3), Place(0)),
        Place(0),
    ),
    "sorted": (
        lambda w, i: w.at[i].get(indices_are_sorted=True, unique_indices=True),
        (5, 2),
        ids((1, 1), Place(0), **INSIDE),
        Place(0),
    ),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_table_lookups(name):
    function, table, indices, expected = LOOKUPS[name]
    assert same(function, Given(table), indices) == Result([expected])


def test_lookups_without_a_rule():
    rows = lambda w, i: w[i]  # noqa: E731
    result = same(rows, Given((5, 2)), ids((3,), EXTRA))
    assert result == Result([EXTRA], ("gather",))
    result = same(jax.vmap(rows), Given((1, 5, 2)), ids((1, 3), Place(0)))
    assert result == Result([Place(0)], ("gather",))


# The same rows of every example.
SHARED = {
    "columns": (lambda x, i: x[:, i], (1, 5), ids((3,)), Place(0)),
    "columns, filled": (
        lambda x, i: x.at[:, i].get(mode="fill", fill_value=9),
        (1, 5, 2),
        ids((2, 3)),
        Place(0),
    ),
    "rows": (lambda x, i: x[i], (5, 1, 2), ids((3,)), Place(1)),
    "rows by a matrix": (lambda x, i: x[i], (5, 1, 2), ids((3, 2)), Place(2)),
    "examples last": (lambda x, i: jnp.take(x, i, axis=1), (2, 5, 1), ids((3,)), Place(2)),
}


@pytest.mark.parametrize("name", SHARED)
def test_the_same_rows_of_every_example(name):
    function, shape, indices, expected = SHARED[name]
    place = Place(shape.index(1))
    assert same(function, Given(shape, place), indices) == Result([expected])


def test_the_same_rows_without_a_rule():
    result = same(lambda x, i: x[i], Given((1, 3), Place(0)), ids((2,)))
    assert result.fallbacks == ("gather",)
    result = same(lambda x, i: x[i], Given((5, 3), EXTRA), ids((2,)))
    assert result == Result([EXTRA], ("gather",))


# Rows of each example by its own indices: function, array, indices, where the result is.
OWN = {
    "along the last axis": (-1, Given((1, 5), Place(0)), ids((1, 3), Place(0)), Place(0)),
    "along the first": (0, Given((5, 2, 1), Place(2)), ids((3, 2, 1), Place(2)), Place(2)),
    "along the middle": (1, Given((1, 5, 2), Place(0)), ids((1, 3, 2), Place(0)), Place(0)),
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_take_along_axis(name, mode):
    axis, array, indices, expected = OWN[name]
    function = lambda x, i: jnp.take_along_axis(x, i, axis, mode=mode)  # noqa: E731
    assert same(function, array, indices) == Result([expected])


@pytest.mark.parametrize("name", OWN)
def test_gradient_of_take_along_axis(name):
    axis, array, indices, _ = OWN[name]

    def function(x, i):
        out, pullback = jax.vjp(lambda x: jnp.take_along_axis(x, i, axis, mode="clip"), x)
        return pullback(out)

    assert same(function, array, indices) == Result([array.place])


@pytest.mark.parametrize("size", [0, 1, 2])
def test_own_rows_of_any_number_of_examples(size):
    def function(x, i):
        along = lambda x: jnp.take_along_axis(x, i[..., None], -1, mode="clip")  # noqa: E731
        row = lambda row, i: row[i]  # noqa: E731
        out, pullback = jax.vjp(along, x)
        return out, *pullback(out), jax.vmap(row)(x, i)

    given = [Given((1, 4, 5), Place(0)), ids((1, 4), Place(0))]
    assert same(function, *given, size=size) == Result([Place(0)] * 3)


@pytest.mark.parametrize("axis", [0, 1])
def test_own_rows_of_rows(axis):
    """What `vmap` inside a loss writes: rows and their indices are paired."""
    rows = jax.vmap(lambda row, i: row[i], (axis, 1), axis)
    shape = (1, 5) if axis == 0 else (5, 1)
    assert same(rows, Given(shape, Place(axis)), ids((3, 1), Place(1))) == Result([Place(axis)])


def test_own_rows_by_indices_whose_examples_are_elsewhere():
    function = lambda x, i: jnp.take_along_axis(x, i, -1)  # noqa: E731
    assert same(function, Given((1, 5), Place(0)), ids((1, 3), EXTRA)) == Result([Place(0)])
    middle = [Given((2, 1, 5), Place(1)), ids((2, 1, 3), Place(2, extra=True))]
    assert same(function, *middle) == Result([Place(1)])


def test_own_rows_without_a_rule():
    function = lambda x, i: jnp.take_along_axis(x, i, -1)  # noqa: E731
    result = same(function, Given((2, 5), EXTRA), ids((2, 3), EXTRA))
    assert result == Result([EXTRA], ("gather",))
    result = same(lambda x, i: x[i], Given((1, 3), Place(0)), ids((2,), EXTRA))
    assert result == Result([EXTRA], ("gather",))


KINDS = ["set", "add", "subtract", "multiply", "min", "max"]


SHARINGS = {  # where target and updates have their examples
    "nothing shared": (Place(0), Place(0)),
    "a shared target": (ABSENT, Place(0)),
    "shared updates": (Place(0), ABSENT),
    "a target elsewhere": (EXTRA, Place(0)),
}
sharings = pytest.mark.parametrize("sharing", SHARINGS)


@pytest.mark.parametrize("kind", KINDS)
@sharings
def test_updates_at_shared_indices(kind, sharing):
    target, updates = SHARINGS[sharing]
    function = lambda x, i, updates: getattr(x.at[:, i], kind)(updates)  # noqa: E731
    given = [Given((1, 5), target), ids((1,)), Given((1, 1), updates)]
    assert same(function, *given) == Result([Place(0)])


@pytest.mark.parametrize("kind", KINDS)
@sharings
@pytest.mark.parametrize("paired", [False, True])
def test_own_updates_at_own_indices(kind, sharing, paired):
    """The axis is paired with that of the indices, or lies in every update."""
    target, updates = SHARINGS[sharing]
    one = lambda x, i, updates: getattr(x.at[i], kind)(updates)  # noqa: E731
    rows = lambda x, i, updates: getattr(x.at[:, i[0]], kind)(updates)  # noqa: E731
    given = [Given((1, 5), target), ids((1, 1), Place(0)), Given((1, 1), updates)]
    assert same(jax.vmap(one) if paired else rows, *given) == Result([Place(0)])


@pytest.mark.parametrize("shape", [(1, 5, 2), (5, 1, 2), (5, 2, 1)], ids=str)
@pytest.mark.parametrize("own", [False, True])
def test_sums_of_rows(shape, own):
    """Rows that occur several times are added several times; some are out of range."""
    axis, place = shape.index(5), Place(shape.index(1))
    indices = ids((3,), EXTRA) if own else ids((3,))
    rows = Given((*shape[:axis], 3, *shape[axis + 1 :]), place)
    function = lambda x, i, rows: x.at[(slice(None),) * axis + (i,)].add(rows)  # noqa: E731
    assert same(function, Given(shape), indices, rows) == Result([place])


def test_only_the_indices_are_of_each_example():
    """The gradient of a mean of logits at labels: what comes back is the same for all."""
    given = [Given((1, 5)), ids((1, 1), Place(0)), Given((1, 1))]
    function = lambda x, i, y: x.at[:, i[0]].add(y)  # noqa: E731
    assert same(function, *given) == Result([Place(0)])
    target = Given((3, 1, 5), EXTRA)  # comes to the axis of size 1
    function = lambda x, i, y: x.at[..., i].add(y)  # noqa: E731
    assert same(function, target, ids((2,)), Given((3, 1, 2))) == Result([Place(1)])


# Rows that are added to a table: the gradient of a table for each example.
TABLES = {
    "own rows": (Given((5, 2)), ids((1, 3), Place(0)), Given((1, 3, 2), Place(0))),
    "shared rows": (Given((5, 2), EXTRA), ids((3,)), Given((3, 2), EXTRA)),
    "shared updates": (Given((5, 2)), ids((1, 3), Place(0)), Given((1, 3, 2))),
    "only updates": (Given((5, 2)), ids((1, 3)), Given((1, 3, 2), Place(0))),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_each_example_have_no_rule(name):
    result = same(lambda w, i, x: w.at[i].add(x), *TABLES[name])
    assert result.fallbacks == ("scatter-add",)


STARTS = [ids(()), ids(())]


@pytest.mark.parametrize(("shape", "place"), [((1, 5), Place(0)), ((5, 1), Place(1))])
def test_dynamic_slices(shape, place):
    """A start that is out of range, along the examples too, is moved to where the part fits."""
    part = tuple(1 if n == 1 else 2 for n in shape)

    def function(x, update, i, j):
        return lax.dynamic_slice(x, (i, j), part), lax.dynamic_update_slice(x, update, (i, j))

    given = [Given(shape, place), Given(part, place), *STARTS]
    assert same(function, *given) == Result([place, place])


@pytest.mark.parametrize(
    ("target", "update"), [(ABSENT, Place(0)), (Place(0), ABSENT), (EXTRA, Place(0))]
)
def test_dynamic_updates_of_and_by_what_is_shared(target, update):
    function = lambda x, y, i: lax.dynamic_update_slice(x, y, (0, i))  # noqa: E731
    given = [Given((1, 5), target), Given((1, 2), update), ids(())]
    assert same(function, *given) == Result([Place(0)])


def test_dynamic_slices_without_a_rule():
    function = lambda x, i: lax.dynamic_slice(x, (0, i), (1, 2))  # noqa: E731
    result = same(function, Given((1, 5), Place(0)), ids((), EXTRA))
    assert result == Result([Place(0)], ("dynamic_slice",))
    result = same(function, Given((3, 5), EXTRA), ids(()))
    assert result.fallbacks == ("dynamic_slice",)
    update = lambda x, y, i: lax.dynamic_update_slice(x, y, (0, i))  # noqa: E731
    result = same(update, Given((1, 5), Place(0)), Given((1, 2), Place(0)), ids((), EXTRA))
    assert result == Result([Place(0)], ("dynamic_update_slice",))
    result = same(update, Given((2, 5), EXTRA), Given((1, 2), Place(0)), ids(()))
    assert result.fallbacks == ("dynamic_update_slice",)
