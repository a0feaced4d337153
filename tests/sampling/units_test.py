"""Units: a user with several examples is clipped as one."""

from __future__ import annotations

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import bk_jax
from bk_jax import sampling


@hypothesis.given(
    owners=st.lists(st.integers(0, 5), min_size=1, max_size=20), rows=st.integers(1, 5)
)
def test_every_user_has_their_first_examples(owners, rows):
    data = {"x": np.arange(len(owners)), "y": np.arange(len(owners) * 2).reshape(-1, 2)}
    units = sampling.group_by_user(data, owners, rows)
    for unit, owner in enumerate(sorted(set(owners))):
        own = [i for i, each in enumerate(owners) if each == owner]
        kept = own[:rows]
        padded = kept + [own[0]] * (rows - len(kept))
        np.testing.assert_array_equal(units.examples["x"][unit], padded)
        np.testing.assert_array_equal(units.examples["y"][unit], data["y"][padded])
        np.testing.assert_array_equal(units.is_padding[unit], np.arange(rows) >= len(kept))
    assert len(units.is_padding) == len(set(owners))


@pytest.mark.parametrize(
    ("data", "owners", "rows", "message"),
    [
        (np.zeros(3), [1, 2], 1, r"2 user_ids, but an array of the data has shape \(3,\)"),
        (np.zeros(0), [], 1, "one id per example"),
        (np.zeros(1), [1], 0, "max_examples must be a whole number of at least 1"),
    ],
)
def test_data_that_does_not_fit_is_refused(data, owners, rows, message):
    with pytest.raises(ValueError, match=message):
        sampling.group_by_user(data, owners, rows)


def losses(w, x):
    return x * w


@pytest.mark.parametrize(("reduction", "expected"), [("mean", [4.0, 3.0]), ("sum", [8.0, 9.0])])
def test_a_unit_is_clipped_as_a_whole(reduction, expected):
    units = sampling.group_by_user(
        np.asarray([3.0, 5.0, 3.0, 3.0, 3.0], np.float32), [0, 0, 1, 1, 1], 4
    )
    loss_fn = sampling.unit_loss(losses, reduction)
    grad_fn = bk_jax.dp_value_and_grad(
        loss_fn, keep_batch_dim=False, noise_multiplier=0.0, l2_clip_norm=6.0, return_stats=True
    )
    _, grad, stats = jax.jit(grad_fn)(np.float32(1), units)
    np.testing.assert_allclose(stats.norms, expected, rtol=1e-5)
    np.testing.assert_allclose(grad, np.minimum(expected, 6.0).sum(), rtol=1e-5)


def test_one_user_more_moves_the_sum_by_the_clip_norm_however_many_examples_they_have():
    units = sampling.group_by_user(np.full(9, 1e3, np.float32), [0] * 8 + [1], 8)
    grad_fn = bk_jax.clipped_value_and_grad(sampling.unit_loss(losses), keep_batch_dim=False)
    step = jax.jit(grad_fn)
    both, one = (
        step(np.float32(1), units, is_padding_example=np.asarray(mask))[1]
        for mask in ([False, False], [True, False])
    )
    assert float(both - one) <= 1.0
    np.testing.assert_allclose(both - one, 1.0, rtol=1e-5)


def test_an_unknown_reduction_is_refused():
    with pytest.raises(ValueError, match="reduction must be one of 'mean', 'sum'; got 'max'"):
        sampling.unit_loss(losses, "max")


def test_a_loss_that_is_already_a_mean_is_refused():
    loss_fn = sampling.unit_loss(lambda w, x: jnp.mean(w * x))
    unit = sampling.Units(jnp.ones(3), jnp.zeros(3, bool))
    with pytest.raises(
        ValueError, match=r"one loss for each of the 3 rows of a unit, got shape \(\)"
    ):
        loss_fn(1.0, unit)
