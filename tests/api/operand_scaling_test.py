"""Arrays of scales for rows or columns of matrices: multiplied to operands, no gradient is formed.

The answer is that of the definition: `vmap` of `grad`, times the scale, clipped, in float64.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.models import mlp, mlp_batch, mlp_loss
from support.structure import jaxpr_shapes, same_up_to_layout

import bk_jax
from bk_jax.scaling import BY_ELEMENT

B, T, NORM = 5, 4, 0.7
RNG = np.random.default_rng(0)
VOCABULARY = 6


def matrix(w, x):
    return jnp.sum(jnp.sin(x[..., :3] @ w))


def transposed(w, x):
    return jnp.sum(jnp.sin(jnp.einsum("pd,btd->bpt", w, x[..., :3])))


def vector(w, x):
    return jnp.sum(jnp.sin(x[..., :3] @ w))


def heads(w, x):
    return jnp.sum(jnp.sin(jnp.einsum("btd,dhk->bthk", x[..., :3], w)))


def experts(w, x):
    return jnp.sum(jnp.sin(jnp.einsum("btd,edp->betp", x[..., :3], w)))


def experts_apart(w, x):
    """Each expert has tokens of its own: the axis is one of both operands."""
    return jnp.sum(jnp.sin(jnp.einsum("bted,edp->btep", jnp.stack([x, 2 * x], 2)[..., :3], w)))


def layers(w, x):
    out, _ = jax.lax.scan(lambda h, layer: (jnp.sin(h @ layer), None), x[..., :3], w)
    return jnp.sum(out)


def recurrent(w, x):
    out, _ = jax.lax.scan(
        lambda h, row: (jnp.sin(h @ w + row), None), x[:, 0, :3], x[0, :, None, :3]
    )
    return jnp.sum(out)


CASES = [
    (matrix, (3, 7), [(3, 1), (1, 7)]),
    (transposed, (7, 3), [(7, 1), (3,)]),
    (vector, (3,), [(3,)]),
    (heads, (3, 2, 5), [(3, 1, 1), (2, 1), (2, 5)]),
    (experts, (2, 3, 5), [(2, 1, 5)]),
    (experts_apart, (2, 3, 5), [(2, 3, 1), (2, 1, 5)]),
    (layers, (2, 3, 3), [(2, 3, 1), (1, 1, 3)]),
    (recurrent, (3, 3), [(3, 1), (3,)]),
]
EVERY_CASE = pytest.mark.parametrize(
    ("loss", "shape", "scale"),
    [
        pytest.param(loss, shape, scale, id=f"{loss.__name__} {'x'.join(map(str, scale))}")
        for loss, shape, scales in CASES
        for scale in scales
    ],
)


def arrays(shape, scale, dtype=np.float64):
    x = RNG.normal(size=(B, T, 7)) * np.logspace(-1.5, 0.5, B)[:, None, None]
    return (RNG.normal(size=shape) / 2).astype(dtype), x.astype(dtype), RNG.uniform(0.1, 3, scale)


def by_definition(loss, w, x, scale, clip_norm=NORM):
    """Norms of the scaled gradients, and the sum of what is clipped."""
    each = jax.vmap(lambda one: jax.grad(loss)(w, one[None]))(x)
    scaled = np.asarray(each, np.float64) * scale
    norms = np.sqrt(np.sum(scaled**2, axis=tuple(range(1, scaled.ndim))))
    factors = np.minimum(1, clip_norm / norms)
    return norms, np.tensordot(factors, scaled, axes=1)


def clipped(loss, w, x, scale, **options):
    return bk_jax.clipped_value_and_grad(
        loss, l2_clip_norm=NORM, pre_clip_scale=scale, return_stats=True, **options
    )


@EVERY_CASE
def test_it_is_the_definition(loss, shape, scale):
    with jax.enable_x64(True):
        w, x, scale = arrays(shape, scale)
        norms, total = by_definition(loss, w, x, scale)
        for route in ("ghost", "store") if loss is not matrix else ("ghost", "fused", "store"):
            grad_fn = clipped(loss, w, x, scale, routes={"*": route})
            assert grad_fn.explain(w, x).routes() == {"": route}
            _, grads, stats = jax.jit(grad_fn)(w, x)
            np.testing.assert_allclose(stats.norms, norms, rtol=1e-9)
            np.testing.assert_allclose(grads, total, rtol=1e-6, atol=1e-9)


def looked_up(w, x):
    return jnp.sum(jnp.sin(w[jnp.int32(jnp.abs(x[..., 0])) % VOCABULARY]))


def tied(w, x):
    return jnp.sum(jnp.sin(w[jnp.int32(jnp.abs(x[..., 0])) % VOCABULARY])) + transposed(w, x)


def convolved(w, x):
    dimensions = ("NWC", "WIO", "NWC")
    out = jax.lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=dimensions)
    return jnp.sum(jnp.sin(out))


def reshaped(w, x):
    return matrix(w.reshape(3, 4), x)


def sliced(w, x):
    return matrix(w[1:4], x)


def joined(w, x):
    return matrix(jnp.concatenate([w["a"], w["b"]]), x)


@pytest.mark.parametrize(
    ("loss", "shape", "scale", "why"),
    [
        (matrix, (3, 7), (3, 7), BY_ELEMENT),
        (heads, (3, 2, 5), (3, 2, 1), BY_ELEMENT),
        (layers, (2, 3, 3), (2, 3, 3), BY_ELEMENT),
        (looked_up, (6, 3), (3,), "scaled along an axis before clipping, and a table of rows at"),
        (tied, (6, 3), (3,), "scaled along an axis before clipping, and a table of rows at"),
        (convolved, (3, 7, 2), (2,), "and a kernel of a convolution at"),
        (reshaped, (3, 2, 2), (3, 1, 1), "and read by reshape at"),
        (sliced, (5, 4), (4,), "and read by slice at"),
    ],
)
def test_anything_else_is_a_leaf_and_says_why(loss, shape, scale, why):
    with jax.enable_x64(True):
        w, x, scale = arrays(shape, scale)
        grad_fn = clipped(loss, w, x, scale)
        (row,) = grad_fn.explain(w, x).rows
        assert row.route == "leaf"
        assert why in row.why
        norms, total = by_definition(loss, w, x, scale)
        _, grads, stats = jax.jit(grad_fn)(w, x)
        np.testing.assert_allclose(stats.norms, norms, rtol=1e-9)
        np.testing.assert_allclose(grads, total, rtol=1e-6, atol=1e-9)
        with pytest.raises(ValueError, match="cannot take the route 'store': it is scaled"):
            clipped(loss, w, x, scale, routes={"*": "store"}).explain(w, x)


def test_what_is_joined_is_a_leaf():
    w = {"a": np.ones((1, 4), np.float32), "b": np.ones((2, 4), np.float32)}
    scale = {"a": 1.0, "b": np.ones((2, 1), np.float32)}
    rows = clipped(joined, w, None, scale).explain(w, np.ones((B, T, 7), np.float32)).rows
    assert [row.route for row in rows] == ["leaf", "leaf"]
    assert "joined with parameters of another clip group or scale" in rows[1].why
    with pytest.raises(
        ValueError, match="scaled along an axis before clipping, and joined with others"
    ):
        clipped(joined, w, None, scale, routes={"b": "ghost"}).explain(
            w, np.ones((B, T, 7), np.float32)
        )


def test_no_gradient_of_an_example_appears():
    w, x, scale = arrays((3, 7), (3, 1), np.float32)
    shapes = {}
    for method in ("auto", "opacus"):
        grad_fn = clipped(matrix, w, x, scale, method=method)
        shapes[method] = jaxpr_shapes(jax.make_jaxpr(grad_fn)(w, x))
    formed = {
        method: any(same_up_to_layout(shape, (B, 3, 7)) for shape in found)
        for method, found in shapes.items()
    }
    assert formed == {"auto": False, "opacus": True}


def test_explain_says_it():
    params, batch = mlp(), mlp_batch(6, tokens=(4,))
    scale = {"w1": np.ones((5, 1)), "b1": np.ones(7), "w2": np.ones(3), "b2": 1.0}
    plain = bk_jax.dp_value_and_grad(mlp_loss).explain(params, batch)
    scaled = bk_jax.dp_value_and_grad(mlp_loss, pre_clip_scale=scale).explain(params, batch)
    assert scaled.routes() == plain.routes()
    why = {row.path: row.why for row in scaled.rows}
    for row in plain.rows:
        more = "; operands scaled before clipping" if row.path.startswith("w") else ""
        assert why[row.path] == row.why + more


def attention(params, x):
    q, k, v = (x @ params[name] for name in "qkv")
    return jnp.sum(jnp.sin(q) * jnp.cos(k) + v**2)


def test_matrices_of_one_activation_with_scales_of_their_own():
    """Without scales the three share a Gram matrix; each scale changes one activation only."""
    with jax.enable_x64(True):
        params = {name: RNG.normal(size=(6, 6)) / 4 for name in "qkv"}
        x = RNG.normal(size=(3, 130, 6))
        scale = {"q": RNG.uniform(0.1, 9, (6, 1)), "k": RNG.uniform(0.1, 9, 6), "v": 1.0}
        options = {"routes": {"*": "ghost"}, "l2_clip_norm": {"q": 1.0, "k": 2.0, "v": 3.0}}
        whole = [options, {"routes": options["routes"], "l2_clip_norm": 2.0}]
        for chosen in whole:
            found, expected = (
                bk_jax.clipped_value_and_grad(
                    attention, pre_clip_scale=scale, return_stats=True, **how
                )(params, x)
                for how in (chosen, {"method": "opacus", "l2_clip_norm": chosen["l2_clip_norm"]})
            )
            np.testing.assert_allclose(found[2].norms, expected[2].norms, rtol=1e-9)
            for name in "qkv":
                np.testing.assert_allclose(found[1][name], expected[1][name], rtol=1e-6, atol=1e-9)


def product(w, x):
    """The gradient is `a^T g`, with both in the batch."""
    a, g = x
    return jnp.sum((a @ w) * g)


@pytest.mark.parametrize("route", ["ghost", "fused", "store"])
@pytest.mark.parametrize("cancels", [False, True])
@pytest.mark.parametrize(("axis", "size"), [(0, 1e-12), (1, 1.0), (0, 1e9)])
def test_the_norm_is_never_below_that_of_the_scaled_operands(route, cancels, axis, size):
    """The factor times the exact norm of what is added: at most the clip norm, also if tokens cancel."""
    rng = np.random.default_rng(3)
    a = (rng.normal(size=(2, 40, 5)) + 30 * cancels) * size
    g = rng.normal(size=(2, 40, 6))
    if cancels:
        g -= g.mean(axis=1, keepdims=True)
    a, g = a.astype(np.float32), g.astype(np.float32)
    scale = np.float32(10.0 ** rng.uniform(-8, 8, (5, 1) if axis == 0 else (6,)))
    clip_norm = np.float32(1e-3)
    grad_fn = bk_jax.clipped_value_and_grad(
        product,
        l2_clip_norm=clip_norm,
        pre_clip_scale=scale,
        return_stats=True,
        routes={"*": route},
    )
    _, total, stats = jax.jit(grad_fn)(np.zeros((5, 6), np.float32), (a, g))
    left, right = (a * scale[:, 0], g) if axis == 0 else (a, g * scale)
    exact = np.einsum("btd,btp->bdp", np.float64(left), np.float64(right))
    norms = np.sqrt(np.sum(exact**2, axis=(1, 2)))
    if route != "store":  # its bound is of gradients as they were rounded
        assert np.all(np.float64(stats.clip_factors) * norms <= np.float64(clip_norm) * (1 + 1e-12))
    ideal = np.einsum("btd,btp->bdp", np.float64(a), np.float64(g)) * np.float64(scale)
    sums = np.einsum("b,bdp->dp", np.float64(stats.clip_factors), ideal)
    terms = np.einsum("btd,btp->bdp", *(abs(np.float64(v)) for v in (a, g))) * np.float64(scale)
    rounding = 64 * 2**-24 * np.einsum("b,bdp->dp", np.float64(stats.clip_factors), terms)
    assert np.all(abs(total - sums) <= rounding + 1e-38)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_scaled_in_float32(dtype):
    """A scale that half precision does not have leaves norms right to float32."""
    rng = np.random.default_rng(4)
    a, g = (jnp.asarray(rng.normal(size=(3, 4, n)), dtype) for n in (5, 6))
    scale = np.float32(1e-7) * rng.uniform(1, 2, (5, 1)).astype(np.float32)
    w = jnp.zeros((5, 6), dtype)
    _, _, stats = clipped(product, w, (a, g), scale, routes={"*": "ghost"})(w, (a, g))
    exact = np.einsum("btd,btp->bdp", np.float64(a), np.float64(g)) * np.float64(scale)
    np.testing.assert_allclose(stats.norms, np.sqrt(np.sum(exact**2, axis=(1, 2))), rtol=1e-5)


def test_an_example_whose_scaled_operand_overflows_adds_nothing():
    a = np.float32([[[1.0, 2.0]], [[1e30, 2.0]]])
    g = np.ones((2, 1, 3), np.float32)
    w, scale = np.zeros((2, 3), np.float32), np.float32([[1e10], [1.0]])
    _, total, stats = clipped(product, w, (a, g), scale)(w, (a, g))
    assert stats.nonfinite_count == 1
    assert np.all(np.isfinite(total))
    assert np.linalg.norm(np.float64(total)) <= NORM


@pytest.mark.parametrize("options", [{"microbatch_size": 2}, {"method": "bk_mix_ghost_clip"}])
def test_other_ways_through_the_batch(options):
    w, x, scale = arrays((3, 7), (3, 1), np.float32)
    norms, total = by_definition(matrix, w, x, scale)
    _, grads, stats = jax.jit(lambda s: clipped(matrix, w, x, s, **options)(w, x))(scale)
    np.testing.assert_allclose(stats.norms, norms, rtol=1e-5)
    np.testing.assert_allclose(grads, total, rtol=1e-4, atol=1e-6)
