"""Copies of a ledger: refused, unless they fork, which keeps the count and changes the keys."""

from __future__ import annotations

import dataclasses
import json
import shutil
import stat

import pytest
from support.ledgers import PLAN, record_of

from bk_jax import privacy
from bk_jax.privacy.place import Place

COPY = "is a copy of a ledger that was written as"


@pytest.fixture(autouse=True)
def _keys_show_what_they_are_made_of(monkeypatch):
    def made_of(secret, number):
        return [(*secret.tolist(), int(number), use) for use in ("noise", "sampling")]

    monkeypatch.setattr(privacy.ledger, "_step_keys", made_of)


@pytest.fixture
def original(tmp_path):
    """A ledger with two steps, and the checkpoint that goes with it."""
    folder = tmp_path / "run"
    folder.mkdir()
    with privacy.open_ledger(folder / "run.ledger", PLAN) as ledger:
        ledger.take(), ledger.take()
        (folder / "checkpoint").write_text(json.dumps(ledger.checkpoint()))
    return folder / "run.ledger"


def copied(original):
    return shutil.copytree(original.parent, original.parent.with_name("copy")) / original.name


def checkpoint_of(path):
    return json.loads(path.with_name("checkpoint").read_text())


def go_on(path, **told):
    return privacy.open_ledger(path, PLAN, checkpoint=checkpoint_of(path), **told)


# --- what is a copy -------------------------------------------------------------------------------


def test_a_copied_folder_is_refused_and_the_original_goes_on(original):
    copy = copied(original)
    with pytest.raises(privacy.LedgerError, match=f"{COPY} {original}"):
        go_on(copy)
    with go_on(original) as ledger:
        assert [step.number for step in ledger] == [2, 3, 4]


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_was_renamed_is_the_same_ledger(original, what):
    secret = record_of(original).key
    if what == "file":
        moved = original.rename(original.with_name("other"))
    else:
        moved = original.parent.rename(original.parent.with_name("other")) / original.name
    with go_on(moved) as ledger:
        assert ledger.take().noise_key == (*secret, 2, "noise")
    assert record_of(moved).place.path == str(moved)


@pytest.mark.parametrize("differs", ["filesystem", "inode", "generation"])
def test_another_file_under_the_same_path_is_a_copy(differs):
    place = Place("run.ledger", filesystem=1, inode=2, generation=3)
    assert place.is_file_of(dataclasses.replace(place, path="other"))
    assert not place.is_file_of(dataclasses.replace(place, **{differs: 7}))


# --- forks ----------------------------------------------------------------------------------------


def test_a_fork_keeps_the_count_and_changes_the_keys(original):
    copy, before = copied(original), record_of(original)
    with go_on(copy, fork=True) as ledger:
        assert ledger.epsilon() == PLAN.epsilon(2)
        forked = list(ledger)
    with go_on(original) as ledger:
        rest = list(ledger)
    assert [step.number for step in forked] == [step.number for step in rest] == [2, 3, 4]
    assert not {step.noise_key[0] for step in forked} & {step.noise_key[0] for step in rest}
    after = record_of(copy)
    assert after.key != before.key
    assert after.name != before.name
    assert [(fork.name, fork.steps) for fork in after.forks] == [(before.name, 2)]
    assert (after.plan, after.steps) == (PLAN, 5)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_two_forks_of_one_copy_have_nothing_in_common(original):
    copies = [shutil.copy(original, original.with_name(name)) for name in "ab"]
    for path in copies:
        go_on(path, fork=True).close()
    first, second = map(record_of, copies)
    assert not set(first.key) & set(second.key)
    assert first.name != second.name


def test_the_key_of_a_fork_can_not_be_computed_from_the_old_one(original):
    record = record_of(original)
    assert record.forked(record.place).key != record.forked(record.place).key


def test_a_weak_generator_does_not_give_two_forks_the_same_keys(original, monkeypatch):
    monkeypatch.setattr("secrets.token_bytes", bytes)
    copies = [shutil.copy(original, original.with_name(name)) for name in "ab"]
    for path in copies:
        with go_on(path, fork=True) as ledger:
            ledger.take()
    assert record_of(copies[0]).key != record_of(copies[1]).key


