"""`assert_sensitivity`: every correct method passes, every broken mechanism is caught by name."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from support.models import mlp, mlp_batch, mlp_loss

import bk_jax
from audit.mechanisms import (
    BATCH,
    BOUND,
    BROKEN,
    CLIP,
    DECLARED,
    EXPECTED,
    PARAMS,
    STDDEV,
    as_tree,
    clip,
    correct,
    per_example,
    without_noise,
)
from bk_jax.audit import AuditError, assert_sensitivity
from bk_jax.planning.methods import METHODS

SIZES = (2, 3, 1)

# --- correct ---


@pytest.mark.parametrize("method", METHODS)
def test_every_method_passes(method):
    params, batch = mlp(sizes=SIZES), mlp_batch(3, sizes=SIZES)
    report = assert_sensitivity(
        mlp_loss, params, batch, examples=2, l2_clip_norm=0.1, normalize_by=2.0, method=method
    )
    assert report.bounds == {"ADD_OR_REMOVE_ONE": 0.05, "REPLACE_ONE": 0.1}
    assert 0.049 < report.moved["ADD_OR_REMOVE_ONE"] <= 0.05 * (1 + 1e-5)
    assert report.noise_stddev == 0.0


def test_a_private_gradient_knows_its_bound_and_its_noise():
    options = {"l2_clip_norm": 0.5, "noise_multiplier": 3.0, "normalize_by": 2.0}
    params, batch = mlp(sizes=SIZES), mlp_batch(3, sizes=SIZES)
    grad_fn = bk_jax.dp_value_and_grad(mlp_loss, **options)
    report = assert_sensitivity(grad_fn, params, batch, examples=2)
    assert report == assert_sensitivity(mlp_loss, params, batch, examples=2, **options)
    assert abs(report.noise_stddev / 0.75 - 1) < 6 / np.sqrt(2 * 31 * 13)


def test_a_correct_mechanism_passes():
    report = assert_sensitivity(correct, PARAMS, BATCH, **DECLARED)
    assert report.bounds == {"ADD_OR_REMOVE_ONE": BOUND, "REPLACE_ONE": 2 * BOUND}
    assert 0.99 * BOUND < report.moved["ADD_OR_REMOVE_ONE"] <= BOUND * (1 + 1e-5)
    assert abs(report.noise_stddev / STDDEV - 1) < 6 / np.sqrt(2 * 31 * 7)


def test_a_mechanism_without_noise_gets_no_key():
    assert assert_sensitivity(without_noise, PARAMS, BATCH, bound=BOUND).noise_stddev == 0.0


def test_rows_are_cut_out_for_functions_that_know_no_padding():
    def sums(params, x):
        return as_tree(clip(per_example(x)).sum(0) / EXPECTED)

    def means(params, x):
        return as_tree(clip(per_example(x)).sum(0) / max(len(x), 1))

    assert_sensitivity(sums, PARAMS, BATCH, bound=BOUND, padding=False)
    with pytest.raises(AuditError, match="a mean instead of a sum"):
        assert_sensitivity(means, PARAMS, BATCH, bound=CLIP / len(BATCH), padding=False)


def test_a_bound_of_replacement_is_held_against_replacements_alone():
    report = assert_sensitivity(
        without_noise, PARAMS, BATCH, bound=2 * BOUND, relation=NeighboringRelation.REPLACE_ONE
    )
    assert set(report.bounds) == set(report.moved) == {"REPLACE_ONE"}
    with pytest.raises(
        AuditError, match="example 0 replaced by example 1 in the whole batch moves"
    ):
        assert_sensitivity(without_noise, PARAMS, BATCH, bound=BOUND / 9, relation="REPLACE_ONE")


def test_other_arguments_are_handed_on():
    def loss(w, x, scale):
        return jnp.sum(x * w) * scale

    grad_fn = bk_jax.clipped_value_and_grad(loss)
    w, x = np.zeros(3, np.float32), BATCH
    report = assert_sensitivity(grad_fn, w, x, examples=1, kwargs={"scale": np.float32(1e-3)})
    assert report.moved["ADD_OR_REMOVE_ONE"] < 0.01


def test_one_example_is_enough():
    assert_sensitivity(correct, PARAMS, BATCH[:1], **DECLARED)
    with pytest.raises(AuditError, match=r"moves the result.*is not clipped, or not to this norm"):
        assert_sensitivity(without_noise, PARAMS, BATCH[:1], bound=BOUND / 2)


# --- broken ---


@pytest.mark.parametrize("mechanism", BROKEN, ids=lambda mechanism: mechanism.__name__)
def test_broken_mechanisms_are_caught(mechanism):
    with pytest.raises(AuditError, match=f"(?s){BROKEN[mechanism]}"):
        assert_sensitivity(mechanism, PARAMS, BATCH, **DECLARED)


def test_a_step_that_uses_a_key_again_is_caught():
    keys = list(jax.random.split(jax.random.key(0), 9))
    keys[7] = keys[3]
    with pytest.raises(AuditError, match="keys 3 and 7 are the same key"):
        assert_sensitivity(correct, PARAMS, BATCH, keys=keys, **DECLARED)


def test_a_private_gradient_with_less_noise_than_it_says_is_caught():
    def less(*args, grad_fn, **kwargs):
        return grad_fn(*args, **kwargs)

    grad_fn = jax.jit(bk_jax.dp_value_and_grad(mlp_loss, noise_multiplier=0.5))
    params, batch = mlp(sizes=SIZES), mlp_batch(3, sizes=SIZES)
    with pytest.raises(AuditError, match=r"\(0\.\d+ times\): it hides less"):
        assert_sensitivity(
            functools.partial(less, grad_fn=grad_fn), params, batch, bound=1.0, noise_stddev=1.0
        )


# --- arguments ---


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="the batch has no example"):
        assert_sensitivity(correct, PARAMS, BATCH[:0], **DECLARED)


@pytest.mark.parametrize("bound", [-1.0, np.nan])
def test_a_bound_is_a_number_from_zero_on(bound):
    with pytest.raises(ValueError, match="bound must be at least 0"):
        assert_sensitivity(correct, PARAMS, BATCH, bound=bound)


def test_unknown_relations_are_refused():
    with pytest.raises(
        ValueError, match=r"relation must be one of 'add_or_remove_one', .*; got 'ADD'"
    ):
        assert_sensitivity(correct, PARAMS, BATCH, bound=1.0, relation="ADD")


def test_options_belong_to_a_loss():
    with pytest.raises(TypeError, match=r"\['l2_clip_norm'\], do not go together with bound"):
        assert_sensitivity(correct, PARAMS, BATCH, bound=1.0, l2_clip_norm=1.0)
    with pytest.raises(TypeError, match=r"\['l2_clip_norm'\] belong to a loss"):
        assert_sensitivity(bk_jax.dp_value_and_grad(mlp_loss), PARAMS, BATCH, l2_clip_norm=1.0)


def test_what_wraps_a_private_gradient_is_no_loss():
    with pytest.raises(TypeError, match="fun wraps a function that dp_value_and_grad returned"):
        assert_sensitivity(jax.jit(bk_jax.dp_value_and_grad(mlp_loss)), PARAMS, BATCH)


def test_noise_is_declared_together_with_a_bound():
    with pytest.raises(TypeError, match="noise_stddev goes together with bound"):
        assert_sensitivity(mlp_loss, PARAMS, BATCH, noise_stddev=1.0)


def test_keys_are_those_of_two_steps():
    with pytest.raises(ValueError, match="at least 2 steps, got 1"):
        assert_sensitivity(correct, PARAMS, BATCH, keys=[jax.random.key(0)], **DECLARED)


def test_gradients_come_second():
    with pytest.raises(TypeError, match=r"must return \(value, gradients\).*got dict"):
        assert_sensitivity(lambda p, x, is_padding_example: PARAMS, PARAMS, BATCH, bound=1.0)
