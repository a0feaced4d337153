"""kill -9 in the middle of a checkpoint: the model loses an interval, the accounting nothing."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rich.console
from support.ledgers import recorded_steps
from support.process import PACKAGE, TESTS

import bk_jax
from bk_jax import privacy, training
from bk_jax.training.checkpoints import Checkpoints, place_of_latest
from bk_jax.training.steps import initial_state

DATA = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
PLAN = privacy.PrivacyPlan(
    num_examples=40, batch_size=8, steps=8, delta=1e-3, noise_multiplier=1.0, pld_interval=0.05
)


def loss_fn(w, x):
    return jnp.mean((x - w) ** 2)


def fit(directory, **options):
    quiet = {"plot": False, "console": rich.console.Console(file=io.StringIO())}
    every = {"checkpoint_every": 2, "report_every": 8, "physical_batch_size": 8}
    run = {"plan": PLAN, "optimizer": optax.sgd(0.1), "key": bk_jax.random.key(5)}
    start = np.zeros(3, np.float32)
    return training.fit(
        loss_fn, start, DATA, directory=directory, **run, **every, **quiet, **options
    )


def kill_before_it_gets_its_name(event, args):
    """Ends this process when all of the checkpoint of step 6 is written but for its name."""
    if event == "os.rename" and str(args[1]).endswith("/checkpoints/6"):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_run_loses_an_interval_and_counts_every_step(tmp_path):
    folder = tmp_path / "killed"
    environment = os.environ | {"PYTHONPATH": f"{PACKAGE}{os.pathsep}{TESTS}"}
    command = [sys.executable, __file__, str(folder)]
    killed = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert recorded_steps(folder / "run.ledger") == 6
    assert place_of_latest(folder / "checkpoints")["steps"] == 4
    assert list(folder.glob("checkpoints/6*")), "killed while it was written"

    with pytest.raises(privacy.LedgerError, match=r"6 steps on record.*made at step 4"):
        fit(folder)
    # A run with the same key that ended after four steps:
    half = fit(tmp_path / "half", stop_at_epsilon=PLAN.epsilon(4))
    copy = shutil.copytree(folder / "checkpoints", tmp_path / "copy")
    np.testing.assert_array_equal(newest(copy), half.params)
    resumed = fit(folder, forfeit=True)
    assert (resumed.steps, resumed.epsilon) == (8, PLAN.epsilon())
    assert not list(folder.glob("checkpoints/*tmp*"))


def newest(folder):
    """The parameters of the newest complete checkpoint."""
    like = initial_state(optax.sgd(0.1), np.zeros(3, np.float32))
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        return checkpoints.restore(like).params


if __name__ == "__main__":
    sys.addaudithook(kill_before_it_gets_its_name)
    fit(Path(sys.argv[1]))
