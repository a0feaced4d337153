"""The ledger: keys once, and steps recorded before their keys exist."""

from __future__ import annotations

import pytest
from support.ledgers import PLAN, recorded_steps, take_all, words

import bk_jax
from bk_jax import privacy


def test_steps_have_numbers_and_keys_of_their_own(path):
    steps = take_all(path)
    assert [step.number for step in steps] == [0, 1, 2, 3, 4]
    keys = {words(key) for step in steps for key in (step.noise_key, step.sampling_key)}
    assert len(keys) == 10
    assert all(bk_jax.random.is_chacha(step.noise_key) for step in steps)


def test_a_seeded_ledger_repeats_and_two_others_differ(tmp_path):
    paths = [tmp_path / name for name in "abcd"]
    seeded = [take_all(path, key=bk_jax.random.key(3)) for path in paths[:2]]
    fresh = [take_all(path) for path in paths[2:]]
    first = [words(run[0].noise_key) for run in (*seeded, *fresh)]
    assert first[0] == first[1]
    assert len(set(first)) == 3


def test_the_step_is_on_disk_before_its_key_exists(path, monkeypatch):
    with privacy.open_ledger(path, PLAN) as ledger:
        seen = []

        def watched(secret, number):
            seen.append((int(number), recorded_steps(path)))
            return secret, secret

        monkeypatch.setattr(privacy.ledger, "_step_keys", watched)
        ledger.take()
        ledger.take()
    assert seen == [(0, 1), (1, 2)]


def test_taking_more_than_planned_is_refused(path):
    with privacy.open_ledger(path, PLAN) as ledger:
        assert len(list(ledger)) == 5
        assert list(ledger) == []
        with pytest.raises(privacy.LedgerError, match="all 5 steps of the plan are spent"):
            ledger.take()


def test_a_step_can_not_be_taken_twice_or_out_of_order(path):
    with privacy.open_ledger(path, PLAN) as ledger:
        ledger.take(0)
        for number in (0, 2, -1):
            with pytest.raises(
                privacy.LedgerError, match=f"step {number} was asked for, but step 1"
            ):
                ledger.take(number)
        assert ledger.take(1).number == 1


def test_epsilon_so_far(path):
    with privacy.open_ledger(path, PLAN) as ledger:
        assert ledger.epsilon() == 0
        ledger.take()
        assert ledger.epsilon() == PLAN.epsilon(1)


def test_closed_ledgers_give_nothing(path):
    with privacy.open_ledger(path, PLAN) as ledger:
        pass
    with pytest.raises(privacy.LedgerError, match="is closed"):
        ledger.take()
