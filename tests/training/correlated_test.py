"""The trainer with noise that is correlated over steps: its batches, its noise, and going on."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.fits import DATA, KEY, OPTIMIZER, PARAMS, equal, fit, loss_fn
from support.ledgers import recorded_steps
from support.process import PACKAGE, TESTS

import bk_jax
from bk_jax import mechanisms, privacy, sampling
from bk_jax.sampling.planned import Nobody
from bk_jax.training.checkpoints import place_of_latest

PLAN = privacy.CorrelatedPlan(
    noise=mechanisms.BandedInverse.square_root(3),
    participation=mechanisms.FixedEpochs(8, 4),
    num_examples=60,
    batch_size=15,
    delta=1e-3,
    noise_multiplier=1.0,
    pld_interval=0.05,
)
INVERSE = PLAN.noise
BANDED = mechanisms.BandedToeplitz.square_root(3)
BUFFERED = mechanisms.BufferedToeplitz((0.5, 0.25), (0.25, 0.125))
NOISES = {"inverse": INVERSE, "banded": BANDED, "buffered": BUFFERED}
EVERY_NOISE = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)


def with_noise(noise):
    return dataclasses.replace(PLAN, noise=noise)


def by_hand(path, plan):
    """The loop of docs/mechanisms.md."""
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, **plan.options())
    private, adding = plan.release(grad_fn), sampling.accumulated(grad_fn)
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), PARAMS)
    opt_state, noise_state = OPTIMIZER.init(params), private.init(params)
    with privacy.open_ledger(path, plan, key=KEY) as ledger:
        sampler_at = sampling.sampler_of(plan, ledger.partition_key())
        for step in ledger:
            loader = sampling.Loader(DATA, sampler_at(step.number), 4)
            sums = adding.add_up(params, loader.physical_batches(step.sampling_key)).gradients
            keys = ledger.recent_noise_keys(plan.noise.keys_needed)
            grads, noise_state = private.release(sums, noise_state, keys=keys, step=step.number)
            updates, opt_state = OPTIMIZER.update(grads, opt_state, params)
            params = optax.apply_updates(params, updates)
    return params


@EVERY_NOISE
def test_the_trainer_is_the_loop_by_hand(tmp_path, noise):
    plan = with_noise(noise)
    result = fit(tmp_path / "fit", plan=plan, key=KEY)
    assert (result.steps, result.epsilon, result.stopped) == (8, plan.epsilon(), "budget")
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        result.params,
        by_hand(tmp_path / "run.ledger", plan),
    )


@EVERY_NOISE
def test_a_run_that_stops_and_goes_on_ends_with_the_same_bits(tmp_path, noise):
    plan = with_noise(noise)
    whole = fit(tmp_path / "whole", plan=plan, key=KEY)
    first = fit(tmp_path / "parts", plan=plan, key=KEY, stop_at_epsilon=plan.epsilon(4))
    assert (first.steps, first.stopped) == (4, "stop_at_epsilon")
    last = fit(tmp_path / "parts", plan=plan)
    equal((last.params, last.optimizer_state), (whole.params, whole.optimizer_state))


def flat_loss(params, batch):
    return 0.0 * jnp.sum(params["w"]) * jnp.sum(batch["x"])


def without_gradients(plan):
    """Options of a run whose parameters are the sum of its noise."""
    return {"plan": plan, "key": KEY, "optimizer": optax.sgd(1.0), "loss": flat_loss}


def noise_so_far(folder, plan, counts):
    """Of a run that sees no gradient: what its first steps added, by how many they are."""
    ends = []
    for count in counts:
        cut = {"stop_at_epsilon": plan.epsilon(count)} if count < plan.steps else {}
        ends.append(fit(folder, **without_gradients(plan), **cut).params["w"])
    return ends


def without_the_lost_steps(folder, plan):
    """Where a run ends that loses steps 4 and 5, and with them no part of the noise of 6 and 7."""
    four, six, eight = noise_so_far(folder, plan, (4, 6, 8))
    assert abs(six - four).min() > 1e-3, "what was lost can be told from nothing"
    return four + (eight - six)


@EVERY_NOISE
def test_noise_after_a_crash_is_what_it_would_have_been(tmp_path, noise):
    """Steps 4 and 5 are lost with their checkpoints; their draws stay part of the noise of 6 and 7."""
    plan = with_noise(noise)
    sgd = without_gradients(plan)
    crashed = tmp_path / "crashed"
    fit(crashed, **sgd, stop_at_epsilon=plan.epsilon(4))
    kept = shutil.copytree(crashed / "checkpoints", tmp_path / "kept")
    fit(crashed, **sgd, stop_at_epsilon=plan.epsilon(6))
    shutil.rmtree(crashed / "checkpoints")
    shutil.copytree(kept, crashed / "checkpoints")
    with pytest.raises(privacy.LedgerError, match=r"6 steps on record.*made at step 4"):
        fit(crashed, **sgd)
    result = fit(crashed, **sgd, forfeit=True)
    assert result.epsilon == plan.epsilon()
    expected = without_the_lost_steps(tmp_path / "whole", plan)
    np.testing.assert_allclose(result.params["w"], expected, rtol=1e-4, atol=1e-5)


def kill_before_it_gets_its_name(event, args):
    """Ends this process when all of the checkpoint of step 6 is written but for its name."""
    if event == "os.rename" and str(args[1]).endswith("/checkpoints/6"):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("name", ["inverse", "banded"])
def test_a_run_that_is_killed_goes_on_with_the_noise_that_it_had(tmp_path, name):
    """kill -9: steps 4 and 5 are paid for and lost, and their draws part of the noise of 6 and 7."""
    plan, killed = with_noise(NOISES[name]), tmp_path / "killed"
    process = subprocess.run(
        [sys.executable, __file__, name, str(killed)], capture_output=True, text=True, timeout=600,
        env=os.environ | {"PYTHONPATH": f"{PACKAGE}{os.pathsep}{TESTS}"}, check=False,
    )  # fmt: skip
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert recorded_steps(killed / "run.ledger") == 6
    assert place_of_latest(killed / "checkpoints")["steps"] == 4
    with pytest.raises(privacy.LedgerError, match=r"6 steps on record.*made at step 4"):
        fit(killed, **without_gradients(plan))
    result = fit(killed, **without_gradients(plan), forfeit=True)
    assert (result.steps, result.epsilon) == (8, plan.epsilon())
    expected = without_the_lost_steps(tmp_path / "whole", plan)
    np.testing.assert_allclose(result.params["w"], expected, rtol=1e-4, atol=1e-5)


def test_a_fork_of_correlated_noise_is_refused(tmp_path):
    fit(tmp_path / "a", plan=PLAN, key=KEY, stop_at_epsilon=PLAN.epsilon(4))
    copy = shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(privacy.LedgerError, match="4 steps whose noise is correlated"):
        fit(copy, plan=PLAN, fork=True)


CYCLIC = dataclasses.replace(
    PLAN, noise=BANDED, participation=mechanisms.CyclicPoisson(8, 4, 0.5), batch_size=7.5
)
ONCE = dataclasses.replace(PLAN, participation=mechanisms.SingleParticipation(8), batch_size=7.5)


@pytest.mark.parametrize(("plan", "groups"), [(PLAN, 4), (CYCLIC, 4), (ONCE, 8)])
def test_batches_keep_to_the_participation(plan, groups):
    sampler_at = sampling.sampler_of(plan, jax.random.key(0))
    batches = [set(sampler_at(t).indices(jax.random.key(t)).tolist()) for t in range(8)]
    for s in range(8):
        assert all(not batches[s] & batches[t] for t in range(s) if (s - t) % groups)
    if plan is not CYCLIC:
        assert set.union(*batches[:groups]) == set(range(60))


def test_a_plan_with_cyclic_poisson_batches_trains(tmp_path):
    result = fit(tmp_path, plan=CYCLIC, key=KEY)
    assert (result.steps, result.epsilon) == (8, CYCLIC.epsilon())


def test_nobody_is_in_a_rehearsal():
    nobody = Nobody.of(PLAN)
    assert (nobody.max_batch_size, len(nobody.indices(jax.random.key(0)))) == (None, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 30}, "have 15 on average, but the plan divides by batch_size=30"),
        (
            {"participation": mechanisms.MinSeparation(8, 4, max_participations=1)},
            "8 steps in epochs of 4 are 2 epochs, but MinSeparation(steps=8, separation=4, "
            "max_participations=1) allows an example only 1.",
        ),
    ],
)
def test_batches_that_cannot_be_made(tmp_path, change, message):
    plan = dataclasses.replace(PLAN, **change)
    for make in (
        lambda: fit(tmp_path / "run", plan=plan),
        lambda: sampling.sampler_of(plan, jax.random.key(0)),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            make()
    assert not (tmp_path / "run").exists(), "no ledger before the plan is known to work"


def test_correlated_noise_needs_the_size_of_parts(tmp_path):
    with pytest.raises(ValueError, match="batches of any size need physical_batch_size"):
        fit(tmp_path, plan=PLAN, physical_batch_size=None)


if __name__ == "__main__":
    sys.addaudithook(kill_before_it_gets_its_name)
    options = without_gradients(with_noise(NOISES[sys.argv[1]]))
    fit(Path(sys.argv[2]), **options, checkpoint_every=2)
