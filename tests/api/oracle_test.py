"""The transform against per-example gradients by `vmap` of `grad` in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.models import linear_loss, mlp, mlp_batch, mlp_loss
from support.oracle import check_against_oracle


def normal(seed, *shape, dtype=np.float64, scale=1.0):
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype(dtype)


# --- the oracle itself ---


def test_oracle_by_mental_arithmetic():
    """Gradients 3, -4 and 12 in two parameters: norms 5, 13; clipped to 1."""
    x = np.float32([[3, -4], [5, 12], [0.3, 0.4]])
    _, grads, stats = check_against_oracle(linear_loss, np.zeros(2, np.float32), x)
    np.testing.assert_allclose(stats.norms, [5, 13, 0.5], rtol=1e-5)
    np.testing.assert_allclose(stats.clip_factors, [1 / 5, 1 / 13, 1], rtol=1e-5)
    np.testing.assert_allclose(grads, [3 / 5 + 5 / 13 + 0.3, -4 / 5 + 12 / 13 + 0.4], rtol=1e-5)


def test_oracle_notices_a_wrong_gradient(monkeypatch):
    from bk_jax import ops

    right = ops.weighted_sums
    wrong = lambda factor, many: [1.001 * each for each in right(factor, many)]  # noqa: E731
    monkeypatch.setattr(ops, "weighted_sums", wrong)
    with pytest.raises(AssertionError, match=r"clipped sum of .*The worst, at .*expected"):
        check_against_oracle(mlp_loss, mlp(), mlp_batch(4))


def test_oracle_notices_an_underestimated_norm(monkeypatch):
    from bk_jax import ops

    right = ops.sum_of_squares

    def wrong(gradients):
        norms = right(gradients)
        return norms._replace(estimate=norms.estimate * 0.5, upper=norms.upper * 0.5)

    monkeypatch.setattr(ops, "sum_of_squares", wrong)
    with pytest.raises(AssertionError, match=r"norms, group 0: .*The worst"):
        check_against_oracle(linear_loss, np.zeros(2, np.float32), np.float32([[3, 4]]))


# --- arguments ---


def test_mlp(real, implementation):
    check_against_oracle(mlp_loss, mlp(real), mlp_batch(8, real))


def test_tokens(x64, implementation):
    batch = mlp_batch(4, np.float64, tokens=(6,))
    check_against_oracle(mlp_loss, mlp(np.float64), batch)


def test_without_jit():
    def loss(w, x):
        return jnp.sum(x @ w)

    w, x = normal(0, 3, 2, dtype=np.float32), normal(1, 2, 3, dtype=np.float32)
    check_against_oracle(loss, w, x, jit=False)


def test_bare_examples(x64):
    def loss(params, example):
        assert [x.ndim for x in example] == [1, 1]
        return mlp_loss(params, example)

    batch = mlp_batch(5, np.float64)
    check_against_oracle(loss, mlp(np.float64), batch, keep_batch_dim=False)


def test_one_example_keeps_its_batch_axis(x64):
    def loss(params, batch):
        assert [x.shape[0] for x in batch] == [1, 1]
        return mlp_loss(params, batch)

    check_against_oracle(loss, mlp(np.float64), mlp_batch(5, np.float64))


def test_aux(x64):
    def loss(params, batch):
        hidden = batch[0] @ params["w1"]
        return mlp_loss(params, batch), {"hidden": hidden, "constant": 3, "none": None}

    (_, aux), _, _ = check_against_oracle(
        loss, mlp(np.float64), mlp_batch(4, np.float64), has_aux=True
    )
    assert aux["hidden"].shape == (4, 1, 7)
    assert aux["constant"].tolist() == [3] * 4


def test_two_parameter_arguments_and_two_batch_arguments(x64):
    def loss(x, kernel, y, bias, scale):
        return jnp.mean(jnp.square(x @ kernel["k"] + bias - y)) * scale

    args = (normal(0, 6, 4), {"k": normal(1, 4, 3)}, normal(2, 6, 3), normal(3, 3), 0.5)
    _, grads, _ = check_against_oracle(loss, *args, argnums=(1, 3), batch_argnums=(0, 2))
    assert isinstance(grads, tuple)
    assert len(grads) == 2


def test_a_tuple_of_one_argument_gives_a_tuple(x64):
    _, grads, _ = check_against_oracle(
        mlp_loss, mlp(np.float64), mlp_batch(2, np.float64), argnums=(0,)
    )
    assert isinstance(grads, tuple)


def test_keyword_arguments_reach_the_loss(x64):
    def loss(params, batch, *, power):
        return jnp.mean(jnp.abs(batch[0] @ params["w1"]) ** power)

    batch = mlp_batch(4, np.float64)
    check_against_oracle(loss, mlp(np.float64), batch, kwargs={"power": np.float64(3)})


def test_dropout_draws_anew_for_every_example():
    def loss(params, batch, key):
        x, _ = batch
        keep = jax.random.bernoulli(key, jnp.float32(0.5), x.shape)
        return mlp_loss(params, (jnp.where(keep, x, 0), batch[1])), keep

    same = tuple(np.repeat(x[-1:], 6, axis=0) for x in mlp_batch(6))
    (_, keep), _, stats = check_against_oracle(
        loss, mlp(), same, jax.random.key(1), has_aux=True, prng_argnum=2
    )
    assert len({row.tobytes() for row in keep}) > 1
    assert len(set(stats.norms.tolist())) > 1


def test_padding(x64):
    padding = np.asarray([False, True, False, True, True])
    check_against_oracle(
        mlp_loss, mlp(np.float64), mlp_batch(5, np.float64), is_padding_example=padding
    )


def test_normalize_by_and_dtype():
    _, grads, _ = check_against_oracle(
        mlp_loss, mlp(), mlp_batch(6), normalize_by=7.0, dtype=jnp.bfloat16
    )
    assert {g.dtype for g in grads.values()} == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.parametrize("low", [jnp.bfloat16, jnp.float16])
def test_low_precision_parameters(low):
    params, batch = mlp(low), mlp_batch(6, low)
    check_against_oracle(mlp_loss, params, batch, rtol=32 * float(jnp.finfo(low).eps))


def test_mixed_precision():
    """Float32 parameters, products in bfloat16: compared with the same rounding, roughly."""

    def loss(params, batch):
        low = jax.tree.map(lambda w: w.astype(jnp.bfloat16).astype(w.dtype), params)
        return mlp_loss(low, batch)

    check_against_oracle(loss, mlp(), mlp_batch(6), rtol=32 * float(jnp.finfo(jnp.bfloat16).eps))


# --- clipping ---


@pytest.mark.parametrize("clipping", ["automatic", "normalize", "indicator"])
def test_clipping_functions(clipping):
    check_against_oracle(mlp_loss, mlp(), mlp_batch(8), clipping=clipping, l2_clip_norm=2.5)


@pytest.mark.parametrize(
    "function",
    [lambda n: 1 / (1 + n), lambda n: 1e6 * jnp.ones_like(n), lambda n: 0.25, lambda n: jnp.nan],
    ids=["smooth", "cut off at R/n", "constant", "NaN"],
)
def test_a_function_of_the_norms(function):
    _, _, stats = check_against_oracle(
        mlp_loss, mlp(), mlp_batch(8), clipping=function, l2_clip_norm=0.75
    )
    assert np.all(stats.clip_factors * stats.norms <= np.float32(0.75))


@pytest.mark.parametrize(
    ("prefix", "groups"),
    [
        ({"w1": 0.1, "b1": 0.2, "w2": 3.0, "b2": 0.4}, 4),
        ({"first": {"w": 0.1, "b": 0.2}, "second": 3.0}, 3),
        ({"first": 0.5, "second": 1.5}, 2),
    ],
)
def test_clipping_per_group(x64, prefix, groups):
    flat = mlp(np.float64)
    if "first" in prefix:
        params = {
            "first": {"w": flat["w1"], "b": flat["b1"]},
            "second": {"w": flat["w2"], "b": flat["b2"]},
        }
    else:
        params = flat

    def loss(params, batch):
        if "first" in params:
            one, two = params["first"], params["second"]
            params = {"w1": one["w"], "b1": one["b"], "w2": two["w"], "b2": two["b"]}
        return mlp_loss(params, batch)

    _, _, stats = check_against_oracle(loss, params, mlp_batch(5, np.float64), l2_clip_norm=prefix)
    assert stats.norms.shape == stats.clip_factors.shape == (5, groups)


def test_clipping_per_argument(x64):
    def loss(kernel, x, bias):
        return jnp.sum(jnp.tanh(x @ kernel + bias))

    args = (normal(0, 4, 3), normal(1, 5, 4), normal(2, 3))
    check_against_oracle(loss, *args, argnums=(0, 2), l2_clip_norm=(0.5, 0.25))


# --- uses of parameters ---


def test_a_weight_used_twice(x64):
    def loss(w, x):
        return jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w))

    check_against_oracle(loss, normal(0, 4, 4), normal(1, 5, 3, 4))


def test_a_weight_and_its_transpose(x64):
    def loss(w, x):
        return jnp.sum(jnp.tanh(x @ w) @ w.T)

    check_against_oracle(loss, normal(0, 4, 6), normal(1, 5, 3, 4))


def test_a_weight_multiplied_and_regularised(x64):
    def loss(w, x):
        return jnp.sum(jnp.tanh(x @ w)) + 0.1 * jnp.sum(jnp.square(w))

    check_against_oracle(loss, normal(0, 4, 6), normal(1, 5, 3, 4))


def test_stacked_layers_in_a_scan_with_remat(x64):
    def loss(params, x):
        def layer(h, p):
            return jnp.tanh(h @ p["w"] + p["b"]), None

        h, _ = jax.lax.scan(jax.checkpoint(layer), x, params)
        return jnp.sum(jnp.square(h))

    params = {"w": normal(0, 3, 4, 4), "b": normal(1, 3, 4)}
    check_against_oracle(loss, params, normal(2, 5, 2, 4))


def test_a_recurrent_weight(x64):
    def loss(params, x):
        def cell(h, token):
            return jnp.tanh(h @ params["h"] + token @ params["x"]), None

        h, _ = jax.lax.scan(cell, jnp.zeros((1, 3)), jnp.swapaxes(x, 0, 1))
        return jnp.sum(h)

    params = {"h": normal(0, 3, 3), "x": normal(1, 4, 3)}
    check_against_oracle(loss, params, normal(2, 5, 6, 4))


def test_attention_with_a_fused_projection(x64):
    def loss(params, x):
        q, k, v = jnp.split(x @ params["qkv"], 3, axis=-1)
        weights = jax.nn.softmax(jnp.einsum("btd,bsd->bts", q, k))
        return jnp.sum(jnp.einsum("bts,bsd->btd", weights, v) @ params["out"])

    params = {"qkv": normal(0, 4, 12), "out": normal(1, 4, 2)}
    check_against_oracle(loss, params, normal(2, 3, 5, 4))


def test_a_parameter_behind_a_condition(x64):
    def loss(params, x):
        out = jax.lax.cond(jnp.sum(x) > 0, lambda: x @ params["a"], lambda: x @ params["b"])
        return jnp.sum(jnp.square(out))

    params = {"a": normal(0, 4, 3), "b": normal(1, 4, 3)}
    check_against_oracle(loss, params, normal(2, 6, 4))


def test_custom_derivatives_are_kept(x64):
    @jax.custom_vjp
    def doubled(x):
        return x

    doubled.defvjp(lambda x: (x, None), lambda _, g: (2 * g,))

    def loss(w, x):
        return jnp.sum(jax.nn.relu(doubled(x @ w)))

    check_against_oracle(loss, normal(0, 4, 3), normal(1, 6, 4))


def test_stop_gradient(x64):
    def loss(params, x):
        return jnp.sum(jnp.tanh(x @ params["a"]) @ jax.lax.stop_gradient(params["b"]))

    params = {"a": normal(0, 4, 3), "b": normal(1, 3, 2)}
    check_against_oracle(loss, params, normal(2, 6, 4))
