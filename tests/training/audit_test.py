"""Canaries in a run of the trainer: a correct run is not refuted, and broken ones are."""

from __future__ import annotations

import io
import re
import shutil

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rich.console

import bk_jax
from bk_jax import clip, grad_fn, privacy, training
from bk_jax.privacy import ledger
from bk_jax.training.canaries import Without

COUNT, PLAIN = 400, 10
DATA = np.zeros((PLAIN, COUNT), np.float32)
ROWS = 20 * np.eye(COUNT, dtype=np.float32)  # each canary moves a parameter of its own
KEY = bk_jax.random.key(11)
STEPS = 6


def loss_fn(w, x):
    return -jnp.sum(x @ w)


def run(
    directory, chance=1.0, data=DATA, rows=ROWS, key=KEY, steps=STEPS, multiplier=3.0, **audited
):
    """The audit and what was printed; `until` steps are taken, and `audit=False` leaves it out."""
    until, is_audited = audited.pop("until", steps), audited.pop("audit", True)
    options = {"fork": audited.pop("fork", False)}
    if is_audited:
        options["audit"] = training.Canaries(rows, **audited)
    else:
        data = np.concatenate([data, rows])
    plan = privacy.PrivacyPlan(
        num_examples=PLAIN + COUNT,
        batch_size=chance * (PLAIN + COUNT),
        steps=steps,
        delta=1e-5,
        noise_multiplier=multiplier,
        accountant="rdp",
    )
    output = io.StringIO()
    result = training.fit(
        loss_fn,
        np.zeros(COUNT, np.float32),
        data,
        plan=plan,
        optimizer=optax.sgd(1.0),
        directory=directory,
        physical_batch_size=PLAIN + COUNT,
        stop_at_epsilon=plan.epsilon(until),
        plot=False,
        console=rich.console.Console(file=output),
        key=key,
        **options,
    )
    return result.audit, output.getvalue()


def spread(rows):
    """Large for a canary that some steps have and others have not."""
    return np.ptp(rows, axis=0)


@pytest.mark.parametrize("observe", ["loss", "updates"])
def test_a_correct_run_is_not_refuted(tmp_path, observe):
    audit, printed = run(tmp_path, observe=observe)
    assert 0.3 < audit.epsilon < audit.spent
    assert audit.epsilon < audit.gaussian_epsilon < audit.spent
    assert 0.2 < audit.mu < np.sqrt(STEPS) / 3.0
    assert audit.gaussian_epsilon < audit.estimated_epsilon
    assert not audit.is_refuted
    assert "not refuted" in printed
    assert 150 < audit.included.sum() < 250


def test_both_observations_are_the_same_for_a_linear_loss(tmp_path):
    scores = [run(tmp_path / o, observe=o)[0].scores for o in ("loss", "updates")]
    np.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-3)


def test_too_little_noise_is_found(tmp_path, monkeypatch):
    honest = grad_fn.DPValueAndGrad.noise_stddev
    monkeypatch.setattr(grad_fn.DPValueAndGrad, "noise_stddev", lambda self: honest(self) / 20)
    audit, printed = run(tmp_path, multiplier=20.0)
    assert audit.is_refuted
    assert audit.gaussian_epsilon > audit.spent
    assert "REFUTED" in printed


def test_missing_clipping_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(
        clip.Clipping, "factors", lambda self, *a, **k: jnp.ones_like(HONEST(self, *a, **k))
    )
    assert run(tmp_path, multiplier=20.0)[0].is_refuted


HONEST = clip.Clipping.factors


def test_a_key_that_all_steps_share_is_found(tmp_path, monkeypatch):
    """The noise cancels between steps that have a canary and steps that have not."""
    honest = run(tmp_path / "honest", 0.5, observe="updates", score=spread, multiplier=20.0)[0]
    assert not honest.is_refuted
    take = ledger.Ledger.take

    def shared(self):
        return take(self)._replace(noise_key=KEY)

    monkeypatch.setattr(ledger.Ledger, "take", shared)
    broken = run(tmp_path / "broken", 0.5, observe="updates", score=spread, multiplier=20.0)[0]
    assert broken.is_refuted


def test_a_resumed_run_has_the_same_canaries(tmp_path):
    first, _ = run(tmp_path)
    again, _ = run(tmp_path, key=None)
    np.testing.assert_array_equal(first.included, again.included)
    np.testing.assert_array_equal(first.scores, again.scores)
    assert not np.array_equal(
        first.included, run(tmp_path / "other", key=None, steps=1)[0].included
    )


@pytest.mark.parametrize("score", [None, spread])
def test_a_resumed_run_has_the_bound_of_one_that_was_never_stopped(tmp_path, score):
    """And so has one that is opened again after its end."""
    options = {"observe": "updates", "score": score}
    whole, _ = run(tmp_path / "whole", **options)
    half, _ = run(tmp_path / "parts", until=3, **options)
    assert (half.seen, half.unseen) == (3, 0)
    for _ in range(2):
        resumed, printed = run(tmp_path / "parts", key=None, **options)
        np.testing.assert_array_equal(resumed.scores, whole.scores)
        assert resumed[:4] == whole[:4]
        assert (resumed.seen, resumed.unseen) == (STEPS, 0)
        assert "not refuted\n" in printed.replace("\n ", " ")


def test_steps_that_nobody_observed_are_told(tmp_path):
    """A checkpoint of a run without the audit, or with another number of canaries, has no rows."""
    run(tmp_path, audit=False, until=STEPS - 2)
    audit, printed = run(tmp_path, key=None, observe="updates", until=STEPS - 1)
    assert (audit.seen, audit.unseen) == (1, STEPS - 2)
    again, _ = run(tmp_path, key=None, observe="updates")
    assert (again.seen, again.unseen) == (2, STEPS - 2)
    assert audit.describe().endswith("not refuted by 1 of 5 steps; the others were not observed")
    assert "the others were not observed" in " ".join(printed.split())


def test_there_is_no_verdict_from_nothing(tmp_path):
    run(tmp_path, audit=False)
    audit, printed = run(tmp_path, key=None, observe="updates")
    assert audit.epsilon == 0 == audit.seen
    assert audit.describe() == "audit: no verdict, as none of 6 steps was observed"
    assert "refuted" not in printed


def test_a_fork_flips_new_coins_and_starts_anew(tmp_path):
    first, _ = run(tmp_path / "first", until=4, observe="updates")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    fork, _ = run(tmp_path / "second", key=None, fork=True, observe="updates")
    assert not np.array_equal(fork.included, first.included)
    assert (fork.seen, fork.unseen) == (2, 4)


def test_canaries_that_are_out_are_never_sampled():
    class All:
        num_examples, max_batch_size = 5, 9

        def indices(self, key):
            return np.arange(5)

    sampler = Without(All(), np.asarray([True, False, True]))
    assert sampler.indices(None).tolist() == [0, 1, 2, 4]
    assert (sampler.num_examples, sampler.max_batch_size) == (5, 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observe": "norms"}, "observe must be one of 'loss', 'updates'; got 'norms'"),
        ({"confidence": 1.0}, "confidence must be between 0 and 1, got 1.0"),
        ({"rows": {"x": ROWS}}, "canaries must be a tree of arrays like the data"),
        ({"rows": ROWS[1:]}, "the data has 409 examples, but the plan was made for 410"),
    ],
)
def test_errors(tmp_path, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        run(tmp_path, **options)
