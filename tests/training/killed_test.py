"""kill -9 in the middle of a checkpoint: the model loses an interval, the accounting nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import orbax.checkpoint as ocp
from support.process import PACKAGE

from bk_jax.training.checkpoints import place_of_latest

PROGRAM = """
import io, os, signal, sys
import jax.numpy as jnp, numpy as np, optax, rich.console
import bk_jax
from bk_jax import privacy, training

directory, how = sys.argv[1:]
data = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
plan = privacy.PrivacyPlan(
    num_examples=40, batch_size=8, steps=8, delta=1e-3, noise_multiplier=1.0, pld_interval=0.05
)

def kill_before_the_last_rename(event, args):
    if event == "os.rename" and str(args[1]).endswith("/checkpoints/6"):
        os.kill(os.getpid(), signal.SIGKILL)

if how == "kill":
    sys.addaudithook(kill_before_the_last_rename)
try:
    result = training.fit(
        lambda w, x: jnp.mean((x - w) ** 2), np.zeros(3, np.float32), data,
        plan=plan, optimizer=optax.sgd(0.1, momentum=0.9), directory=directory,
        physical_batch_size=8, checkpoint_every=2, report_every=4, plot=False,
        key=bk_jax.random.key(5), forfeit=how == "forfeit",
        stop_at_epsilon=plan.epsilon(4) if how == "half" else None,
        console=rich.console.Console(file=io.StringIO()),
    )
    print(np.asarray(result.params).tolist(), result.steps, result.epsilon == plan.epsilon())
except privacy.LedgerError as error:
    print(error)
"""


def run(directory, how):
    environment = os.environ | {"PYTHONPATH": str(PACKAGE)}
    command = [sys.executable, "-c", PROGRAM, str(directory), how]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_killed_run_loses_an_interval_and_counts_every_step(tmp_path):
    folder = tmp_path / "run"
    killed = run(folder, "kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert json.loads((folder / "run.ledger").read_text())["steps"] == 6
    assert place_of_latest(folder / "checkpoints")["steps"] == 4
    assert list(folder.glob("checkpoints/6*")), "killed while it was written"
    kept = restored(folder / "checkpoints" / "4")

    refused = run(folder, "resume")
    assert "6 steps on record, but the checkpoint was made at step 4" in refused.stdout
    resumed = run(folder, "forfeit")
    _, steps, spent = resumed.stdout.rsplit(maxsplit=2)
    assert (steps, spent) == ("8", "True"), resumed.stderr
    assert not list(folder.glob("checkpoints/*tmp*"))

    half = run(tmp_path / "half", "half")  # a run with the same key that ended after four steps
    assert json.loads(half.stdout.rsplit(maxsplit=2)[0]) == kept


def restored(folder):
    with ocp.StandardCheckpointer() as checkpointer:
        return np.asarray(checkpointer.restore(folder / "state")["params"]).tolist()
