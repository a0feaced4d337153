"""What the trainer refuses, and what a run that breaks off has spent."""

from __future__ import annotations

import dataclasses
import io
import shutil

import jax
import numpy as np
import optax
import pytest
import rich.console
from support.fits import ANY_SIZE, DATA, KEY, OPTIMIZER, PARAMS, PLAN, fit, loss_fn
from support.ledgers import recorded_steps

from bk_jax import privacy, training
from bk_jax.training.checkpoints import place_of_latest


def steps_in(folder):
    path = folder / "run.ledger"
    return recorded_steps(path) if path.exists() else 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"optimizer": 0.1}, TypeError, "must be an optax.GradientTransformation"),
        ({"noise_multiplier": 0.1}, ValueError, "noise_multiplier is decided by the plan"),
        ({"has_aux": True}, ValueError, "has_aux is decided by the plan and by fit"),
        ({"prng_argnum": 1}, ValueError, r"prng_argnum must be 2, .*loss_fn\(params, batch, key\)"),
        ({"checkpoint_every": 0}, ValueError, "checkpoint_every must be a whole number"),
        ({"report_every": 2.5}, TypeError, "report_every must be a whole number"),
        ({"stop_at_epsilon": -1}, ValueError, "stop_at_epsilon must be finite and above 0"),
        ({"loss": lambda params, batch: params["nothing"]}, KeyError, "nothing"),
        ({"plan": ANY_SIZE, "physical_batch_size": None}, ValueError, "need physical_batch_size"),
        ({"plan": dataclasses.replace(PLAN, num_examples=61)}, ValueError, "the data has 60"),
    ],
)
def test_mistakes_cost_nothing(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        fit(tmp_path, **options)
    assert steps_in(tmp_path) == 0


def test_params_that_are_not_arrays_are_named(tmp_path):
    options = {"plan": PLAN, "optimizer": OPTIMIZER, "directory": tmp_path}
    with pytest.raises(TypeError, match=r"at \['f'\] there is a function"):
        training.fit(loss_fn, {"f": fit}, DATA, **options)


def test_an_evaluate_that_fails_loses_nothing(tmp_path):
    with pytest.raises(TypeError, match="evaluate must return a mapping from names to numbers"):
        fit(tmp_path, evaluate=lambda _: 0.5, report_every=2)
    assert steps_in(tmp_path) == 2
    assert place_of_latest(tmp_path / "checkpoints")["steps"] == 2


class Failing:
    """A data set that breaks in the middle of a step."""

    def __init__(self, reads):
        self.reads = reads

    def __len__(self):
        return 60

    def __getitem__(self, index):
        self.reads -= 1
        if self.reads == 0:
            raise OSError("the disk is gone")
        return {"x": DATA["x"][index], "y": DATA["y"][index]}


def test_a_step_that_breaks_off_is_counted_and_must_be_given_up(tmp_path):
    quiet = {"plot": False, "console": rich.console.Console(file=io.StringIO())}
    run = {"plan": PLAN, "optimizer": OPTIMIZER, "directory": tmp_path} | quiet
    with pytest.raises(OSError, match="the disk is gone"):
        training.fit(loss_fn, PARAMS, Failing(40), key=KEY, checkpoint_every=1, **run)
    taken = steps_in(tmp_path)
    assert 1 < taken < 8
    with pytest.raises(privacy.LedgerError, match=f"{taken} steps on record.*step {taken - 1}"):
        training.fit(loss_fn, PARAMS, Failing(-1), **run)
    result = training.fit(loss_fn, PARAMS, Failing(-1), forfeit=True, **run)
    assert (result.steps, result.epsilon) == (8, PLAN.epsilon())


def test_another_optimizer_than_the_checkpoint_is_refused(copied):
    with pytest.raises(ValueError, match=r"at optimizer_state/0/count it has int32\[\]"):
        fit(copied, optimizer=optax.sgd(0.1), fork=True)
    with pytest.raises(ValueError, match=r"at optimizer_state/0/trace/b it has nothing"):
        fit(copied, optimizer=optax.sgd(0.1, momentum=0.9))


def test_another_plan_than_the_ledger_is_refused(copied):
    with pytest.raises(privacy.LedgerError, match=r"plan differs.*noise_multiplier: 1.0 -> 0.5"):
        fit(copied, plan=dataclasses.replace(PLAN, noise_multiplier=0.5), fork=True)


def test_checkpoints_without_their_ledger_are_refused(copied):
    (copied / "run.ledger").unlink()
    with pytest.raises(privacy.LedgerError, match="copy that file along with the checkpoint"):
        fit(copied)


def test_a_copied_run_goes_on_as_a_fork_with_noise_of_its_own(tmp_path):
    fit(tmp_path / "run", stop_at_epsilon=PLAN.epsilon(3))
    copy = shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with pytest.raises(privacy.LedgerError, match="is a copy of a ledger"):
        fit(copy)
    fork, original = fit(copy, fork=True), fit(tmp_path / "run")
    assert fork.steps == original.steps == 8
    assert [point.step for point in fork.history] == [point.step for point in original.history]
    assert not np.array_equal(fork.params["w"], original.params["w"])


def test_several_processes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match=r"fit is for one process; docs/devices\.md has the loop"):
        fit(tmp_path)
