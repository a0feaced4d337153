"""The trainer: what it trains, what it spends, when it stops, and what it leaves behind."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rich.console
from support.ledgers import recorded_steps

import bk_jax
from bk_jax import privacy, sampling, training
from bk_jax.training.checkpoints import place_of_latest
from bk_jax.training.history import Point
from bk_jax.training.plot import draw
from bk_jax.training.progress import Progress
from bk_jax.training.recorder import Recorder
from bk_jax.training.steps import Seen

DATA = {
    "x": np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32),
    "y": np.random.default_rng(1).integers(0, 2, 60).astype(np.float32),
}
PARAMS = {"w": np.zeros(4, np.float32), "b": 0.0}  # a Python number has a weak type
OPTIMIZER = optax.adam(0.1)
PNG = b"\x89PNG\r\n\x1a\n"
PLAN = privacy.PrivacyPlan(
    num_examples=60,
    batch_size=8,
    steps=8,
    delta=1e-3,
    noise_multiplier=1.0,
    max_batch_size=32,
    pld_interval=0.05,
)
KEY = bk_jax.random.key(3)
ANY_SIZE = dataclasses.replace(PLAN, max_batch_size=None)


@pytest.fixture(autouse=True)
def _eager_operations_are_compiled_once():
    with jax.check_tracer_leaks(False):
        yield


def loss_fn(params, batch):
    logits = batch["x"] @ params["w"] + params["b"]
    return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, batch["y"]))


def fit(directory, loss=loss_fn, plan=PLAN, **options):
    quiet = {"console": rich.console.Console(file=io.StringIO()), "plot": False}
    if plan.max_batch_size is None:
        options = {"physical_batch_size": 4} | options
    options = {"optimizer": OPTIMIZER, "checkpoint_every": 3} | quiet | options
    return training.fit(loss, PARAMS, DATA, plan=plan, directory=directory, **options)


def equal(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def with_dropout(params, batch, key, *, frozen):
    keep = jax.random.bernoulli(key, 0.5, batch["x"].shape)
    batch = {"x": jnp.where(keep, batch["x"], 0), "y": batch["y"]}
    return loss_fn(params | {"b": params["b"] + frozen}, batch)


OFFSET = np.float32(0.5)


def grads_with_dropout(plan):
    """`(params, step) -> grads` by hand: a step's key for the loss comes of its sampling key."""
    grad_fn = bk_jax.dp_value_and_grad(with_dropout, prng_argnum=2, **plan.options())
    loader = sampling.Loader(DATA, sampling.PoissonSampler.of(plan), 4)

    @jax.jit
    def as_one(params, batch, loss_key, *, key, frozen):
        examples, padding = batch
        return grad_fn(
            params, examples, loss_key, key=key, is_padding_example=padding, frozen=frozen
        )

    in_parts = (sampling.accumulated(grad_fn), loader.physical_batches)
    noisy_grad, batch_of = (as_one, loader.batch) if plan.max_batch_size else in_parts

    def grads(params, step):
        batch, loss_key = batch_of(step.sampling_key), jax.random.fold_in(step.sampling_key, 2)
        return noisy_grad(params, batch, loss_key, key=step.noise_key, frozen=OFFSET)[1]

    return grads


@pytest.mark.parametrize("plan", [PLAN, ANY_SIZE], ids=["one program", "in parts"])
def test_the_loss_gets_a_key_of_every_step_and_its_further_arguments(tmp_path, plan):
    plan = dataclasses.replace(plan, steps=2)
    run = {"plan": plan, "key": KEY, "optimizer": optax.sgd(1.0), "prng_argnum": 2}
    result = fit(tmp_path / "fit", with_dropout, loss_kwargs={"frozen": OFFSET}, **run)
    params, grads = jax.tree.map(np.float32, PARAMS), grads_with_dropout(plan)
    with privacy.open_ledger(tmp_path / "by_hand", plan, key=KEY) as ledger:
        for step in ledger:
            params = jax.tree.map(lambda x, g: x - g, params, grads(params, step))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), result.params, params
    )


