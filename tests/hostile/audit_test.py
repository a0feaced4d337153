"""The audit finds each way to mix examples, in functions of any origin, and names the cause."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax
from bk_jax.audit import AuditError, assert_sensitivity

B = 6
X = (np.random.default_rng(0).normal(size=(B, 3)) * np.linspace(1, 9, B)[:, None]).astype("f4")
Y = np.arange(B, dtype=np.float32)
W = np.ones(3, np.float32)


def loss(w, x, y):
    return jnp.sum((x @ w - y) ** 2)


def by_vmap(loss_fn, clip_norm=1.0):
    """A private gradient as many write it: vmap, clip, mask, sum. Examples come as batches of one."""

    @jax.jit
    def grad_fn(w, x, is_padding_example, **kwargs):
        each = jax.vmap(lambda row: jax.grad(loss_fn)(w, row[None], **kwargs))(x)
        norms = jnp.linalg.norm(each, axis=1, keepdims=True)
        clipped = each * jnp.minimum(1, clip_norm / jnp.maximum(norms, 1e-12))
        return 0.0, jnp.sum(jnp.where(is_padding_example[:, None], 0, clipped), axis=0)

    return grad_fn


@jax.custom_batching.custom_vmap
def centred(x):
    return x


@centred.def_vmap
def _(size, is_batched, x):
    return x - x.mean(axis=0), True


def mixed_by_rule(w, x):
    return jnp.sum((jax.lax.stop_gradient(centred(x)) * x) @ w)


def mixed_by_callback(w, x):
    def total(z):
        return np.broadcast_to(np.sum(z), z.shape).astype(z.dtype)

    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    weight = jax.pure_callback(total, shape, jax.lax.stop_gradient(x), vmap_method="broadcast_all")
    return jnp.sum((weight * x) @ w)


@pytest.mark.parametrize("mixing", [mixed_by_rule, mixed_by_callback])
def test_mixing_in_foreign_code_is_found(mixing):
    with pytest.raises(
        AuditError, match=r"padding rows contribute.*examples are mixed.*custom_vmap"
    ):
        assert_sensitivity(by_vmap(mixing, 1e4), W, X, bound=1e4)


@pytest.mark.parametrize("mixing", [mixed_by_rule, mixed_by_callback])
def test_here_nothing_is_mixed(mixing):
    report = assert_sensitivity(mixing, W, X)
    assert report.moved["ADD_OR_REMOVE_ONE"] <= 1 + 1e-5


def test_mixing_without_padding_is_found():
    def normalized(w, x):
        x = np.asarray(x, np.float64)
        rows = x - x.sum(0)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return 0.0, (rows * np.minimum(1, 1 / np.maximum(norms, 1e-9))).sum(0)

    with pytest.raises(AuditError, match="examples are mixed before clipping"):
        assert_sensitivity(normalized, W, X, bound=1.0, padding=False)


def test_labels_that_all_see_are_found_in_foreign_code():
    with pytest.raises(AuditError, match=r"Likely cause: y has one row for each example"):
        assert_sensitivity(by_vmap(loss, 1e6), W, X, bound=1e6, kwargs={"y": Y})


def test_labels_that_are_handed_on_rightly_pass():
    @jax.jit
    def grad_fn(w, x, y, is_padding_example):
        each = jax.vmap(lambda row, label: jax.grad(loss)(w, row[None], label[None]))(x, y)
        norms = jnp.linalg.norm(each, axis=1, keepdims=True)
        clipped = each / jnp.maximum(norms, 1)
        return 0.0, jnp.sum(jnp.where(is_padding_example[:, None], 0, clipped), axis=0)

    assert_sensitivity(grad_fn, W, X, bound=1.0, kwargs={"y": Y})


def test_labels_as_keyword_are_refused_here():
    with pytest.raises(ValueError, match=r"'y'.*batch_argnums=\(1, 2\)"):
        assert_sensitivity(loss, W, X, kwargs={"y": Y})


def test_several_batch_arguments_are_a_tuple():
    report = assert_sensitivity(loss, W, (X, Y), batch_argnums=(1, 2), l2_clip_norm=0.5)
    assert 0.49 < report.moved["ADD_OR_REMOVE_ONE"] <= 0.5 * (1 + 1e-5)
    grad_fn = bk_jax.clipped_value_and_grad(
        lambda x, w: loss(w, x, 0.0), argnums=1, batch_argnums=0
    )
    with pytest.raises(ValueError, match="needs argnums=0 and batch_argnums that follow"):
        assert_sensitivity(grad_fn, W, X)


def test_public_arguments_stay_as_they_are():
    def table_loss(w, x, table):
        return jnp.sum((x @ w) * jnp.sum(table * jnp.arange(B)))

    table = np.random.default_rng(1).normal(size=B).astype(np.float32)
    assert_sensitivity(table_loss, W, X, shared_argnames="table", kwargs={"table": table})


def test_a_closure_over_the_labels_is_found():
    labels = jnp.asarray(Y)
    with pytest.raises(
        AuditError, match=r"closes over a constant float32\[6\].*audit_test.py.*another size"
    ):
        assert_sensitivity(lambda w, x: loss(w, x, labels), W, X)
