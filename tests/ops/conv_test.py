"""Gradients of convolution kernels: exact on small integers, blind to examples with the factor 0."""

import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.arrays import double, normals, small_integers
from support.structure import fresh_jit
from support.tolerance import assert_bits_equal, assert_within, eps

from bk_jax import ops
from bk_jax.ops.conv_grad import conv_grad_twin
from bk_jax.ops.conv_norm import conv_norm_twin
from bk_jax.ops.conv_sum import conv_sum_twin
from bk_jax.ops.dense_patches import is_image

# images, input and output sizes, channels, window
CASES = [
    (1, (1, 5, 6), (1, 5, 6), (3, 4), ops.Window((1, 3, 3), low=(0, 1, 1))),
    (2, (1, 7, 8), (1, 3, 3), (9, 17), ops.Window((1, 3, 2), (1, 2, 3), (0, 0, 1))),
    (1, (1, 4, 5), (1, 6, 11), (2, 3), ops.Window((1, 3, 3), input_dilation=(1, 2, 3))),
    (1, (1, 9, 9), (1, 3, 5), (4, 6), ops.Window((1, 3, 2), dilation=(1, 3, 4), groups=2)),
    (3, (4, 3, 5), (2, 3, 3), (2, 2), ops.Window((3, 1, 3), low=(0, 0, 0))),
    (1, (1, 6, 6), (1, 3, 4), (1, 1), ops.Window((1, 3, 2), low=(0, -1, -1))),
    (1, (1, 6, 6), (1, 0, 4), (2, 3), ops.Window((1, 3, 3))),
]


def operands(case, make, dtype, batch=3):
    images, size, out, (channels, features), _ = case
    x = make(0, (batch, images, *size, channels), dtype)
    return x, make(1, (batch, images, *out, features), dtype)


def truth(x, g, window):
    """`[B, kD, kH, kW, cin, O]` by the definition."""
    x, g = double(x), double(g)
    cin, cout = x.shape[5] // window.groups, g.shape[5] // window.groups
    out = np.zeros((x.shape[0], *window.kernel, cin, g.shape[5]))
    for k in np.ndindex(*window.kernel):
        for t in itertools.product(*(range(n) for n in g.shape[2:5])):
            at = np.asarray(t) * window.stride + np.asarray(k) * window.dilation - window.low
            source = at // window.input_dilation
            if np.any(at % window.input_dilation) or np.any(at < 0):
                continue
            if np.any(source >= x.shape[2:5]):
                continue
            pixel = x[:, :, *source].reshape(*x.shape[:2], window.groups, cin)
            grad = g[:, :, *t].reshape(*g.shape[:2], window.groups, cout)
            product = np.einsum("bigc,bigo->bcgo", pixel, grad)
            out[:, *k] += product.reshape(x.shape[0], cin, -1)
    return out


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_small_integers_are_exact(implementation, dtype, case):
    window = case[-1]
    x, g = operands(case, small_integers, dtype)
    factor = np.float32([0.5, 0, 2])

    def everything(x, g):
        return (
            ops.conv_norm(x, g, window),
            ops.conv_norm(x, g, window, "pixel_gram"),
            ops.conv_grad(x, g, window),
            ops.conv_sum(x, factor, g, window),
        )

    norms, gram_norms, (grads, grad_norms), total = fresh_jit(everything)(x, g)
    exact = truth(x, g, window)
    squares = np.square(exact).sum((1, 2, 3, 4, 5))
    np.testing.assert_array_equal(grads, exact)
    np.testing.assert_array_equal(total, np.einsum("b,b...->...", factor, exact))
    for each in (norms, gram_norms, grad_norms):
        np.testing.assert_array_equal(each.estimate, squares)
        assert np.all(double(each.upper) >= squares)
        assert each.upper.dtype == jnp.promote_types(dtype, jnp.float32)


FORMS = ("direct", "pixel_gram")


@pytest.mark.native
@pytest.mark.parametrize("case", CASES[:-1], ids=range(len(CASES) - 1))
def test_twins_and_native_calls_agree(dtype, case):
    window = case[-1]
    x, g = operands(case, normals, dtype)
    factor = normals(2, (3,), jnp.promote_types(dtype, jnp.float32))

    def native(x, g):
        norms = [ops.conv_norm(x, g, window, form) for form in FORMS]
        return ops.conv_grad(x, g, window)[0], ops.conv_sum(x, factor, g, window), norms

    def twins(x, g):
        how = window.attributes()
        norms = [conv_norm_twin(x, g, form=form, **how) for form in FORMS]
        return conv_grad_twin(x, g, **how)[0], conv_sum_twin(x, factor, g, **how)[0], norms

    (grads, total, norms), (twin_grads, twin_total, twin_norms) = (
        fresh_jit(run)(x, g) for run in (native, twins)
    )
    scale = truth(np.abs(double(x)), np.abs(double(g)), window)
    bound = 4 * eps(grads.dtype) * np.prod(g.shape[1:5]) * scale
    assert_within(grads, twin_grads, bound, "gradients")
    twin_total = twin_total.reshape(total.shape)  # without axes of missing dimensions
    assert_within(total, twin_total, np.einsum("b,b...->...", np.abs(factor), 4 * bound), "sum")
    squares = np.square(truth(x, g, window)).sum((1, 2, 3, 4, 5))
    spread = np.square(scale).sum((1, 2, 3, 4, 5))
    for each in (*norms, *twin_norms):
        assert_within(each.estimate, squares, 1e3 * eps(grads.dtype) * spread, "norms")
        assert np.all(double(each.upper) >= squares * (1 - 1e-13))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("form", FORMS)