class Loss:
    """The loss, counting how often it is traced."""

    def __init__(self):
        self.traces = 0

    def __call__(self, params, batch):
        self.traces += 1
        return loss_fn(params, batch)


class StopAt:
    """An `evaluate` by which someone asks to stop at its n-th call; notes the traces of a loss."""

    def __init__(self, calls, number, loss):
        self.calls, self.number, self.loss = calls, number, loss
        self.traces = []

    def __call__(self, params):
        self.traces.append(self.loss.traces)
        if len(self.traces) == self.calls:
            os.kill(os.getpid(), self.number)
        return {}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Directory and result of an uninterrupted run of each plan."""
    with jax.check_tracer_leaks(False):
        folders = {plan: tmp_path_factory.mktemp("run") for plan in (PLAN, ANY_SIZE)}
        return {plan: (path, fit(path, plan=plan, key=KEY)) for plan, path in folders.items()}


@pytest.fixture
def copied(finished, tmp_path):
    """The directory of a finished run, to be spoilt."""
    return shutil.copytree(finished[PLAN][0], tmp_path / "copy")


# --- the loop is the one by hand ------------------------------------------------------------------


def by_hand(path, plan):
    """The loop of docs/training.md."""
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, **plan.options())
    loader = sampling.Loader(DATA, sampling.PoissonSampler.of(plan), 4)
    noisy_grad = sampling.accumulated(grad_fn)

    @jax.jit
    def update(params, state, grads):
        updates, state = OPTIMIZER.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), PARAMS)
    state = OPTIMIZER.init(params)
    with privacy.open_ledger(path, plan, key=KEY) as ledger:
        for step in ledger:
            parts = loader.physical_batches(step.sampling_key)
            _, grads = noisy_grad(params, parts, key=step.noise_key)
            params, state = update(params, state, grads)
    return params


@pytest.mark.parametrize("plan", [PLAN, ANY_SIZE], ids=["as one", "in parts"])
def test_the_trainer_is_the_loop_by_hand(tmp_path, finished, plan):
    _, result = finished[plan]
    assert (result.steps, result.epsilon, result.stopped) == (8, plan.epsilon(), "budget")
    expected = by_hand(tmp_path / "run.ledger", plan)
    if plan is ANY_SIZE:
        equal(result.params, expected)
    jax.tree.map(  # in one piece the same sum comes in another order
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), result.params, expected
    )


@pytest.fixture
def not_ignored(number):
    """A shell starts programs in the background with SIGINT ignored, which `fit` respects."""
    before = signal.signal(number, signal.default_int_handler)
    yield
    signal.signal(number, before)


@pytest.mark.usefixtures("not_ignored")
@pytest.mark.parametrize(
    ("plan", "number"),
    [(PLAN, signal.SIGINT), (ANY_SIZE, signal.SIGTERM)],
    ids=["as one", "in parts"],
)
def test_a_stopped_run_goes_on_as_if_it_had_not_been_stopped(tmp_path, finished, plan, number):
    loss, before = Loss(), signal.getsignal(number)
    run = {"directory": tmp_path, "plan": plan, "key": KEY, "loss": loss, "report_every": 1}
    stop = StopAt(3, number, loss)
    first = fit(**run, evaluate=stop)
    assert (first.steps, first.stopped, first.epsilon) == (3, "interrupted", plan.epsilon(3))
    assert signal.getsignal(number) is before
    assert len(set(stop.traces)) == 1, "a step was compiled after the rehearsal"
    watch = StopAt(-1, number, loss)
    last = fit(**run, evaluate=watch)
    assert (last.steps, last.stopped) == (8, "budget")
    assert len(set(watch.traces)) == 1, "restored arrays were compiled for twice"
    whole = finished[plan][1]
    equal((last.params, last.optimizer_state), (whole.params, whole.optimizer_state))
    assert [point.step for point in last.history] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_finished_run_is_left_as_it_is(finished):
    path, done = finished[PLAN]
    again = fit(path, loss=None)
    equal(again.params, done.params)
    assert (again.steps, again.epsilon, again.history) == (8, done.epsilon, done.history)


# --- budget, lines, history, plot -----------------------------------------------------------------


def test_the_run_ends_before_the_step_that_spends_too_much(tmp_path):
    printed, kept = io.StringIO(), []
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), PARAMS)
    result = training.fit(
        loss_fn, params, DATA,
        plan=PLAN,
        optimizer=OPTIMIZER,
        directory=tmp_path / "new" / "folder",
        stop_at_epsilon=PLAN.epsilon(5),
        report_every=2,
        evaluate=lambda params: kept.append(params) or {"accuracy": np.nan},
        console=rich.console.Console(file=printed, width=40),
    )  # fmt: skip
    assert (result.steps, result.stopped) == (5, "stop_at_epsilon")
    assert result.epsilon == PLAN.epsilon(5)
    equal(params, PARAMS)  # neither these nor what evaluate has seen is taken away
    assert len({np.asarray(seen["w"]).tobytes() for seen in kept}) == 3
    check_lines(printed.getvalue().splitlines())
    check_files(tmp_path / "new" / "folder")


def check_lines(lines):
    assert [line.split(":")[0] for line in lines[:-1]] == ["step 2/5", "step 4/5", "step 5/5"]
    assert f": epsilon {PLAN.epsilon(2):.3g}, " in lines[0]
    assert "examples/s, accuracy nan [not private: loss 0." in lines[0]
    spent = f"epsilon {PLAN.epsilon(5):.3g} at delta 0.001"
    assert lines[-1] == f"stop_at_epsilon after 5 of 8 steps: {spent}"


def check_files(folder):
    saved = json.loads((folder / "history.json").read_text())
    assert "not private" in saved["note"]
    assert [point["step"] for point in saved["points"]] == [2, 4, 5]
    assert saved["points"][0]["metrics"] == {"accuracy": None}
    assert (folder / "progress.png").read_bytes().startswith(PNG)
    assert not list(folder.glob("*.new"))
    assert place_of_latest(folder / "checkpoints")["steps"] == 5
    assert folder.stat().st_mode & 0o077 == 0


def test_a_target_that_the_first_step_exceeds_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the first step of the plan spends"):
        fit(tmp_path, stop_at_epsilon=1e-3)


def test_a_terminal_gets_a_bar():
    printed = io.StringIO()
    console = rich.console.Console(file=printed, width=160, force_terminal=True)
    with Progress(8, 2, console) as progress:
        progress.step(4)
        progress.point(Point(4, 0.5, 10.0, {}, 0.7, 0.1, 0))
    text = printed.getvalue()
    assert "4/8" in text
    assert "[not private: loss 0.7, clipped 10%]" in text
    assert "step 4/8" not in text


def test_the_plot_marks_what_is_not_private():
    points = [Point(n, n / 9, 1.0, {"accuracy": 0.5}, 1.0, 0.5, 0) for n in (1, 2)]
    labels = [axes.get_ylabel() for axes in draw(points, 1.0).axes]
    assert labels == ["training loss\n(not private)", "", "privacy spent, ε"]


def test_means_weigh_every_example_once(tmp_path):
    quiet = Progress(8, 0, rich.console.Console(file=io.StringIO()))
    recorder = Recorder(PLAN, tmp_path, [], None, quiet, None)
    for seen in (Seen(0, 0.0, 0.0, 0), Seen(1, 8.0, 1.0, 1), Seen(3, 4.0, 1 / 3, 2)):
        recorder.step(3, seen)
    recorder.report(3, None)
    (point,) = recorder.points
    assert (point.loss, point.clipped, point.nonfinite) == (5.0, 0.5, 3)
    assert "NaN or infinite gradients 3]" in point.describe()
    recorder.report(3, None)  # nothing new
    assert len(recorder.points) == 1


# --- errors ---------------------------------------------------------------------------------------


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
