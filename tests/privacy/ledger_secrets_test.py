"""Secrets of a ledger, and other processes, threads and names of the same file."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import errno
import fcntl
import json
import os
import pickle
import stat
import threading

import pytest
from support.ledgers import PLAN, record_of, recorded_steps, words

from bk_jax import privacy
from bk_jax.privacy.ledger_file import LedgerFile


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
