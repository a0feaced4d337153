"""The soak, shortened: a run that is killed again and again ends as if it never had been."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.soak import faults, proof, threads

ROOT = Path(__file__).parents[2]
PROVED = "no key was used twice; epsilon and parameters are those of the uninterrupted run"


def soak(*arguments: str) -> list[str]:
    paths = [str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak.run", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout.splitlines()


def test_three_kills_in_two_hundred_steps_change_nothing_but_what_was_forfeited():
    *struck, summary, proved = soak("--steps", "200", "--faults", "3", "--kinds", "kill")
    assert proved == PROVED
    assert len(struck) == 3
    assert summary.startswith("200 steps in 4 processes (3 x kill; ")


def test_a_full_disk_a_read_only_folder_and_a_wrong_clock_lose_no_step_of_the_accounting():
    kinds = ("full disk", "read-only", "clock")
    lines = soak("--steps", "40", "--faults", "3", "--checkpoint-every", "4", "--kinds", *kinds)
    assert lines[-1] == PROVED
    assert [line.partition(": ")[2] for line in lines[:-2]] == list(kinds)


# --- what a proof would find ---


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["life 0", "take 0 a", "life 0", "take 0 b"], "step 0 was handed out after step 0"),
        (["life 0", "take 3 a", "take 2 b"], "step 2 was handed out after step 3"),
        (["life 0", "take 0 a", "take 1 a"], "the key of step 1 had been handed out before"),
    ],
)
def test_a_key_that_is_used_twice_is_found(lines, problem):
    assert proof.read(lines).problems == (problem,)


def test_what_no_checkpoint_had_is_lost():
    story = proof.read(
        ["life 0", "take 0 a", "take 1 b", "take 2 c", "life 2", "take 4 d", "life 5", "end 6"]
    )
    assert story.lost == {2, 3, 5}  # 3 and 5 are on record, but their process died before the log
    assert (story.lives, story.problems) == (3, ())


def test_other_parameters_or_another_epsilon_are_found():
    params = {"w": np.float32([1, 2]), "b": np.float32(0)}
    same = {**params, "epsilon": np.float64(1.5)}
    assert proof.differences(params, same, 1.5) == []
    other = {**same, "w": np.nextafter(params["w"], np.float32(9))}
    (line,) = proof.differences(params, other, 1.5)
    assert line.startswith("w is [1.")
    assert proof.differences(params, same, 2.0) == ["epsilon is 1.5, uninterrupted 2.0"]


# --- faults ---


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), True),
        (ValueError("RESOURCE_EXHAUSTED: ... No space left on device [os_error_code='28']"), True),
        (OSError(errno.EROFS, os.strerror(errno.EROFS)), True),
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), False),
        (ValueError("a checkpoint cannot be read"), False),
    ],
)
def test_only_errors_that_were_switched_on_are_expected(error, expected):
    assert faults.is_expected(error) == expected
    wrapped = RuntimeError("the save failed")
    wrapped.__cause__ = error
    assert faults.is_expected(wrapped) == expected


def test_a_child_sees_what_is_switched_on():
    switches = faults.Switches()
    assert (switches.clock, switches.refused) == (0.0, 0)
    switches.clock, switches.refused = -1e8, errno.EROFS
    assert (switches.clock, switches.refused) == (-1e8, errno.EROFS)


# --- threads ---


def test_threads_take_private_steps_with_the_same_bits():
    workers = threads.Workers(2)
    readings = workers.run(0.5)
    assert workers.wrong == []
    assert min(workers.steps) > 0
    assert len(readings) >= 3


def test_memory_that_grows_and_threads_that_fail_are_found(monkeypatch):
    monkeypatch.setattr(threads, "make_step", lambda number: 1 / 0)
    workers = threads.Workers(2)
    assert workers.run(0.1) == []
    assert "ZeroDivisionError" in workers.wrong[0]
    quiet = threads.Workers(0)
    readings = [100.0 + 5 * i for i in range(20)]
    assert threads.problems_of(quiet, readings, 32.0) == ["memory grew by 90.0 MB"]
    assert threads.problems_of(quiet, readings, 100.0) == []