def test_a_fork_goes_on_without_saying_so_again(original):
    copy = copied(original)
    go_on(copy, fork=True).close()
    with go_on(copy) as ledger:
        ledger.take()
        saved = ledger.checkpoint()
    with privacy.open_ledger(copy, checkpoint=saved) as ledger:
        assert ledger.take().number == 3


def test_a_ledger_may_be_forked_where_it_is(original):
    """For copies that nobody can see, such as the image of a whole disk."""
    before = record_of(original)
    with go_on(original, fork=True) as ledger:
        assert ledger.take().number == 2
    assert record_of(original).key != before.key


def test_a_fork_gives_nothing_up_on_its_own(original):
    with go_on(original) as ledger:
        ledger.take()
    copy = copied(original)
    with pytest.raises(privacy.LedgerError, match=r"has 3 steps on record.*made at step 2"):
        go_on(copy, fork=True)
    with pytest.raises(privacy.LedgerError, match=COPY):
        go_on(copy, forfeit=True)
    with go_on(copy, fork=True, forfeit=True) as ledger:
        assert ledger.take().number == 3


def test_a_checkpoint_of_the_other_branch_is_refused(original):
    copy = copied(original)
    with go_on(original) as ledger:
        ledger.take()
        saved = ledger.checkpoint()
    with pytest.raises(privacy.LedgerError, match="is an old copy"):
        privacy.open_ledger(copy, checkpoint=saved, fork=True)
    go_on(copy, fork=True).close()
    with pytest.raises(privacy.LedgerError, match=r"step 3 of the run that .* left at step 2"):
        privacy.open_ledger(copy, checkpoint=saved)


def test_a_shared_ledger_forks_as_well(original):
    copy, told = copied(original), {"checkpoint": checkpoint_of(original)}
    with pytest.raises(privacy.LedgerError, match=COPY):
        privacy.open_shared_ledger(copy, PLAN, **told)
    with privacy.open_shared_ledger(copy, PLAN, fork=True, **told) as ledger:
        assert ledger.steps == 2
    assert record_of(copy).name == ledger.checkpoint()["ledger"] != record_of(original).name


def test_there_must_be_something_to_fork(tmp_path):
    with pytest.raises(privacy.LedgerError, match="to fork; leave fork out to start one"):
        privacy.open_ledger(tmp_path / "run.ledger", PLAN, fork=True)


def test_forking_again_and_again_ends(original):
    def fork_often():
        for _ in range(200):
            go_on(original, fork=True).close()

    with pytest.raises(privacy.LedgerError, match="do not fork it again and again"):
        fork_often()
    go_on(original).close()


# --- the first format -----------------------------------------------------------------------------


def of_the_first_format(path, **changes):
    """What bk_jax wrote at first: JSON alone."""
    record = record_of(path)
    fields = {"format": 1, "name": record.name, "steps": record.steps, "key": record.key}
    fields |= {"plan": dataclasses.asdict(record.plan)} | changes
    path.write_text(json.dumps(fields, indent=1))


def test_a_ledger_of_the_first_format_goes_on_as_a_fork(original):
    before = record_of(original)
    of_the_first_format(original)
    with pytest.raises(privacy.LedgerError, match=r"of an earlier version.*Pass fork=True"):
        go_on(original)
    assert json.loads(original.read_text())["format"] == 1, "refusing changes nothing"
    with go_on(original, fork=True) as ledger:
        assert ledger.take().number == 2
    assert record_of(original).key != before.key
    with go_on(original, forfeit=True) as ledger:
        assert ledger.take().number == 3


@pytest.mark.parametrize(
    "change",
    [
        {"key": [1] * 7},
        {"key": [1.0] * 8},
        {"key": [2**32] * 8},
        {"key": "12345678"},
        {"steps": 6},
        {"steps": True},
        {"name": None},
        {"more": 1},
        {"plan": None},
    ],
)
def test_a_ledger_of_the_first_format_that_makes_no_sense_is_refused(original, change):
    of_the_first_format(original, **change)
    for fork in (False, True):
        with pytest.raises(privacy.LedgerError, match="cannot be relied on as a ledger"):
            go_on(original, fork=fork)
