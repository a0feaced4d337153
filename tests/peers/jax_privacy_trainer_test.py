"""jax_privacy's own `DPTrainer`, with banded matrix factorization, on our gradients.

The version on PyPI (2.0.0) has no such trainer, and these tests are skipped there. They run with a later
one on PYTHONPATH; docs/jax_privacy.md has what they showed.
"""

import itertools
import os
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bk_jax.interop import jax_privacy as interop

training = pytest.importorskip(
    "jax_privacy.training", reason="jax_privacy has no DPTrainer in the version on PyPI (2.0.0)"
)

# jax_privacy calls it itself.
pytestmark = pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated:DeprecationWarning")

STEPS, N, D = 8, 256, 12
RNG = np.random.default_rng(0)
DATA = {
    "x": (RNG.normal(size=(N, D)) * np.geomspace(1, 9, N)[:, None]).astype(np.float32),
    "y": RNG.normal(size=(N, 1)).astype(np.float32),
}


def params_of(*widths):
    pairs = itertools.pairwise(widths)
    return [(RNG.normal(size=p) / p[0] ** 0.5).astype(np.float32) for p in pairs]


def loss_fn(params, batch, key):
    x = batch["x"]
    for w in params[:-1]:
        x = jnp.tanh(x @ w)
    kept = jax.random.bernoulli(key, 0.9, x.shape[-1:])
    logits = (x * kept) @ params[-1]
    return jnp.mean((logits - batch["y"]) ** 2), {"logits": logits}


def trainer_of(config):
    from jax_privacy.execution_plan import PerformanceFlags

    flags = PerformanceFlags(noise_seed=1)
    return training.DPTrainer(
        config=config, performance_flags=flags, loss_fn=loss_fn, optimizer=optax.adam(0.01)
    )


def banded(**options):
    from jax_privacy.execution_plan import BandMFConfig

    return BandMFConfig(
        iterations=STEPS, strategy=np.asarray([1.0, 0.5, 0.25]), noise_multiplier=0.5,
        expected_participations=1.0, normalize_by=32.0, **options,
    )  # fmt: skip


def fit(config, params):
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", interop.HandedOverWarning)
        state = trainer_of(config).fit(
            DATA, params, rng_or_seed=0, callback=lambda step, state, aux: seen.append(aux)
        )
    return state, seen


@pytest.mark.parametrize("unit", [True, False])
def test_the_result_is_its_own_to_rounding(unit):
    config, params = banded(l2_clip_norm=2.0, rescale_to_unit_norm=unit), params_of(D, 16, 1)
    got, got_aux = fit(interop.GradientsOfBkJax(config), params)
    expected, aux = fit(config, params)
    assert int(got.step) == STEPS
    for a, b in zip(jax.tree.leaves(got.params), jax.tree.leaves(expected.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    for a, b in zip(jax.tree.leaves(got_aux), jax.tree.leaves(aux), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert not np.allclose(got.params[0], params[0], atol=1e-2)


@pytest.mark.skipif("BK_JAX_TIME_TRAINER" not in os.environ, reason="a measurement, not a test")
def test_time_of_a_step(capsys):
    """BK_JAX_TIME_TRAINER=1: medians of alternating steps, on four layers of 256 x 256.

    Seconds of the processor, in all threads: what else runs on the machine counts little.
    """
    params, rows, key = params_of(D, *[256] * 5, 1), 64, jax.random.key(0)
    batch = {name: column[:rows] for name, column in DATA.items()}
    config = banded(l2_clip_norm=2.0)
    times = {}
    trainers = {"bk_jax": trainer_of(interop.GradientsOfBkJax(config)), "own": trainer_of(config)}
    for _ in range(8):
        for name, trainer in trainers.items():
            state = trainer.init(jax.tree.map(jnp.array, params))
            jax.block_until_ready(state)
            start = time.process_time()
            jax.block_until_ready(trainer.train_step(state, batch, np.zeros(rows, bool), key))
            times.setdefault(name, []).append(time.process_time() - start)
    middle = {name: float(np.median(seconds[2:])) for name, seconds in times.items()}
    with capsys.disabled():
        print(f"\n{middle}, ratio {middle['own'] / middle['bk_jax']:.2f}")
