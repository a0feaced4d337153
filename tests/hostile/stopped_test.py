"""Why a run ended: who reads `stopped` must not take a limit of their own for a budget that is spent."""

import io

import jax.numpy as jnp
import numpy as np
import optax
import rich.console

from bk_jax import privacy, training

PLAN = privacy.PrivacyPlan(
    num_examples=20, batch_size=5, steps=4, delta=1e-3, noise_multiplier=2.0, pld_interval=1e-2
)
DATA = np.ones((20, 2), np.float32)


def fit(directory, **options):
    result = training.fit(
        lambda w, x: jnp.sum((x - w) ** 2),
        np.zeros(2, np.float32),
        DATA,
        plan=PLAN,
        optimizer=optax.sgd(0.1),
        directory=directory,
        physical_batch_size=4,
        plot=False,
        console=rich.console.Console(file=io.StringIO()),
        **options,
    )
    return result.stopped, result.steps


def test_each_reason_has_a_name_of_its_own(tmp_path):
    assert fit(tmp_path, stop_at_epsilon=PLAN.epsilon(2)) == ("stop_at_epsilon", 2)
    # a limit that was passed before: nothing is taken, and it is still the limit that says so
    assert fit(tmp_path, stop_at_epsilon=PLAN.epsilon(1)) == ("stop_at_epsilon", 2)
    assert fit(tmp_path) == ("budget", 4)
    # the plan ends where the limit does, and before it: nothing is left, whatever the limit
    assert fit(tmp_path, stop_at_epsilon=PLAN.epsilon()) == ("budget", 4)
    assert fit(tmp_path, stop_at_epsilon=PLAN.epsilon(3)) == ("budget", 4)
