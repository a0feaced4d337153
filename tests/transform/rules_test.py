"""Each rule's canonical form: N, T, d, p, the groups of dimensions, and what is booked."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from bk_jax.planning.cost import pixel_gram_d
from transform.steps import count_up, only_site, sites_of


def dense_use(spec, activation, weight):
    def loss(w, a):
        return jnp.sum(jnp.einsum(spec, a, w))

    return only_site(loss, [count_up(*weight)], count_up(*activation)).use


DENSE = {  # specification: shapes of a and W, then N, T, d, p
    "td,dp->tp": ((2, 3), (3, 5), (1, 2, 3, 5)),
    "td,pd->tp": ((2, 3), (5, 3), (1, 2, 3, 5)),
    "d,dp->p": ((3,), (3, 5), (1, 1, 3, 5)),
    "td,d->t": ((2, 3), (3,), (1, 2, 3, 1)),
    "t,p->tp": ((2,), (5,), (1, 2, 1, 5)),
    "std,dhk->sthk": ((2, 3, 4), (4, 5, 7), (1, 6, 4, 35)),
    "sthk,hkp->stp": ((2, 3, 5, 7), (5, 7, 4), (1, 6, 35, 4)),
    "tnd,ndp->tnp": ((2, 3, 4), (3, 4, 5), (3, 2, 4, 5)),
    "n,n->n": ((3,), (3,), (3, 1, 1, 1)),
}


@pytest.mark.parametrize("spec", DENSE)
def test_sizes_of_dense_uses(spec):
    activation, weight, sizes = DENSE[spec]
    if spec == "n,n->n":  # einsum would multiply elementwise

        def loss(w, a):
            return jnp.sum(lax.dot_general(a, w, (((), ()), ((0,), (0,)))))

        use = only_site(loss, [count_up(3)], count_up(3)).use
    else:
        use = dense_use(spec, activation, weight)
    assert use.sizes == sizes
    assert use.kind == "dense"
    n, t, _, p = sizes
    assert math.prod(use.tap_shape) == n * t * p


@pytest.mark.parametrize(
    ("spec", "record", "tap"),
    [
        ("std,dhk->sthk", (6, 4), (6, 5, 7)),
        ("sthk,hkp->stp", (6, 5, 7), (6, 4)),
        ("tnd,ndp->tnp", (3, 2, 4), (3, 2, 5)),
    ],
)
def test_axes_of_a_weight_stay_apart(spec, record, tap):
    """Each of them may be cut over devices: heads, or the width of a head."""
    activation, weight, _ = DENSE[spec]
    use = dense_use(spec, activation, weight)
    operands = [count_up(*activation)] * 2
    assert use.record(operands).shape == record
    assert use.tap_shape == tap


def test_a_weight_and_its_transpose_have_one_form():
    one, two = dense_use("td,dp->tp", (2, 3), (3, 5)), dense_use("tp,dp->td", (2, 5), (3, 5))
    assert one.form == two.form
    assert (one.swap, two.swap) == (False, True)

    def transposed(w, a):
        return jnp.sum(a @ w.T)

    three = only_site(transposed, [count_up(3, 5)], count_up(2, 5))
    assert three.use.form == one.form
    assert three.views[0].steps == ()


def test_different_groupings_have_different_forms():
    one = dense_use("td,dhk->thk", (2, 3), (3, 4, 5))
    two = dense_use("tdh,dhk->tk", (2, 3, 4), (3, 4, 5))
    assert one.form != two.form


def test_record_and_tap_of_a_dense_use():
    use = dense_use("dt,pd->pt", (3, 2), (5, 3))
    activation = count_up(3, 2)
    operands = [None, None]
    operands[use.activation_operand] = activation
    np.testing.assert_array_equal(use.record(operands), activation.T)
    tap = count_up(2, 5)
    np.testing.assert_array_equal(use.add_tap(np.zeros(use.result_shape), tap), result_of(use, tap))


def result_of(use, tap):
    """The tap in the layout of the result."""
    ordered = tap.reshape([use.result_shape[i] for i in use.result_order])
    return np.transpose(ordered, np.argsort(use.result_order))


def test_the_gradient_of_a_dense_use_in_the_layout_of_the_weight():
    use = dense_use("std,dhk->sthk", (1, 2, 3), (3, 4, 5))
    np.testing.assert_array_equal(use.to_weight(count_up(1, 3, 20)), count_up(3, 4, 5))
    swapped = dense_use("tp,dp->td", (2, 5), (3, 5))
    np.testing.assert_array_equal(swapped.to_weight(count_up(1, 3, 5)), count_up(3, 5))


def test_two_parameters_in_one_product_are_opaque():
    found = sites_of(lambda w, v: jnp.sum(w @ v), [count_up(2, 3), count_up(3, 2)])
    assert not found.sites
    assert set(found.opaque) == {0, 1}


# --- convolutions ---


def convolution(w, x, options):
    how = {"window_strides": (1,) * (w.ndim - 2), "padding": "VALID"} | options
    return lax.conv_general_dilated(x, w, **how)


def conv_use(image, kernel, **options):
    def loss(w, x):
        return jnp.sum(convolution(w, x, options))

    return only_site(loss, [count_up(*kernel)], count_up(*image)).use


CONVOLUTIONS = {  # image, kernel, options, (groups, T, d, p)
    "1-D": ((1, 2, 7), (3, 2, 4), {}, (1, 4, 8, 3)),
    "2-D": ((1, 2, 5, 6), (3, 2, 2, 3), {}, (1, 16, 12, 3)),
    "3-D": ((1, 1, 3, 3, 3), (2, 1, 2, 2, 2), {}, (1, 8, 8, 2)),
    "two images": ((2, 2, 7), (3, 2, 4), {}, (1, 8, 8, 3)),
    "stride": ((1, 2, 7), (3, 2, 3), {"window_strides": (2,)}, (1, 3, 6, 3)),
    "padding": ((1, 2, 7), (3, 2, 3), {"padding": [(1, 2)]}, (1, 8, 6, 3)),
    "dilated kernel": ((1, 2, 7), (3, 2, 3), {"rhs_dilation": (2,)}, (1, 3, 6, 3)),
    "dilated image": (
        (1, 2, 4),
        (3, 2, 3),
        {"lhs_dilation": (2,), "padding": [(0, 0)]},
        (1, 5, 6, 3),
    ),
    "groups": ((1, 4, 7), (6, 2, 4), {"feature_group_count": 2}, (2, 4, 8, 3)),
    "depthwise": ((1, 3, 7), (3, 1, 4), {"feature_group_count": 3}, (3, 4, 4, 1)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_sizes_of_convolutions(name):
    image, kernel, options, sizes = CONVOLUTIONS[name]
    use = conv_use(image, kernel, **options)
    assert use.sizes == sizes
    assert use.kept_d * sizes[0] * sizes[1] == np.prod(image)


@pytest.mark.parametrize(
    ("kernel", "options", "channels"),
    [
        ((3, 2, 1, 1), {}, 2),
        ((3, 2, 3, 3), {}, 2),
        ((3, 2, 1, 1), {"window_strides": (2, 2)}, 2),  # one pixel meets one phase of 2 x 2
        ((3, 2, 3, 3), {"window_strides": (2, 2)}, 8),
        ((3, 2, 3, 3), {"window_strides": (2, 2), "rhs_dilation": (2, 1)}, 4),
        ((4, 1, 3, 3), {"feature_group_count": 2}, 1),
    ],
)
def test_channels_of_the_pixel_gram_matrix(kernel, options, channels):
    assert conv_use((1, 2, 7, 7), kernel, **options).pixel_channels == channels


def test_patches_serve_small_kernels_and_shared_ones():
    assert pixel_gram_d(conv_use((1, 8, 7, 7), (8, 8, 1, 1)), uses=1) is None
    large = conv_use((1, 8, 7, 7), (8, 8, 3, 3))
    assert pixel_gram_d(large, uses=1) == 8
    assert pixel_gram_d(large, uses=2) is None


def test_a_parameter_as_the_image_is_opaque():
    def loss(w, x):
        return jnp.sum(lax.conv_general_dilated(w, x, (1,), "VALID"))

    assert sites_of(loss, [count_up(1, 2, 5)], count_up(3, 2, 2)).opaque


def test_grouped_batches_are_opaque():
    def loss(w, x):
        return jnp.sum(lax.conv_general_dilated(x, w, (1,), "VALID", batch_group_count=2))

    assert sites_of(loss, [count_up(2, 3, 2)], count_up(2, 3, 5)).opaque


# --- lookups ---

TABLE = count_up(4, 3)


def lookup_use(loss, ids):
    return only_site(loss, [TABLE], np.asarray(ids, np.int32)).use


LOOKUPS = {  # loss, (1, T, rows, p), rows read for the ids 1, -7, 9
    "clip": (lambda w, i: jnp.take(w, i, axis=0, mode="clip").sum(), (1, 3, 4, 3), [1, 0, 3]),
    "fill": (
        lambda w, i: w.at[i].get(mode="fill", fill_value=0.0).sum(), (1, 3, 4, 3), [1, -1, -1]
    ),
    "columns": (lambda w, i: jnp.take(w, i, axis=1, mode="clip").sum(), (1, 3, 3, 4), [1, 0, 2]),
    "rows of the transpose": (
        lambda w, i: jnp.take(w.T, i, axis=1, mode="clip").sum(), (1, 3, 4, 3), [1, 0, 3]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKUPS)
def test_lookups(name):
    loss, sizes, expected = LOOKUPS[name]
    use = lookup_use(loss, [1, -7, 9])
    assert use.sizes == sizes
    # jnp adds the length of the axis to negative ids before they reach the gather.
    ids = np.int32([[1], [-7], [9]])
    np.testing.assert_array_equal(use.record([TABLE, ids]), expected)


def test_a_scalar_index_under_vmap_is_a_lookup():
    """A gather that keeps the axis of the row, and has an index for every axis."""
    use = lookup_use(lambda w, i: jax.vmap(lambda j: w[j])(i).sum(), [1, 0, 2])
    assert use.sizes[1] == 3
    ids = np.int32([[1, 0], [-7, 0], [9, 0]])
    np.testing.assert_array_equal(use.record([TABLE, ids]), [1, 0, len(TABLE) - 1])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint32", "int64"])
def test_ids_of_every_width(dtype, x64):
    use = lookup_use(lambda w, i: w.at[i].get(mode="fill", fill_value=0.0).sum(), [0, 1, 2])
    info = np.iinfo(dtype)
    ids = jnp.asarray([[info.max], [3], [info.min]], dtype)
    expected = [-1, 3, 0 if info.min == 0 else -1]
    np.testing.assert_array_equal(use.record([TABLE, ids]), expected)


def test_a_dynamic_slice_of_one_row_is_a_lookup():
    use = lookup_use(lambda w, i: lax.dynamic_index_in_dim(w, i[0]).sum(), [2])
    assert (use.kind, use.sizes, use.clamps) == ("lookup", (1, 1, 4, 3), True)


@pytest.mark.parametrize(
    ("start", "rows"), [(0, [0, 1, 2]), (1, [1, 2, 3]), (3, [1, 2, 3]), (-5, [0, 1, 2])]
)
def test_a_dynamic_slice_of_several_rows_is_a_lookup_of_each(start, rows):
    """As position tables are read; a slice that would not fit is moved, as XLA does."""
    use = lookup_use(lambda w, i: lax.dynamic_slice_in_dim(w, i[0], 3).sum(), [0])
    assert (use.kind, use.sizes, use.clamps) == ("lookup", (1, 3, 4, 3), True)
    np.testing.assert_array_equal(use.record([TABLE, np.int32(start), np.int32(0)]), rows)
    read = lax.dynamic_slice_in_dim(jnp.asarray(TABLE), start if start >= 0 else 0, 3)
    np.testing.assert_array_equal(TABLE[rows], read)


def test_a_table_that_is_read_as_a_whole_is_a_lookup_of_its_rows():
    use = lookup_use(lambda w, i: lax.dynamic_slice_in_dim(w, i[0], 4).sum(), [0])
    assert use.sizes == (1, 4, 4, 3)
    np.testing.assert_array_equal(use.record([TABLE, np.int32(2), np.int32(0)]), range(4))


OTHER_GATHERS = {
    "two indices": lambda w, i: w[i, i].sum(),
    "a part of some rows": lambda w, i: lax.dynamic_slice(w, (i[0], 0), (2, 2)).sum(),
    "one per row": lambda w, i: jnp.take_along_axis(w, jnp.tile(i, 2)[:, None], axis=1).sum(),
    "vmapped": lambda w, i: jax.vmap(lambda row, j: row[j])(w, jnp.tile(i[:1], 4)).sum(),
}


@pytest.mark.parametrize("name", OTHER_GATHERS)
def test_other_gathers_are_opaque(name):
    assert sites_of(OTHER_GATHERS[name], [TABLE], np.int32([1, 2])).opaque
