"""The trainer with noise on a grid."""

from __future__ import annotations

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.fits import ANY_SIZE, DATA, KEY, OPTIMIZER, PARAMS, PLAN, fit, loss_fn

import bk_jax
from bk_jax import mechanisms, privacy, sampling
from bk_jax.training import on_grid

ON_GRID = dataclasses.replace(ANY_SIZE, accountant="rdp_whole", steps=4)


def by_hand(path):
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, **ON_GRID.options())
    private = mechanisms.on_grid(grad_fn, bits=16)
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), PARAMS)
    state = OPTIMIZER.init(params)
    sums_of = jax.jit(
        lambda params, batch: (
            private.clipped_sums(
                params, batch.examples, is_padding_example=batch.is_padding_example
            ).sums
        )
    )
    loader = sampling.Loader(DATA, sampling.PoissonSampler.of(ON_GRID), 4)
    with privacy.open_ledger(path, ON_GRID, key=KEY) as ledger:
        for step in ledger:
            parts = [sums_of(params, b) for b in loader.physical_batches(step.sampling_key)]
            sums = jax.tree.map(lambda *x: sum(x[1:], x[0]), *parts)
            grads = private.release(sums, step.noise_key, like=params)
            updates, state = OPTIMIZER.update(grads, state, params)
            params = optax.apply_updates(params, updates)
    return params


def test_the_trainer_is_the_loop_by_hand_and_resumes(tmp_path):
    """With a stop in between."""
    half = {"stop_at_epsilon": ON_GRID.epsilon(2), "grid_bits": 16}
    assert fit(tmp_path / "fit", plan=ON_GRID, key=KEY, **half).steps == 2
    result = fit(tmp_path / "fit", plan=ON_GRID, grid_bits=16)
    assert (result.steps, result.stopped) == (4, "budget")
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        result.params,
        by_hand(tmp_path / "run.ledger"),
    )


@pytest.mark.parametrize(
    ("plan", "bits", "message"),
    [
        (PLAN, 16, 'make the plan, a PrivacyPlan, with accountant="rdp_whole"'),
        (ON_GRID, 24, "grid_bits=24 leaves room for 111 examples"),
    ],
)
def test_errors(plan, bits, message):
    if bits == 24:
        plan = dataclasses.replace(plan, num_examples=1000, batch_size=60, delta=1e-4)
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, **plan.options())
    with pytest.raises(ValueError, match=re.escape(message)):
        on_grid.check_grid(plan, grad_fn, bits)
