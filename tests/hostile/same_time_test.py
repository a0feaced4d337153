"""Processes and threads that take from one ledger at the same time."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import fcntl
import itertools
import os
import subprocess
import sys
import threading

import pytest
from support.process import PACKAGE

from bk_jax import privacy
from hostile.runs import PLAN

pytestmark = pytest.mark.usefixtures("visible_keys")

ONE_OF_TWO = """
import itertools, sys, time
from bk_jax import privacy

privacy.ledger._step_keys = lambda secret, number: [int(number), int(number)]
print("ready", flush=True)
sys.stdin.readline()
left = True
while left:
    try:
        with privacy.open_ledger(sys.argv[1], forfeit=True) as ledger:
            for step in itertools.islice(ledger, 3):
                print(step.noise_key, flush=True)
            left = ledger.steps < ledger.plan.steps
    except privacy.LedgerError as error:
        assert "is open in another process" in str(error), error
    time.sleep(0.001)  # now the other one
"""


def test_two_processes_share_out_the_steps(tmp_path):
    path, steps = tmp_path / "run.ledger", 90
    privacy.open_ledger(path, dataclasses.replace(PLAN, steps=steps)).close()
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(started(ONE_OF_TWO, path)) for _ in range(2)]
        assert [process.stdout.readline() for process in both] == ["ready\n"] * 2
        for process in both:
            process.stdin.write("go\n")
            process.stdin.flush()
        taken = [int(line) for process in both for line in process.stdout]
        assert [process.wait() for process in both] == [0, 0]
    assert sorted(taken) == list(range(steps))


def started(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(PACKAGE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_threads_share_out_the_steps_of_one_ledger_and_of_one_path(run):
    plan = dataclasses.replace(PLAN, steps=60)
    path = run.path.with_name("threads.ledger")
    taken = []

    def from_one(ledger):
        taken.extend(step.noise_key for step in (ledger.take() for _ in range(5)))

    def from_its_own(_):
        left = True
        while left:
            with (
                contextlib.suppress(privacy.LedgerError),
                privacy.open_ledger(path, forfeit=True) as ledger,
            ):
                taken.extend(step.noise_key for step in itertools.islice(ledger, 1))
                left = ledger.steps < plan.steps

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        with privacy.open_ledger(path, plan) as ledger:
            list(threads.map(from_one, [ledger] * 4))
        list(threads.map(from_its_own, range(4)))
    assert len(set(taken)) == len(taken) == 60


def test_where_locks_do_nothing_a_second_opener_is_noticed(tmp_path, monkeypatch):
    """As on a network file system that is mounted without locks."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    path = tmp_path / "run.ledger"
    with privacy.open_ledger(path, PLAN) as first, privacy.open_ledger(path, PLAN) as second:
        assert second.take().number == 0
        with pytest.raises(privacy.LedgerError, match="was changed by somebody else"):
            first.take()
        assert second.take().number == 1


def test_a_file_that_is_replaced_before_it_is_locked_is_not_opened(tmp_path, monkeypatch):
    path, lock = tmp_path / "run.ledger", fcntl.flock
    privacy.open_ledger(path, PLAN).close()

    def lock_too_late(*arguments):
        path.replace(tmp_path / "other")
        lock(*arguments)

    monkeypatch.setattr(fcntl, "flock", lock_too_late)
    with pytest.raises(privacy.LedgerError, match="was moved, deleted or replaced"):
        privacy.open_ledger(path, PLAN, fork=True)
    assert os.listdir(tmp_path) == ["other"]


def test_of_two_that_start_a_ledger_one_gets_it(tmp_path, monkeypatch):
    link, both = os.link, threading.Barrier(2)

    def when_both_are_here(*arguments):
        both.wait()
        link(*arguments)

    monkeypatch.setattr(os, "link", when_both_are_here)
    path = tmp_path / "run.ledger"
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(privacy.open_ledger, path, PLAN) for _ in range(2)]
    errors = [future.exception() for future in futures]
    (ledger,) = [future.result() for future in futures if future.exception() is None]
    assert any("was started by another process at the same time" in str(e) for e in errors)
    assert ledger.take().number == 0
    ledger.close()
    assert os.listdir(tmp_path) == ["run.ledger"]


FORKED = """
import os, sys, warnings
from bk_jax import privacy

warnings.simplefilter("ignore")  # JAX does not want to be forked
privacy.ledger._step_keys = lambda secret, number: [int(number), int(number)]
path = sys.argv[1]

def refused(call, why):
    try:
        call()
    except privacy.LedgerError as error:
        assert why in str(error), error
    else:
        raise SystemExit("should have been refused")

ledger = privacy.open_ledger(path)
until, then = os.pipe()
if os.fork() == 0:
    refused(ledger.take, "before this process was forked")
    ledger.close()  # as a `with` statement does
    os._exit(0)
assert os.wait()[1] == 0
refused(lambda: privacy.open_ledger(path), "is open in another process")
assert ledger.take().number == 0
if os.fork() == 0:
    os.close(then)
    os.read(until, 1)  # a worker that lives on with the descriptors of its parent
    os._exit(0)
ledger.close()
with privacy.open_ledger(path, forfeit=True) as ledger:
    assert ledger.take().number == 1
"""


def test_forked_processes_neither_get_keys_nor_give_the_lock_away_nor_keep_it(tmp_path):
    path = tmp_path / "run.ledger"
    privacy.open_ledger(path, PLAN).close()
    with started(FORKED, path) as process:
        assert process.wait(timeout=120) == 0
