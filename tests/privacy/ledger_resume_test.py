"""Going on with a ledger: what goes with its record, and what is refused."""

from __future__ import annotations

import dataclasses
import errno
import json
import os

import jax
import numpy as np
import pytest
from support.ledgers import PLAN, take_all, words

import bk_jax
from bk_jax import privacy
from bk_jax.privacy import ledger_file
from bk_jax.privacy.place import Place


def test_a_resumed_run_gets_the_keys_of_an_uninterrupted_one(tmp_path):
    whole = take_all(tmp_path / "whole", key=bk_jax.random.key(1))
    with privacy.open_ledger(tmp_path / "cut", PLAN, key=bk_jax.random.key(1)) as ledger:
        parts = [ledger.take(), ledger.take()]
        saved = json.loads(json.dumps(ledger.checkpoint()))
    parts += take_all(tmp_path / "cut", checkpoint=saved)
    assert [words(s.noise_key) for s in parts] == [words(s.noise_key) for s in whole]
    assert [words(s.sampling_key) for s in parts] == [words(s.sampling_key) for s in whole]


def test_the_plan_may_be_left_out_when_going_on(path):
    privacy.open_ledger(path, PLAN).close()
    with privacy.open_ledger(path) as ledger:
        assert ledger.plan == PLAN


def test_a_checkpoint_behind_the_record_is_refused_unless_the_steps_are_given_up(path):
    with privacy.open_ledger(path, PLAN) as ledger:
        ledger.take()
        saved = ledger.checkpoint()
        lost = ledger.take()
    with pytest.raises(privacy.LedgerError, match=r"has 2 steps on record.*made at step 1"):
        privacy.open_ledger(path, PLAN, checkpoint=saved)
    with privacy.open_ledger(path, PLAN, checkpoint=saved, forfeit=True) as ledger:
        rest = list(ledger)
    assert [step.number for step in rest] == [2, 3, 4]
    assert words(lost.noise_key) not in {words(step.noise_key) for step in rest}


def test_starting_over_on_a_used_ledger_is_refused(path):
    with privacy.open_ledger(path, PLAN) as ledger:
        ledger.take()
    with pytest.raises(privacy.LedgerError, match="1 steps on record, but no checkpoint was given"):
        privacy.open_ledger(path, PLAN)


def put_an_old_copy_back(path):
    """Into the same file, as `cp` does."""
    with privacy.open_ledger(path, PLAN) as ledger:
        ledger.take()
        old = path.read_bytes()
        ledger.take()
        saved = ledger.checkpoint()
    path.write_bytes(old)
    return saved


def test_old_content_in_the_same_file_does_not_turn_the_count_back(path):
    saved = put_an_old_copy_back(path)
    with privacy.open_ledger(path, PLAN, checkpoint=saved) as ledger:
        assert ledger.take().number == 2


def test_where_the_file_system_has_no_attributes_the_checkpoint_tells_an_old_copy(
    path, monkeypatch
):
    def unsupported(*_):
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(os, "setxattr", unsupported)
    monkeypatch.setattr(os, "getxattr", unsupported)
    saved = put_an_old_copy_back(path)
    for forfeit in (False, True):
        with pytest.raises(privacy.LedgerError, match="is an old copy"):
            privacy.open_ledger(path, PLAN, checkpoint=saved, forfeit=forfeit)


@pytest.mark.parametrize("value", [b"", b"x", b"-1", b"1"])
def test_an_attribute_of_others_changes_nothing(path, value):
    with privacy.open_ledger(path, PLAN) as ledger:
        ledger.take()
    os.setxattr(path, "user.bk_jax.steps", value)
    with privacy.open_ledger(path, PLAN, forfeit=True) as ledger:
        assert ledger.take().number == 1


def test_a_lost_ledger_is_refused(path):
    with privacy.open_ledger(path, PLAN) as ledger:
        saved = ledger.checkpoint()
    path.unlink()
    with pytest.raises(privacy.LedgerError, match="copy that file along"):
        privacy.open_ledger(path, PLAN, checkpoint=saved)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    with privacy.open_ledger(tmp_path / "a", PLAN) as ledger:
        saved = ledger.checkpoint()
    privacy.open_ledger(tmp_path / "b", PLAN).close()
    with pytest.raises(privacy.LedgerError, match="belongs to another ledger"):
        privacy.open_ledger(tmp_path / "b", PLAN, checkpoint=saved)


@pytest.mark.parametrize(
    "checkpoint",
    [{}, {"ledger": 1}, {"ledger": "x", "steps": 0}, {"ledger": 1, "steps": float("inf")}, 7],
)
def test_what_is_no_checkpoint_is_refused(path, checkpoint):
    privacy.open_ledger(path, PLAN).close()
    with pytest.raises(privacy.LedgerError, match=r"must be what Ledger\.checkpoint\(\) returned"):
        privacy.open_ledger(path, PLAN, checkpoint=checkpoint)


def test_a_checkpoint_may_have_been_arrays(path):
    with privacy.open_ledger(path, PLAN) as ledger:
        ledger.take()
        saved = jax.tree.map(np.int32, ledger.checkpoint())
    with privacy.open_ledger(path, PLAN, checkpoint=saved) as ledger:
        assert ledger.steps == 1


def test_another_plan_is_refused_and_the_difference_named(path):
    privacy.open_ledger(path, PLAN).close()
    other = dataclasses.replace(PLAN, noise_multiplier=3.0)
    with pytest.raises(privacy.LedgerError, match=r"\(noise_multiplier: 4.0 -> 3.0\)"):
        privacy.open_ledger(path, other)


def test_a_new_ledger_needs_a_plan_and_an_old_one_keeps_its_key(path):
    with pytest.raises(privacy.LedgerError, match="a new one needs a plan"):
        privacy.open_ledger(path)
    with pytest.raises(TypeError, match=r"with 256 bits, got key<fry>"):
        privacy.open_ledger(path, PLAN, key=jax.random.key(0))
    assert not path.exists()
    privacy.open_ledger(path, PLAN).close()
    with pytest.raises(privacy.LedgerError, match="has a key already"):
        privacy.open_ledger(path, PLAN, key=bk_jax.random.key(0))


def test_a_new_ledger_needs_a_folder(path):
    with pytest.raises(privacy.LedgerError, match=r"there is no folder .* for a new ledger"):
        privacy.open_ledger(path / "run.ledger", PLAN)


def test_a_path_that_is_too_long_for_a_record_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_file, "place_of", lambda path, _: Place("x" * 4000, 1, 1, 1))
    with pytest.raises(privacy.LedgerError, match=r"does not fit into the .* under a shorter path"):
        privacy.open_ledger(tmp_path / "run.ledger", PLAN)
    assert not list(tmp_path.iterdir())
