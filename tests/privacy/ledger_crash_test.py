"""A process that ends while it writes its ledger: no step is lost, no key comes twice."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys

import pytest
from support.ledgers import PLAN, recorded_steps, words
from support.process import PACKAGE

import bk_jax
from bk_jax import privacy


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
