"""Data of single examples that every example sees: forgotten batch_argnums, keywords, closures."""

from __future__ import annotations

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bk_jax
from bk_jax import peft, privacy, training

B = 6
X = np.arange(B * 3, dtype=np.float32).reshape(B, 3) / 7
Y = np.arange(B, dtype=np.float32)
W = np.ones(3, np.float32)


def loss(w, x, y):
    return jnp.sum((x @ w - y) ** 2)


def clipped(loss_fn, **options):
    return bk_jax.clipped_value_and_grad(loss_fn, **options)


def test_forgotten_batch_argnums_are_refused_with_the_call_to_write():
    with pytest.raises(ValueError, match=r"'y'.*6 rows.*not part of the batch") as error:
        clipped(loss)(W, X, Y)
    assert "batch_argnums=(1, 2) and call grad_fn(w, x, y)" in str(error.value)
    assert "shared_argnames='y'" in str(error.value)


def test_the_call_to_write_works():
    _, grads = clipped(loss, batch_argnums=(1, 2))(W, X, Y)
    each = jax.vmap(jax.grad(loss), (None, 0, 0))(W, X[:, None], Y[:, None])
    norms = jnp.linalg.norm(each, axis=1, keepdims=True)
    np.testing.assert_allclose(grads, jnp.sum(each / jnp.maximum(norms, 1), axis=0), rtol=1e-5)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_labels_as_keyword_are_refused(wrap):
    with pytest.raises(
        ValueError, match=r"'y'.*batch_argnums=\(1, 2\) and call grad_fn\(w, x, y\)"
    ):
        wrap(clipped(loss))(W, X, y=Y)


def test_explain_refuses_too():
    with pytest.raises(ValueError, match=r"'y'.*not part of the batch"):
        clipped(loss).explain(W, X, Y)
    with pytest.raises(ValueError, match=r"'y'.*not part of the batch"):
        clipped(loss).explain(W, X, y=Y)


def test_a_keyword_only_argument_has_to_move():
    def keyword_loss(w, x, *, weights):
        return jnp.sum((x @ w) * weights)

    with pytest.raises(ValueError, match="make weights a positional parameter of the loss"):
        clipped(keyword_loss)(W, X, weights=Y)


def test_leaves_of_trees_are_named():
    def tree_loss(w, x, extra):
        return jnp.sum(x @ w) + jnp.sum(extra["a"]["labels"])

    with pytest.raises(ValueError, match="'extra' at 'a/labels'"):
        clipped(tree_loss)(W, X, {"a": {"labels": Y, "scale": np.ones(2)}})


def test_many_leaves_are_counted():
    def tree_loss(w, x, extra):
        return jnp.sum(x @ w) + sum(jnp.sum(e) for e in extra)

    with pytest.raises(ValueError, match="and 2 more"):
        clipped(tree_loss)(W, X, [Y] * 5)


def test_a_list_of_numbers_is_an_array_too():
    with pytest.raises(ValueError, match=r"'y'.*not part of the batch"):
        clipped(loss)(W, X, [float(y) for y in Y])


def test_arguments_without_a_name_are_numbered():
    def anonymous(*args):
        return loss(*args)

    with pytest.raises(ValueError, match=r"'argument 2'.*call grad_fn\(arg0, arg1, arg2\)"):
        clipped(anonymous)(W, X, Y)


def test_keys_of_all_examples_are_refused():
    def dropout_loss(w, x, keys):
        return jnp.sum(x @ w) * jax.random.uniform(keys[0])

    with pytest.raises(ValueError, match=r"'keys'.*not part of the batch"):
        clipped(dropout_loss)(W, X, jax.random.split(jax.random.key(0), B))


def test_public_arguments_are_declared():
    def table_loss(w, x, table):
        return jnp.sum((x @ w) * table.sum())

    table = np.ones((B, 2), np.float32)
    value, grads = clipped(table_loss, shared_argnames="table")(W, X, table)
    assert np.isfinite(value)
    np.testing.assert_array_equal(
        clipped(table_loss, shared_argnames=("table",))(W, X, table=table)[1], grads
    )


def test_other_sizes_and_single_examples_pass():
    def scaled(w, x, scale):
        return jnp.sum(x @ w) * jnp.sum(scale)

    clipped(scaled)(W, X, np.ones(B + 1, np.float32))
    clipped(scaled)(W, X[:1], np.ones(1, np.float32))  # nobody else is there
    clipped(scaled)(W, X, np.float32(2))


def test_frozen_parameters_of_peft_are_public():
    def wide_loss(params, x):
        return jnp.sum(jnp.tanh(x @ params["kernel"] + params["bias"]))

    params = {"kernel": np.ones((3, B), np.float32), "bias": np.zeros(B, np.float32)}
    trainable, frozen = peft.partition(params, "kernel")
    clipped(peft.with_frozen(wide_loss))(trainable, X, frozen=frozen)
    lora = peft.lora(wide_loss, params, X[:1], match="kernel", rank=2)
    clipped(lora.loss_fn)(lora.adapters, X, frozen=params)


def test_constants_of_a_run_are_public(tmp_path):
    def table_loss(w, x, *, table):
        return jnp.sum((x - w) ** 2) * table.sum()

    plan = privacy.PrivacyPlan(
        num_examples=B, batch_size=2, steps=1, delta=1e-3, noise_multiplier=2.0, pld_interval=0.1,
        max_batch_size=B,
    )  # fmt: skip
    training.fit(
        table_loss, W, X, plan=plan, optimizer=optax.sgd(0.1), directory=tmp_path, plot=False,
        loss_kwargs={"table": np.ones((B, 2), np.float32)},
    )  # fmt: skip


# --- closures ---


def test_a_closure_over_the_batch_is_warned_about():
    labels = jnp.asarray(Y)

    def closing(w, x):
        return jnp.sum((x @ w - labels) ** 2)

    with pytest.warns(
        bk_jax.BatchSizedConstantWarning, match=r"float32\[6\].*shared_data_test.py:\d+"
    ):
        clipped(closing)(W, X)


def test_inside_jit_and_inside_a_jitted_piece_as_well():
    labels = jnp.asarray(Y)
    inner = jax.jit(lambda z: z - labels)

    def closing(w, x):
        return jnp.sum(inner(x @ w) ** 2)

    with pytest.warns(bk_jax.BatchSizedConstantWarning, match=r"float32\[6\]"):
        jax.jit(clipped(closing))(W, X)


def test_a_step_that_closes_over_its_labels_is_warned_about():
    @jax.jit
    def step(w, x, y):
        return clipped(functools.partial(loss_of, labels=y))(w, x)

    def loss_of(w, x, labels):
        return jnp.sum((x @ w - labels) ** 2)

    with pytest.warns(bk_jax.BatchSizedConstantWarning, match="loss_of.*batch_argnums names"):
        step(W, X, Y)


def test_what_is_declared_is_no_surprise():
    def table_loss(w, x, table, count):
        return jnp.sum((x @ w) * table.sum()) * count["n"].sum()

    params = {"w": W, "n": np.arange(B)}  # an integer leaf is closed over as well

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clipped(lambda p, x, table: table_loss(p["w"], x, table, p), shared_argnames="table")(
            params, X, np.ones((B, 2), np.float32)
        )
