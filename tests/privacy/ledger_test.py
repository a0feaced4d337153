"""The ledger: keys once, steps recorded first, and nothing lost when a process is killed."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import dataclasses
import errno
import fcntl
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
from support.ledgers import record_of, recorded_steps
from support.process import PACKAGE

import bk_jax
from bk_jax import privacy
from bk_jax.privacy import ledger_file
from bk_jax.privacy.ledger_file import LedgerFile
from bk_jax.privacy.place import Place

PLAN = privacy.PrivacyPlan(
    num_examples=1000, batch_size=100, steps=5, delta=1e-5, noise_multiplier=4, pld_interval=1e-3
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.ledger"


def words(key):
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def take_all(path, **options):
    with privacy.open_ledger(path, PLAN, **options) as ledger:
        return list(ledger)


# --- keys and steps -------------------------------------------------------------------------------


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


# --- going on -------------------------------------------------------------------------------------


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


# --- secrets and other processes ------------------------------------------------------------------


def test_only_the_owner_can_read_the_key_and_checkpoints_do_not_hold_it(path):
    with privacy.open_ledger(path, PLAN) as ledger:
        ledger.take()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        secret = record_of(path).key
        assert len(secret) == 8
        assert not any(str(word) in repr(record_of(path)) for word in secret)
        assert not any(str(word) in json.dumps(ledger.checkpoint()) for word in secret)


def test_a_copy_that_others_may_read_is_hidden_again(path):
    privacy.open_ledger(path, PLAN).close()
    path.chmod(0o644)
    privacy.open_ledger(path, PLAN).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_ledger_that_others_may_read_and_that_is_not_ours_is_refused(path, monkeypatch):
    def forbidden(*_):
        raise PermissionError

    privacy.open_ledger(path, PLAN).close()
    path.chmod(0o644)
    monkeypatch.setattr(os, "fchmod", forbidden)
    with pytest.raises(privacy.LedgerError, match="its owner must run chmod 600 on it"):
        privacy.open_ledger(path, PLAN)


def test_a_file_system_without_locks_is_refused(path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(privacy.LedgerError, match=r"cannot be locked \(No locks available\)"):
        privacy.open_ledger(path, PLAN)
    assert not path.exists()


def test_a_ledger_is_open_once(path):
    with (
        privacy.open_ledger(path, PLAN),
        pytest.raises(privacy.LedgerError, match="open in another process"),
    ):
        privacy.open_ledger(path, PLAN)
    privacy.open_ledger(path, PLAN).close()


def test_a_file_that_is_replaced_while_it_is_written_gives_no_keys(path, monkeypatch):
    write = LedgerFile._write

    def write_and_lose(*arguments):
        write(*arguments)
        path.rename(path.with_name("gone"))

    monkeypatch.setattr(LedgerFile, "_write", write_and_lose)
    with (
        privacy.open_ledger(path, PLAN) as ledger,
        pytest.raises(
            privacy.LedgerError, match="was moved, deleted or replaced while it was open"
        ),
    ):
        ledger.take()


def test_a_file_that_others_write_into_gives_no_keys(path):
    with privacy.open_ledger(path, PLAN) as ledger:
        path.write_bytes(path.read_bytes()[::-1])
        with pytest.raises(privacy.LedgerError, match="was changed by somebody else while it was"):
            ledger.take()


def test_a_refused_ledger_is_not_kept_locked(path):
    with pytest.raises(privacy.LedgerError, match="needs a plan"):
        privacy.open_ledger(path)
    privacy.open_ledger(path, PLAN).close()


def test_a_forked_process_gets_no_keys(path, monkeypatch):
    with privacy.open_ledger(path, PLAN) as ledger:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(privacy.LedgerError, match="before this process was forked"):
            ledger.take()


def test_threads_get_steps_of_their_own(path, monkeypatch):
    """Writing lets other threads run: here the first waits for a second one, which must not get in."""
    write, both = LedgerFile._write, threading.Barrier(2)

    def write_when_another_is_here(*arguments):
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(timeout=0.2)
        write(*arguments)

    with privacy.open_ledger(path, PLAN) as ledger:
        monkeypatch.setattr(LedgerFile, "_write", write_when_another_is_here)
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            steps = [future.result() for future in [threads.submit(ledger.take) for _ in range(2)]]
    assert {step.number for step in steps} == {0, 1}
    assert words(steps[0].noise_key) != words(steps[1].noise_key)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_ledger_can_not_be_copied(path, how):
    with (
        privacy.open_ledger(path, PLAN) as ledger,
        pytest.raises(privacy.LedgerError, match="a copy would hand out the same keys"),
    ):
        how(ledger)


def test_a_ledger_is_open_once_under_all_its_names(path, tmp_path):
    with privacy.open_ledger(path, PLAN) as ledger:
        (tmp_path / "link").symlink_to(path)
        with pytest.raises(privacy.LedgerError, match="open in another process"):
            privacy.open_ledger(tmp_path / "link", PLAN)
        ledger.take()
        saved = ledger.checkpoint()
    with privacy.open_ledger(tmp_path / "link", PLAN, checkpoint=saved) as ledger:
        ledger.take()
    assert (tmp_path / "link").is_symlink()
    assert recorded_steps(path) == 2


# --- crashes --------------------------------------------------------------------------------------


class CrashError(Exception):
    """Stands for the end of the process."""


def crash(monkeypatch, at, calls):
    """Lets the process end at one of some system calls, after it has written half of a page."""

    def crash_at(name, function):
        def wrapped(*arguments):
            if name != at:
                return function(*arguments)
            if name == "pwrite":
                descriptor, page, offset = arguments
                function(descriptor, page[: len(page) // 2], offset)
            raise CrashError

        return wrapped

    for name in calls:
        monkeypatch.setattr(os, name, crash_at(name, getattr(os, name)))


@pytest.mark.parametrize("call", ["pwrite", "setxattr", "fsync"])
def test_a_crash_at_any_point_of_writing_never_loses_a_step_that_was_taken(path, monkeypatch, call):
    ledger = privacy.open_ledger(path, PLAN)
    taken = [words(ledger.take().noise_key)]
    crash(monkeypatch, call, ["pwrite", "setxattr", "fsync"])
    with pytest.raises(CrashError):
        ledger.take()
    monkeypatch.undo()
    with pytest.raises(privacy.LedgerError, match="is closed"):
        ledger.take()
    assert recorded_steps(path) == 2
    with privacy.open_ledger(path, PLAN, forfeit=True) as again:
        taken += [words(step.noise_key) for step in again]
    assert len(set(taken)) == len(taken) == PLAN.steps - 1


@pytest.mark.parametrize("call", ["pwrite", "setxattr", "fsync", "link", "replace"])
def test_a_crash_while_a_ledger_is_made_leaves_none_or_the_one_before(path, monkeypatch, call):
    calls = ["pwrite", "setxattr", "fsync", "replace" if call == "replace" else "link"]
    if call == "replace":
        privacy.open_ledger(path, PLAN, key=bk_jax.random.key(1)).close()
    crash(monkeypatch, call, calls)
    with pytest.raises(CrashError):
        privacy.open_ledger(path, PLAN, fork=call == "replace")
    monkeypatch.undo()
    assert [file.name for file in path.parent.iterdir()] == ["run.ledger"] * (call == "replace")
    with privacy.open_ledger(path, PLAN) as ledger:
        assert ledger.take().number == 0


ENDLESS = """
import sys
import jax, numpy as np
from bk_jax import privacy
with privacy.open_ledger(sys.argv[1], forfeit=True) as ledger:
    for step in ledger:
        print(step.number, *np.asarray(jax.random.key_data(step.noise_key)), flush=True)
"""


def run_and_kill(path, lines):
    """Lets a process take steps until it has printed some, and kills it whatever it is doing."""
    environment = os.environ | {"PYTHONPATH": str(PACKAGE)}
    command = [sys.executable, "-c", ENDLESS, str(path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        head = [process.stdout.readline() for _ in range(lines)]
        os.kill(process.pid, signal.SIGKILL)
        tail = process.stdout.read().splitlines(keepends=True)
    assert process.returncode == -signal.SIGKILL
    return [line for line in head + tail if line.endswith("\n")]


def test_kill_9_never_loses_a_step_or_repeats_a_key(path):
    privacy.open_ledger(path, dataclasses.replace(PLAN, steps=10**6)).close()
    used = []
    for lines in (1, 23):
        used += run_and_kill(path, lines)
        assert int(used[-1].split()[0]) < recorded_steps(path)
    keys = [line.split(maxsplit=1)[1] for line in used]
    assert len(set(keys)) == len(keys) >= 24
    assert recorded_steps(path) <= len(used) + 2  # a kill costs one step at most
