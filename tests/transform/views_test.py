"""Views: which elements they read, what is stripped, and their transposes, in small integers."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from bk_jax.program.views import View, elements_read, strip_transposes, transpose_view
from transform.steps import count_up, only_site, sites_of

ONES = np.ones(8, np.float32)


def product(weight):
    """A use of a weight of any shape that takes nothing into itself: no transpose is stripped."""
    flat = lax.reshape(weight, (weight.size,))
    return jnp.dot(ONES[: flat.size], flat)


def view_of(make, *shape):
    (view,) = only_site(lambda w: product(make(w)), [count_up(*shape)]).views
    return view


VIEWS = {
    "itself": (lambda w: w, [0, 1, 2, 3, 4, 5]),
    "row": (lambda w: w[1], [3, 4, 5]),
    "last column": (lambda w: lax.slice_in_dim(w, 2, 3, axis=1), [2, 5]),
    "every other": (lambda w: lax.slice_in_dim(w, 0, 3, 2, axis=1), [0, 2, 3, 5]),
    "split": (lambda w: jnp.split(w, [1], axis=1)[1], [1, 2, 4, 5]),
    "flipped row": (lambda w: jnp.flip(w)[0], [3, 4, 5]),
    "column of the transpose": (lambda w: w.T[:, 0], [0, 1, 2]),
    "column-major": (lambda w: jnp.reshape(w, (3, 2), order="F")[0], [0, 4]),
    "row-major": (lambda w: jnp.reshape(w, (3, 2))[0], [0, 1]),
    "a new axis": (lambda w: lax.slice_in_dim(w[:, None], 0, 1, axis=2), [0, 3]),
    "squeezed": (lambda w: jnp.squeeze(w[:1]), [0, 1, 2]),
    "cast": (lambda w: w.astype(jnp.bfloat16).astype(jnp.float32)[0], [0, 1, 2]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_elements_read(name):
    make, expected = VIEWS[name]
    np.testing.assert_array_equal(elements_read(view_of(make, 2, 3), (2, 3)), expected)


def test_elements_read_of_a_concatenation_leave_out_the_padding():
    site = only_site(lambda w: product(jnp.concatenate([w[:, 2:], w[:, :1]], 1)), [count_up(2, 3)])
    read = [elements_read(view, (2, 3)).tolist() for view in site.views]
    assert read == [[2, 5], [0, 3]]


def test_a_stack_is_a_view_of_its_parts():
    site = only_site(lambda w, v: product(jnp.stack([w, v], 1)), [count_up(2, 2), count_up(2, 2)])
    back = [transpose_view(view, jnp.arange(8.0)) for view in site.views]
    np.testing.assert_array_equal(back[0], [[0, 1], [4, 5]])
    np.testing.assert_array_equal(back[1], [[2, 3], [6, 7]])


def test_elements_read_over_all_steps_of_a_scan():
    def loss(w):
        return lax.scan(lambda h, row: (h + product(row[:2]), None), 0.0, w)[0]

    (view,) = only_site(loss, [count_up(2, 3)]).views
    np.testing.assert_array_equal(elements_read(view, (2, 3)), [0, 1, 3, 4])


@pytest.mark.parametrize("name", VIEWS)
def test_the_transpose_puts_each_element_back(name):
    make, expected = VIEWS[name]
    view = view_of(make, 2, 3)
    back = transpose_view(view, jnp.ones(view.shape))
    assert np.flatnonzero(back).tolist() == expected
    assert back.shape == (2, 3)


def test_the_transpose_of_a_view_is_that_of_its_matrix():
    view = view_of(
        lambda w: jnp.flip(lax.slice_in_dim(w.T, 0, 3, 2, axis=1)), 3, 2
    )  # [[5, 1], [4, 0]] of [[0, 1], ..., [4, 5]]
    back = transpose_view(view, jnp.asarray([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_array_equal(back, [[4, 2], [0, 0], [3, 1]])


def test_the_transpose_of_a_scanned_view_has_the_axis_of_the_scan():
    def loss(w):
        return lax.scan(lambda h, row: (h + product(row[1:]), None), 0.0, w.T)[0]

    (view,) = only_site(loss, [count_up(3, 2)]).views
    back = transpose_view(view, jnp.asarray([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal(back, [[0, 0], [1, 3], [2, 4]])


def test_strip_transposes_composes_permutations():
    chain = view_of(lambda w: jnp.transpose(jnp.transpose(w, (2, 0, 1)), (1, 0, 2)), 2, 1, 3)
    transposed = View(chain.leaf, (2, 3, 1), chain.steps[:-1])  # without the final reshape
    (stripped,), dims = strip_transposes((transposed,))
    assert stripped == View(0, (2, 1, 3))
    assert dims == (0, 2, 1)  # the dimensions of the viewed value, as dimensions of the leaf


def test_strip_transposes_keeps_what_comes_before():
    view = view_of(lambda w: w[:, :2].T, 3, 4)
    (stripped,), dims = strip_transposes((View(0, (2, 3), view.steps[:-1]),))
    assert [step.name for step in stripped.steps] == ["slice"]
    assert (stripped.shape, dims) == ((3, 2), (1, 0))


REPEATS = {
    "broadcast": lambda w: jnp.broadcast_to(w, (2, 4)),
    "tile": lambda w: jnp.tile(w, 2),
    "to integers": lambda w: w.astype(jnp.int32).astype(jnp.float32),
    "pad": lambda w: jnp.pad(w, 1),
    "with data": lambda w: jnp.concatenate([w, jnp.ones(1)]),
}


@pytest.mark.parametrize("name", REPEATS)
def test_what_is_no_view(name):
    assert sites_of(lambda w: product(REPEATS[name](w)), [count_up(4)]).opaque
