"""The trainer: what it trains, what it spends, when it stops, and what it leaves behind."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rich.console

import bk_jax
from bk_jax import privacy, sampling, training

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


class StopAt:
    """An `evaluate` that has someone ask to stop when it is called for the n-th time."""

    def __init__(self, calls, number=signal.SIGINT):
        self.calls, self.number = calls, number

    def __call__(self, params):
        self.calls -= 1
        if self.calls == 0:
            os.kill(os.getpid(), self.number)
        return {}


# --- the loop is the one by hand ------------------------------------------------------------------


@pytest.mark.parametrize("plan", [PLAN, ANY_SIZE], ids=["as one", "in parts"])
def test_the_trainer_is_the_loop_by_hand_bit_for_bit(tmp_path, plan):
    key = bk_jax.random.key(3)
    result = fit(tmp_path / "fit", plan=plan, key=key)
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, **plan.options())
    loader = sampling.Loader(DATA, sampling.PoissonSampler.of(plan), 4)
    noisy_grad = sampling.accumulated(grad_fn)

    @jax.jit
    def whole(params, batch, key):
        padding = batch.is_padding_example
        return grad_fn(params, batch.examples, key=key, is_padding_example=padding)

    @jax.jit
    def update(params, state, grads):
        updates, state = OPTIMIZER.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), PARAMS)
    state = OPTIMIZER.init(params)
    with privacy.open_ledger(tmp_path / "hand", plan, key=key) as ledger:
        for step in ledger:
            if plan.max_batch_size is None:
                parts = loader.physical_batches(step.sampling_key)
                _, grads = noisy_grad(params, parts, key=step.noise_key)
            else:
                _, grads = whole(params, loader.batch(step.sampling_key), step.noise_key)
            params, state = update(params, state, grads)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), result.params, params)
    assert result.epsilon == plan.epsilon()
    assert (result.steps, result.stopped) == (8, "budget")


@pytest.mark.parametrize("plan", [PLAN, ANY_SIZE], ids=["as one", "in parts"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_goes_on_as_if_it_had_not_been_stopped(tmp_path, plan, number):
    key = bk_jax.random.key(3)
    whole = fit(tmp_path / "whole", plan=plan, key=key)
    run = {"directory": tmp_path / "cut", "plan": plan, "key": key, "report_every": 1}
    before = signal.getsignal(number)
    first = fit(**run, evaluate=StopAt(4, number))
    assert signal.getsignal(number) is before
    assert (first.steps, first.stopped, first.epsilon) == (4, "interrupted", plan.epsilon(4))
    second = fit(**run, evaluate=StopAt(2, number))
    assert second.steps == 6
    last = fit(**run)
    assert last.stopped == "budget"
    equal((last.params, last.optimizer_state), (whole.params, whole.optimizer_state))
    assert [point.step for point in last.history] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("plan", [PLAN, ANY_SIZE], ids=["as one", "in parts"])
def test_nothing_is_compiled_after_the_rehearsal(tmp_path, plan):
    events = []

    class Watch(StopAt):
        def __call__(self, params):
            events.append("evaluate")
            return super().__call__(params)

    def loss(params, batch):
        events.append("trace")
        return loss_fn(params, batch)

    for _ in range(2):  # a new run, and one that goes on with restored arrays
        events.clear()
        fit(tmp_path, loss, plan, report_every=1, evaluate=Watch(4))
        assert events.count("evaluate") == 4
        assert "trace" not in events[events.index("evaluate") :]


def test_a_finished_run_is_left_as_it_is(tmp_path):
    done = fit(tmp_path)
    again = fit(tmp_path, loss=None)
    equal(again.params, done.params)
    assert again.epsilon == done.epsilon
    assert again.history == done.history


def test_what_the_caller_holds_stays(tmp_path):
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), PARAMS)
    kept = []
    quiet = rich.console.Console(file=io.StringIO())
    options = {"plan": PLAN, "optimizer": OPTIMIZER, "console": quiet, "plot": False}
    training.fit(
        loss_fn, params, DATA, directory=tmp_path, report_every=1, **options,
        evaluate=lambda params: kept.append(params) or {},
    )  # fmt: skip
    equal(params, PARAMS)
    assert len({np.asarray(seen["w"]).tobytes() for seen in kept}) == 8


# --- the budget -----------------------------------------------------------------------------------


def test_the_run_ends_before_the_step_that_spends_too_much(tmp_path):
    result = fit(tmp_path, stop_at_epsilon=PLAN.epsilon(5))
    assert (result.steps, result.stopped) == (5, "budget")
    assert result.epsilon <= PLAN.epsilon(5) < PLAN.epsilon(6)
    more = fit(tmp_path)  # the plan allows more
    assert more.steps == 8


def test_a_target_that_the_first_step_exceeds_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the first step of the plan spends"):
        fit(tmp_path, stop_at_epsilon=1e-3)


# --- what is shown and saved ----------------------------------------------------------------------


def test_lines_mark_what_is_not_private(tmp_path):
    printed = io.StringIO()
    console = rich.console.Console(file=printed, width=60)
    fit(tmp_path, console=console, report_every=4, evaluate=lambda _: {"accuracy": 0.5})
    first, second, last = printed.getvalue().splitlines()
    assert first.startswith(f"step 4/8: epsilon {PLAN.epsilon(4):.3g}, ")
    assert "examples/s, accuracy 0.5 [not private: loss 0." in first
    assert second.startswith("step 8/8: ")
    assert last == f"budget after 8 of 8 steps: epsilon {PLAN.epsilon():.3g} at delta 0.001"


def test_a_terminal_gets_a_bar(tmp_path):
    printed = io.StringIO()
    console = rich.console.Console(file=printed, width=160, force_terminal=True)
    fit(tmp_path, console=console, report_every=4)
    text = printed.getvalue()
    assert "8/8" in text
    assert "[not private: loss 0." in text
    assert "step 4/8" not in text


def test_history_and_plot_are_there_and_say_what_they_are(tmp_path):
    result = fit(tmp_path, plot=True, report_every=2, evaluate=lambda _: {"accuracy": np.nan})
    saved = json.loads((tmp_path / "history.json").read_text())
    assert "not private" in saved["note"]
    assert [point["step"] for point in saved["points"]] == [2, 4, 6, 8]
    assert saved["points"][0]["metrics"] == {"accuracy": None}
    assert (tmp_path / "progress.png").read_bytes().startswith(PNG)
    assert not list(tmp_path.glob("*.new"))
    again = fit(tmp_path)
    assert [point.loss for point in again.history] == [point.loss for point in result.history]


def test_the_plot_marks_what_is_not_private():
    points = [training.Point(n, n / 9, 1.0, {"accuracy": 0.5}, 1.0, 0.5, 0) for n in (1, 2)]
    figure = training.plot.draw(points, 1.0)
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "training loss\n(not private)", "", "privacy spent, ε",
    ]  # fmt: skip


def test_means_weigh_every_example_once(tmp_path):
    def loss(params, batch):  # 1 for each example; an empty batch has none
        return jnp.mean(batch["y"] * 0 + 1) + 0 * params["b"]

    plan = dataclasses.replace(PLAN, batch_size=0.5, max_batch_size=8)
    result = fit(tmp_path, loss, plan, report_every=8, l2_clip_norm=1.0)
    assert result.history[0].loss == pytest.approx(1, rel=1e-6)
    assert result.history[0].clipped == 0


def test_gradients_that_are_not_finite_are_shown(tmp_path):
    result = fit(tmp_path, lambda w, batch: loss_fn(w, batch) * jnp.inf, report_every=8)
    assert result.history[0].nonfinite > 0
    assert "NaN or infinite gradients" in result.history[0].describe()
    assert np.isfinite(result.params["w"]).all()


# --- errors ---------------------------------------------------------------------------------------


def recorded_steps(folder):
    path = folder / "run.ledger"
    return json.loads(path.read_text())["steps"] if path.exists() else 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"optimizer": 0.1}, TypeError, "must be an optax.GradientTransformation"),
        ({"noise_multiplier": 0.1}, ValueError, "noise_multiplier is decided by the plan"),
        ({"has_aux": True}, ValueError, "has_aux is decided by the plan and by fit"),
        ({"checkpoint_every": 0}, ValueError, "checkpoint_every must be a whole number"),
        ({"report_every": 2.5}, TypeError, "report_every must be a whole number"),
        ({"stop_at_epsilon": -1}, ValueError, "stop_at_epsilon must be finite and above 0"),
        ({"loss": lambda params, batch: params["nothing"]}, KeyError, "nothing"),
        ({"loss": lambda params, batch: batch["x"] @ params["w"]}, Exception, "scalar"),
        ({"plan": ANY_SIZE, "physical_batch_size": None}, ValueError, "need physical_batch_size"),
        ({"plan": dataclasses.replace(PLAN, num_examples=61)}, ValueError, "the data has 60"),
    ],
)
def test_mistakes_cost_nothing(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        fit(tmp_path, **options)
    assert recorded_steps(tmp_path) == 0


def test_params_that_are_not_arrays_are_named(tmp_path):
    with pytest.raises(TypeError, match=r"at \['f'\] there is a function"):
        training.fit(loss_fn, {"f": fit}, DATA, plan=PLAN, optimizer=OPTIMIZER, directory=tmp_path)


def test_an_evaluate_that_fails_loses_nothing(tmp_path):
    with pytest.raises(TypeError, match="evaluate must return a mapping from names to numbers"):
        fit(tmp_path, evaluate=lambda _: 0.5, report_every=2)
    assert recorded_steps(tmp_path) == 2
    assert fit(tmp_path).steps == 8


def test_a_step_that_breaks_off_is_counted_and_must_be_given_up(tmp_path):
    class Source:
        calls = 0

        def __len__(self):
            return 60

        def __getitem__(self, index):
            Source.calls += 1
            if Source.calls == 30:
                raise OSError("the disk is gone")
            return {"x": DATA["x"][index], "y": DATA["y"][index]}

    options = {"optimizer": OPTIMIZER, "plan": PLAN, "directory": tmp_path, "plot": False}
    options["console"] = rich.console.Console(file=io.StringIO())
    with pytest.raises(OSError, match="the disk is gone"):
        training.fit(loss_fn, PARAMS, Source(), checkpoint_every=1, **options)
    taken = recorded_steps(tmp_path)
    assert taken > 1
    with pytest.raises(privacy.LedgerError, match=f"{taken} steps on record.*step {taken - 1}"):
        training.fit(loss_fn, PARAMS, Source(), **options)
    result = training.fit(loss_fn, PARAMS, Source(), forfeit=True, **options)
    assert (result.steps, result.epsilon) == (8, PLAN.epsilon())


def test_another_optimizer_or_model_than_the_checkpoint_is_refused(tmp_path):
    fit(tmp_path, evaluate=StopAt(1), report_every=1)
    with pytest.raises(ValueError, match=r"another model or optimizer: at optimizer_state/0/count it has int32"):
        fit(tmp_path, optimizer=optax.sgd(0.1))


def test_another_plan_than_the_ledger_is_refused(tmp_path):
    fit(tmp_path, evaluate=StopAt(1), report_every=1)
    with pytest.raises(privacy.LedgerError, match=r"plan differs.*noise_multiplier: 1.0 -> 0.5"):
        fit(tmp_path, plan=dataclasses.replace(PLAN, noise_multiplier=0.5))


def test_checkpoints_without_their_ledger_are_refused(tmp_path):
    fit(tmp_path)
    (tmp_path / "run.ledger").unlink()
    with pytest.raises(privacy.LedgerError, match="copy that file along with the checkpoint"):
        fit(tmp_path)
