"""`fit`: the training loop, with progress, checkpoints, a plot, and a stop at the budget."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

import bk_jax
from bk_jax.mechanisms import CorrelatedRelease
from bk_jax.privacy import CorrelatedPlan, Ledger, PrivacyPlan, Step, checks, open_ledger
from bk_jax.privacy.plans import Plan
from bk_jax.sampling import Loader, Sampler, sampler_of
from bk_jax.sampling.planned import Nobody, check_plan
from bk_jax.training import adaptive, correlated, history, on_grid, steps
from bk_jax.training.averaging import average_of
from bk_jax.training.canaries import Audit, Canaries, Observer, Without
from bk_jax.training.checkpoints import Checkpoints, place_of_latest
from bk_jax.training.history import Point
from bk_jax.training.interrupt import asked_to_stop
from bk_jax.training.progress import Progress
from bk_jax.training.recorder import Evaluate, Recorder
from bk_jax.training.steps import State, TakeStep

REPORTS = 25  # reports per run, unless `report_every` is given


class Result(NamedTuple):
    """The result of a run.

    Attributes:
      params: the parameters; of an optimizer made by `averaged`, their average. You may publish them,
        with `epsilon` and the plan's delta.
      optimizer_state: the state of the optimizer.
      steps: steps on record, including forfeited ones.
      epsilon: what those steps have spent.
      stopped: `"budget"` when no step of the plan is left, `"stop_at_epsilon"` when steps are left
        but the next one would exceed that limit, `"interrupted"` when someone asked to stop.
      history: points along the way. Their losses and clipped shares are NOT PRIVATE.
      audit: what canaries show, if there are any. NOT PRIVATE.
      clip_norms: those of the next step, if clipping is adaptive, else `()`; as private as `params`.

    >>> result = Result({"w": 0.0}, (), steps=90, epsilon=2.9, stopped="budget", history=[])
    >>> f"{result.steps} steps, epsilon {result.epsilon}, stopped by {result.stopped}"
    '90 steps, epsilon 2.9, stopped by budget'
    """

    params: Any
    optimizer_state: Any
    steps: int
    epsilon: float
    stopped: str
    history: list[Point]
    audit: Audit | None = None
    clip_norms: Any = ()


def fit(
    loss_fn: Callable[..., Any],
    params: Any,
    data: Any,
    *,
    plan: Plan,
    optimizer: Any,
    directory: str | os.PathLike[str],
    evaluate: Evaluate | None = None,
    physical_batch_size: int | None = None,
    checkpoint_every: int = 100,
    report_every: int | None = None,
    stop_at_epsilon: float | None = None,
    forfeit: bool = False,
    fork: bool = False,
    plot: bool = True,
    key: jax.Array | None = None,
    console: Any = None,
    loss_kwargs: Mapping[str, Any] | None = None,
    audit: Canaries | None = None,
    grid_bits: int | None = None,
    **options: Any,
) -> Result:
    """Trains privately until the budget is spent, resuming where an earlier call stopped.

    Ctrl-C and SIGTERM end the run after the current step, with a checkpoint. The next call with the
    same arguments resumes, and ends with the same bits as a run that was never stopped. After
    `kill -9`, the last complete checkpoint is at most `checkpoint_every` steps old. The ledger
    counts the steps after it, but the model has lost them; pass `forfeit=True` to accept that.

    Args:
      loss_fn: `loss_fn(params, batch)`, as for `bk_jax.dp_value_and_grad`.
      params: a tree of arrays; not modified.
      data: a tree of arrays or a map-style data set, as for `bk_jax.sampling.Loader`.
      plan: what may be spent, made by `bk_jax.privacy.plan`. With `max_batch_size`, a step is one
        compiled program; without it, pass `physical_batch_size`. If it has `adaptive` clipping, clip
        norms start at `l2_clip_norm` and are part of checkpoints. Or a `bk_jax.privacy.CorrelatedPlan`,
        with `physical_batch_size`: batches are those of `bk_jax.sampling.sampler_of`.
      optimizer: an optax optimizer. With `bk_jax.training.averaged`, the average of the parameters is
        evaluated and returned.
      directory: the folder of the run. Holds `run.ledger` (secret), `checkpoints` (secret if the
        plan's noise stores arrays), `history.json` (not private) and `progress.png` (not private).
      evaluate: a function from parameters to a dictionary of numbers, called at every report. Costs
        no privacy if it looks only at held-out data.
      physical_batch_size: split batches into parts of this many rows.
      checkpoint_every: steps between checkpoints.
      report_every: steps between reports; by default about 25 reports per run.
      stop_at_epsilon: stop before the step that would spend more than this.
      forfeit: continue although the ledger has steps that no checkpoint has; see above.
      fork: continue in a copy of a run's directory, with new keys and with the steps that the
        original had spent; see `bk_jax.privacy.open_ledger`.
      plot: whether to draw `progress.png`.
      key: the secret key of a new ledger, for repeatable runs. If others know it, the run is not
        private. A resumed run keeps its key.
      console: a `rich.console.Console` to print on.
      loss_kwargs: further keyword arguments of `loss_fn`, the same at every step, such as
        `{"frozen": params}` for the losses of `bk_jax.peft`. They are not part of a checkpoint.
      audit: canaries that are put among the data, each by a coin flip; the plan's `num_examples`
        counts all of them. `result.audit` then has a lower bound of epsilon beside what was spent.
      grid_bits: noise on a grid of this fineness (`bk_jax.mechanisms.on_grid`), with
        `physical_batch_size` and a plan whose accountant is `"rdp_whole"`.
      **options: further options of `dp_value_and_grad`, such as `clipping`, `keep_batch_dim`,
        `method`, `microbatch_size`, or `l2_clip_norm` per group of parameters. Pass `prng_argnum=2`
        for a loss with dropout, `loss_fn(params, batch, key)`: every example of every step gets its
        own key.

    >>> import io, optax, numpy as np, rich.console, tempfile
    >>> from bk_jax import privacy, training
    >>> x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    >>> plan = privacy.PrivacyPlan(
    ...     num_examples=100, batch_size=20, steps=5, delta=1e-3, noise_multiplier=2, pld_interval=0.01
    ... )
    >>> result = training.fit(
    ...     lambda w, x: ((x - w) ** 2).mean(), np.zeros(2, np.float32), x, plan=plan,
    ...     optimizer=optax.sgd(0.1), directory=tempfile.mkdtemp(), physical_batch_size=16,
    ...     plot=False, console=rich.console.Console(file=io.StringIO()),
    ... )
    >>> print(result.stopped, result.steps, f"{result.epsilon:.2f}")
    budget 5 0.69
    """
    if jax.process_count() > 1:
        raise ValueError(
            "fit is for one process; docs/devices.md has the loop for several, with open_shared_ledger."
        )
    check_plan(plan)
    checks.whole_number("checkpoint_every", checkpoint_every, 1)
    every = report_every if report_every is not None else max(1, plan.steps // REPORTS)
    checks.whole_number("report_every", every, 1)
    limit = steps_within(plan, stop_at_epsilon)
    data = data if audit is None else audit.added_to(data)
    nobody = Loader(data, Nobody.of(plan), physical_batch_size)
    grad_fn = steps.make_grad_fn(loss_fn, plan, options, loss_kwargs or ())
    private = plan.release(grad_fn) if isinstance(plan, CorrelatedPlan) else None
    grid = None if grid_bits is None else on_grid.check_grid(plan, grad_fn, grid_bits)
    clip_norms = adaptive.check_adaptive(plan, grad_fn, grid_bits)
    state = steps.initial_state(optimizer, params, private, clip_norms)
    fixed = jax.device_put(dict(loss_kwargs or {}))
    folder = Path(directory)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        place = place_of_latest(folder / "checkpoints")
        told = {"checkpoint": place, "forfeit": forfeit, "fork": fork}
        ledger = stack.enter_context(_open(folder / "run.ledger", plan, key, **told))
        checkpoints = stack.enter_context(contextlib.closing(Checkpoints(folder / "checkpoints")))
        progress = stack.enter_context(Progress(limit, ledger.steps, console))
        reached = 0 if place is None else place["steps"]
        points = history.load(folder / "history.json", reached)
        target = (stop_at_epsilon or plan.epsilon()) if plot else None
        recorder = Recorder(plan, folder, points, evaluate, progress, target)
        if grid is not None:
            taking = on_grid.grid_step(grid, optimizer, fixed)
        elif isinstance(plan, PrivacyPlan) and plan.adaptive is not None:
            taking = adaptive.adaptive_step(plan.adaptive, grad_fn, optimizer, fixed)
        else:
            taking = _take_step(private, grad_fn, optimizer, fixed, physical_batch_size)
        observer = None
        if audit is not None:
            observer = Observer(audit, audit.flips(ledger), grad_fn, state.params, fixed)
            same = place is not None and place["ledger"] == ledger.checkpoint()["ledger"]
            observer.resume(checkpoints.restore_watched() if same else None, reached)
        run = Run(ledger, nobody, taking, private, checkpoints, recorder, observer)
        state = run.go(checkpoints.restore(state), reached, limit, checkpoint_every, every)
        stopped = _reason(ledger.steps, limit, plan)
        progress.line(
            f"{stopped} after {ledger.steps} of {plan.steps} steps: "
            f"epsilon {ledger.epsilon():.3g} at delta {plan.delta:g}"
        )
        params = _shown(state)
        found = (params, state.optimizer_state, ledger.steps, ledger.epsilon(), stopped)
        shown = None
        if observer is not None:
            shown = observer.result(params, ledger.epsilon(), plan.delta)
            progress.line(shown.describe())
        return Result(*found, recorder.points, shown, state.clip_norms)


def steps_within(plan: Plan, epsilon: float | None) -> int:
    """How many steps of the plan spend at most `epsilon`.

    >>> from bk_jax.privacy import PrivacyPlan
    >>> plan = PrivacyPlan(num_examples=100, batch_size=20, steps=5, delta=1e-3, noise_multiplier=2)
    >>> [steps_within(plan, epsilon) for epsilon in (None, 9.0, plan.epsilon(3))]
    [5, 5, 3]
    """
    if epsilon is None:
        return plan.steps
    checks.positive("stop_at_epsilon", epsilon)
    count = bisect.bisect_right(range(1, plan.steps + 1), epsilon, key=plan.epsilon)
    if count == 0:
        raise ValueError(
            f"stop_at_epsilon is {epsilon:g}, but the first step of the plan spends "
            f"{plan.epsilon(1):.3g}. Ask bk_jax.privacy.plan for a plan with this target_epsilon."
        )
    return count


def _reason(taken: int, limit: int, plan: Plan) -> str:
    """Why the run is over; see `Result.stopped`."""
    if taken < limit:
        return "interrupted"
    return "budget" if taken >= plan.steps else "stop_at_epsilon"


def _shown(state: State) -> Any:
    """What is evaluated and returned: the average, if the optimizer keeps one."""
    return average_of(state.optimizer_state, otherwise=state.params)


def _open(path: Path, plan: Plan, key: Any, **told: Any) -> Ledger:
    return open_ledger(path, plan, key=None if path.exists() else key, **told)


def _take_step(
    private: CorrelatedRelease | None, grad_fn: Any, optimizer: Any, fixed: Any, part: int | None
) -> TakeStep:
    if private is not None:
        return correlated.correlated_step(private, optimizer, fixed)
    make = steps.step_as_one if part is None else steps.step_in_parts
    return make(grad_fn, optimizer, fixed)


@dataclasses.dataclass(frozen=True)
class Run:
    """The loop, with everything that it needs."""

    ledger: Ledger
    nobody: Loader
    take_step: TakeStep
    private: CorrelatedRelease | None
    checkpoints: Checkpoints
    recorder: Recorder
    observer: Observer | None = None

    def go(
        self, state: State, reached: int, limit: int, checkpoint_every: int, report_every: int
    ) -> State:
        """Takes steps up to `limit`, or until someone asks to stop; `state` is that of `reached`."""
        ledger, recorder = self.ledger, self.recorder
        if self.private is not None:
            state = correlated.caught_up(self.private, state, ledger, reached)
        reached = ledger.steps
        if reached < limit:
            self._rehearse(state)
        sampler_at = sampler_of(ledger.plan, ledger.partition_key())
        with asked_to_stop() as stop:
            try:
                while reached < limit and not stop():
                    step = self._take()
                    before = state.params
                    state, seen = self.take_step(state, self._loader(sampler_at, step), step)
                    if self.observer is not None:
                        self.observer.step(before, state.params)
                    reached = ledger.steps
                    recorder.step(reached, seen)
                    if reached % checkpoint_every == 0:
                        self._save(state)
                    if reached % report_every == 0:
                        recorder.report(reached, _shown(state))
                recorder.report(reached, _shown(state))
                recorder.plot()
            finally:
                if reached == ledger.steps:  # else a step failed midway: the state may be partial
                    self._save(state)
        return state

    def _rehearse(self, state: State) -> None:
        key = bk_jax.random.key()
        if self.private is not None:
            key = jax.random.split(key, self.private.noise.keys_needed)
        steps.rehearse(self.take_step, state, self.nobody, key)

    def _take(self) -> Step:
        if self.private is None:
            return self.ledger.take()
        return correlated.take(self.ledger, self.private.noise.keys_needed)

    def _loader(self, sampler_at: Callable[[int], Sampler], step: Step) -> Loader:
        sampler = sampler_at(step.number)
        if self.observer is not None:
            sampler = Without(sampler, self.observer.included)
        return dataclasses.replace(self.nobody, sampler=sampler)

    def _save(self, state: State) -> None:
        watched = None if self.observer is None else self.observer.kept()
        self.checkpoints.save(state, self.ledger.checkpoint(), watched)