def test_one_bad_example(implementation, form, bad):
    window = CASES[0][-1]
    x, g = operands(CASES[0], normals, np.float32)
    broken = x.copy()
    broken[1, 0, 0, 2, 2, 1] = bad
    factor = np.float32([0.5, 0, 2])
    norm = fresh_jit(lambda x, g: ops.conv_norm(x, g, window, form))
    clean, norms = (jax.tree.map(np.asarray, norm(a, g)) for a in (x, broken))
    for got, expected in zip(norms, clean, strict=True):
        assert_bits_equal(got[[0, 2]], expected[[0, 2]])
        assert not np.isfinite(got[1])
    total = fresh_jit(lambda x, g: ops.conv_sum(x, factor, g, window))
    assert_bits_equal(total(broken, g), total(x, g))


@pytest.mark.parametrize("slices", [0, 64])
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_patches_make_a_dense_layer(monkeypatch, case, slices):
    """Their products with output gradients are the kernel's gradients, up to the order of d."""
    monkeypatch.setattr(sys.modules["bk_jax.ops.conv_patches"], "MAX_SLICES", slices)
    window = case[-1]
    x, g = operands(case, small_integers, np.float32)
    patches, rows = ops.conv_patches(x, g.shape[2:5], window), ops.conv_rows(g, window.groups)
    products = np.einsum("bntd,bntp->bndp", patches, rows)
    exact = truth(x, g, window)
    grouped = exact.reshape(*exact.shape[:5], window.groups, -1)  # [B, k..., cin, groups, p]
    expected = np.moveaxis(grouped, 5, 1).reshape(products.shape)
    for n in np.ndindex(*products.shape[:2]):
        found, wanted = (sorted(map(tuple, each[n])) for each in (products, expected))
        assert found == wanted


COPIED = [
    *CASES,
    (2, (1, 9, 10), (1, 2, 2), (3, 4), ops.Window((1, 4, 4), (1, 4, 4))),
    (1, (2, 9, 9), (1, 2, 1), (4, 6), ops.Window((2, 5, 9), (2, 5, 9), (0, 1, 0), groups=2)),
    (1, (1, 4, 5), (1, 4, 5), (8, 3), ops.Window((1, 1, 1))),
    (1, (1, 5, 5), (1, 3, 3), (6, 4), ops.Window((1, 1, 1), (1, 2, 2), groups=2)),
    (1, (1, 3, 3), (1, 5, 4), (2, 3), ops.Window((1, 1, 1), low=(0, 1, 1))),
]  # fmt: skip


@pytest.mark.parametrize("case", COPIED, ids=range(len(COPIED)))
def test_dense_patches_make_kernels(case):
    """Gradients of the dense layer are those of the kernel, in its order, beside zeros."""
    window = case[-1]
    x, g = operands(case, small_integers, np.float32)
    patches, rows = ops.dense_patches(x, g.shape[2:5], window), ops.conv_rows(g, window.groups)
    if not is_image(window, x.shape[2:5], g.shape[2:5]):
        assert patches.shape[-1] * x.itemsize % 16 == 0
    products = np.einsum("bntd,bntp->bndp", patches, rows)
    found = ops.kernel_of_rows(jnp.asarray(products), window, x.shape[5])
    np.testing.assert_array_equal(found, truth(x, g, window))


@pytest.mark.parametrize("case", COPIED, ids=range(len(COPIED)))
def test_dense_patches_are_copies(case):
    """Bit for bit, zeros with a sign and numbers that arithmetic would flush; XLA may change a NaN's."""
    images, size, out, (channels, _), window = case
    bits = np.random.default_rng(0).integers(1, 2**16, (3, images, *size, channels), np.uint16)
    halves = jax.lax.bitcast_convert_type(jnp.asarray(bits), jnp.bfloat16)
    found, wanted = (ops.dense_patches(x, out, window) for x in (halves, jnp.asarray(bits)))
    found, wanted = np.asarray(found).view(np.uint16), np.asarray(wanted)
    is_nan, stays_nan = ((x & 0x7FFF) > 0x7F80 for x in (wanted, found))
    assert_bits_equal(stays_nan, is_nan)
    assert_bits_equal(found[~is_nan], wanted[~is_nan])
    assert set(np.unique(wanted)) <= {0, *np.unique(bits)}


def test_large_kernels_have_no_dense_patches():
    x = jnp.zeros((1, 1, 1, 20, 20, 2))
    with pytest.raises(ValueError, match="dense_patches expects a kernel of at most 64 pixels"):
        ops.dense_patches(x, (1, 12, 12), ops.Window((1, 9, 9)))


@pytest.mark.native
def test_an_unknown_form_is_refused():
    x, g = (jnp.zeros((2, 1, 1, 4, 4, 3)) for _ in range(2))
    with pytest.raises(Exception, match='form: expected "direct" or "pixel_gram", got other'):
        fresh_jit(lambda x, g: ops.conv_norm(x, g, ops.Window((1, 1, 1)), "other"))(x, g)


def test_errors():
    x, g = np.zeros((2, 1, 1, 4, 4, 3), np.float32), np.zeros((2, 1, 1, 4, 4, 4), np.float32)
    with pytest.raises(ValueError, match=r"conv_norm expects images \[B, images, D, H, W, C\]"):
        ops.conv_norm(x[0], g, ops.Window((1, 1, 1)))
    with pytest.raises(ValueError, match=r"conv_grad expects channels that 2 groups divide; got 3"):
        ops.conv_grad(x, g, ops.Window((1, 1, 1), groups=2))
    with pytest.raises(ValueError, match=r"conv_sum expects factor \[2\], got \(3,\)"):
        ops.conv_sum(x, np.ones(3), g, ops.Window((1, 1, 1)))
