"""What every example does with its problem: train it in three ways and compare.

| training | gradient |
|---|---|
| not private | `jax.grad` of the sum of losses |
| private | `bk_jax.training.fit` |
| private, by vmap(grad) | every example's gradient is formed, clipped, summed: the usual way |

All three see the same optimizer and, with a seed, the same Poisson batches. An example says what its
problem is (`Problem`) and calls `main`; its settings are in a file of `configs/`.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from comparison import clipped_by_vmap, time_ratios, with_normal_noise
from study_report import (
    Outcome,
    Point,
    described,
    load_points,
    print_table,
    save_plot,
    save_points,
    watch,
)

from bk_jax import dp_value_and_grad, mechanisms, privacy, random, sampling, training

Tree = Any
PLAIN, PRIVATE, BY_VMAP = "not private", "private", "private, by vmap(grad)"


class Problem(NamedTuple):
    """What an example is about.

    Attributes:
      params: what is trained.
      losses_fn: `losses_fn(params, examples, frozen)` gives the loss of every example.
      data: the examples to learn from, a tree of arrays.
      evaluate: from trained parameters to numbers on held-out data; the first is the one to compare.
      optimizer: of optax.
      frozen: what the losses need and nobody trains.
      describe: from parameters to words, such as a text that they generate; printed before training
        and after each.
      clip_parts: whether the gradient of each part of `params`, a dictionary, is clipped by itself.
    """

    params: Tree
    losses_fn: Callable[[Tree, Tree, Tree], jax.Array]
    data: Tree
    evaluate: Callable[[Tree], Mapping[str, Any]]
    optimizer: optax.GradientTransformation
    frozen: Tree = None
    describe: Callable[[Tree], str] | None = None
    clip_parts: bool = False

    def loss_fn(self, params: Tree, examples: Tree, *, frozen: Tree = None) -> jax.Array:
        """What a person would differentiate: the mean over a batch."""
        return jnp.mean(self.losses_fn(params, examples, frozen))

    def clip_norms(self, clip_norm: float) -> float | dict[str, float]:
        """The norm of the whole gradient, or norms of its parts that are as much together."""
        if not self.clip_parts:
            return clip_norm
        return dict.fromkeys(self.params, clip_norm / len(self.params) ** 0.5)


@dataclasses.dataclass(frozen=True)
class Settings:
    """One file of `configs/`; the keys of its table `[run]`. `[model]` belongs to the example."""

    epsilon: float
    delta: float
    epochs: float
    batch_size: int  # expected examples of a step
    physical_batch_size: int  # rows that are computed at once
    clip_norm: float
    clipping: str = "abadi"  # or "automatic": every gradient is scaled to the clip norm
    average: float | None = None  # decay of the average of parameters that is evaluated
    seed: int | None = None  # a run that can be repeated, hence not private
    bands: int | None = None  # of correlated noise (BandMF); default: independent noise
    vmap_steps: int | None = None  # where the usual way is too slow for the whole run
    reports: int = 20  # how often to evaluate in a run
    rounds: int = 10  # how often to time each step

    def plan(self, num_examples: int) -> Any:
        if self.bands is not None:
            return correlated_plan(self, num_examples)
        return privacy.plan(
            target_epsilon=self.epsilon,
            delta=self.delta,
            num_examples=num_examples,
            batch_size=self.batch_size,
            epochs=self.epochs,
            l2_clip_norm=self.clip_norm,
        )


def correlated_plan(settings: Settings, num_examples: int) -> privacy.CorrelatedPlan:
    """Banded noise on cyclic Poisson batches: a group's steps cost what DP-SGD's on it cost."""
    bands, size = settings.bands, settings.batch_size
    rounds = max(1, round(settings.epochs * num_examples / size / bands))
    return privacy.plan_correlated(
        target_epsilon=settings.epsilon,
        noise=mechanisms.BandedToeplitz.square_root(bands),
        participation=mechanisms.CyclicPoisson(
            rounds * bands, groups=bands, sampling_probability=bands * size / num_examples
        ),
        num_examples=num_examples,
        batch_size=size,
        delta=settings.delta,
        l2_clip_norm=settings.clip_norm,
    )


def read_config(path: Path) -> tuple[Settings, dict[str, Any]]:
    """The settings of a run, and those of the example's model."""
    tables = tomllib.loads(path.read_text())
    return from_table(Settings, tables.get("run", {}), f"{path}: [run]"), tables.get("model", {})


def from_table(kind: type[Any], table: Mapping[str, Any], where: str) -> Any:
    """A dataclass of the kind, from a table of a configuration; lists become tuples."""
    fields = dataclasses.fields(kind)
    known = sorted(field.name for field in fields)
    needed = {field.name for field in fields if field.default is dataclasses.MISSING}
    if unknown := sorted(set(table) - set(known)):
        raise ValueError(f"{where} has no setting {unknown}; there are {known}.")
    if missing := sorted(needed - set(table)):
        raise ValueError(f"{where} lacks {missing}.")
    return kind(**{n: tuple(v) if isinstance(v, list) else v for n, v in table.items()})


# --- gradients: sums over one physical batch ------------------------------------------------------


def plain_sum(problem: Problem, params: Tree, batch: sampling.Batch, frozen: Tree) -> Tree:
    def total(params: Tree) -> jax.Array:
        losses = problem.losses_fn(params, batch.examples, frozen)
        return jnp.sum(jnp.where(batch.is_padding_example, 0, losses))

    return jax.grad(total)(params)


def vmap_sum(
    problem: Problem,
    clip_norm: float | dict[str, float],
    params: Tree,
    batch: sampling.Batch,
    frozen: Tree,
    clipping: str = "abadi",
) -> Tree:
    loss_fn = functools.partial(problem.loss_fn, frozen=frozen)
    return clipped_by_vmap(loss_fn, params, *batch, clip_norm=clip_norm, clipping=clipping)


# --- steps ----------------------------------------------------------------------------------------


def averaging(problem: Problem, settings: Settings) -> Problem:
    """The problem, with an optimizer that averages parameters if the settings say so."""
    if settings.average is None:
        return problem
    return problem._replace(optimizer=training.averaged(problem.optimizer, settings.average))


def shown(state: Tree) -> Tree:
    """What is evaluated: the average, where there is one."""
    return training.average_of(state[1], otherwise=state[0])


def update(problem: Problem, state: Tree, grads: Tree) -> Tree:
    params, optimizer_state = state
    updates, optimizer_state = problem.optimizer.update(grads, optimizer_state, params)
    return optax.apply_updates(params, updates), optimizer_state


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to train without `fit`: a sum per physical batch, then one update."""

    problem: Problem
    plan: privacy.PrivacyPlan
    sum_fn: Callable[[Tree, sampling.Batch, Tree], Tree]
    noise: bool

    def finish(self, state: Tree, sums: Tree, key: jax.Array) -> Tree:
        if self.noise:
            stddev = self.plan.noise_multiplier * self.plan.l2_clip_norm
            sums = with_normal_noise(sums, key, stddev)
        grads = jax.tree.map(lambda x: x / self.plan.batch_size, sums)
        return update(self.problem, state, grads)

    def whole_step(self, state: Tree, batch: sampling.Batch, key: jax.Array, frozen: Tree) -> Tree:
        """A step of one physical batch, to be timed."""
        return self.finish(state, self.sum_fn(state[0], batch, frozen), key)

    def train(self, start: Tree, loader: sampling.Loader, steps: Any, report: Any) -> Tree:
        """Takes all steps that are given and returns the parameters."""
        sum_fn, finish = jax.jit(self.sum_fn), jax.jit(self.finish)
        add = jax.jit(lambda a, b: jax.tree.map(jnp.add, a, b), donate_argnums=0)
        state, frozen = start, jax.device_put(self.problem.frozen)
        for count, step in enumerate(steps, start=1):
            parts = loader.physical_batches(step.sampling_key)
            sums = (sum_fn(state[0], part, frozen) for part in parts)
            state = finish(state, functools.reduce(add, sums), step.noise_key)
            report(count, shown(state))
        return shown(state)


def ways(problem: Problem, plan: privacy.PrivacyPlan, clipping: str = "abadi") -> dict[str, Way]:
    """The two that `fit` does not do."""
    clip_norm = problem.clip_norms(plan.l2_clip_norm)
    by_vmap = functools.partial(vmap_sum, problem, clip_norm, clipping=clipping)
    return {
        PLAIN: Way(problem, plan, functools.partial(plain_sum, problem), noise=False),
        BY_VMAP: Way(problem, plan, by_vmap, noise=True),
    }


def private_step(
    problem: Problem, plan: privacy.PrivacyPlan, clipping: str = "abadi"
) -> Callable[..., Tree]:
    options = plan.options() | {"l2_clip_norm": problem.clip_norms(plan.l2_clip_norm)}
    grad_fn = dp_value_and_grad(
        problem.loss_fn, shared_argnames="frozen", clipping=clipping, **options
    )

    def step(state: Tree, batch: sampling.Batch, key: jax.Array, frozen: Tree) -> Tree:
        padding = batch.is_padding_example
        _, grads = grad_fn(
            state[0], batch.examples, key=key, is_padding_example=padding, frozen=frozen
        )
        return update(problem, state, grads)

    return step


# --- the study ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Study:
    """A problem with its settings, and where its runs are kept."""

    problem: Problem
    settings: Settings
    plan: privacy.PrivacyPlan
    directory: Path

    def loader(self) -> sampling.Loader:
        sampler = sampling.PoissonSampler.of(self.plan)
        return sampling.Loader(self.problem.data, sampler, self.settings.physical_batch_size)

    def key(self) -> jax.Array | None:
        return None if self.settings.seed is None else random.key(self.settings.seed)

    def reports_every(self) -> int:
        return max(1, self.plan.steps // self.settings.reports)

    def steps_by_vmap(self) -> int:
        """As many as the settings allow, up to a report of the private run to compare with."""
        allowed, every = self.settings.vmap_steps, self.reports_every()
        if allowed is None or allowed >= self.plan.steps:
            return self.plan.steps
        return max(every, allowed // every * every)

    def show(self, name: str, params: Tree) -> None:
        if self.problem.describe is not None:
            print(f"{name}: {self.problem.describe(params)}")

    def show_start(self) -> None:
        metrics = {name: float(x) for name, x in self.problem.evaluate(self.problem.params).items()}
        print(f"before training: {described(metrics)}")
        self.show("before training", self.problem.params)

    def run_private(self, plot: bool = True) -> list[Point]:
        result = training.fit(
            self.problem.loss_fn,
            self.problem.params,
            self.problem.data,
            plan=self.plan,
            optimizer=self.problem.optimizer,
            directory=self.directory / "private",
            evaluate=self.problem.evaluate,
            physical_batch_size=self.settings.physical_batch_size,
            report_every=self.reports_every(),
            key=self.key(),
            loss_kwargs={"frozen": self.problem.frozen},
            clipping=self.settings.clipping,
            l2_clip_norm=self.problem.clip_norms(self.plan.l2_clip_norm),
            plot=plot,
        )
        self.show(PRIVATE, result.params)
        return [Point(p.step, dict(p.metrics), p.epsilon) for p in result.history]

    def run_way(self, name: str, way: Way) -> list[Point]:
        """Trains without `fit`, on the batches that the same key would give it."""
        steps = self.steps_by_vmap() if name == BY_VMAP else self.plan.steps
        path = self.directory / "comparison.ledger"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # a comparison: nothing of it is released
        start = (self.problem.params, self.problem.optimizer.init(self.problem.params))
        epsilon = self.plan.epsilon if way.noise else lambda _: float("inf")
        with (
            privacy.open_ledger(path, self.plan, key=self.key()) as ledger,
            watch(name, steps, self.problem.evaluate, epsilon, self.reports_every()) as report,
        ):
            params = way.train(start, self.loader(), itertools.islice(ledger, steps), report)
        self.show(name, params)
        return report.points

    def costs(self) -> tuple[dict[str, float], dict[str, int]]:
        """Time of a step with one physical batch over the plain one's, and its temporary bytes."""
        problem, plan, clipping = self.problem, self.plan, self.settings.clipping
        steps = {name: way.whole_step for name, way in ways(problem, plan, clipping).items()}
        private = private_step(problem, plan, clipping)
        steps = {PLAIN: steps[PLAIN], PRIVATE: private, BY_VMAP: steps[BY_VMAP]}
        state = (problem.params, problem.optimizer.init(problem.params))
        batch = next(self.loader().physical_batches(random.key(1)))
        inputs = jax.device_put((state, batch, random.key(2), problem.frozen))
        compiled = {name: jax.jit(step).lower(*inputs).compile() for name, step in steps.items()}
        runs = {name: functools.partial(step, *inputs) for name, step in compiled.items()}
        memory = {n: c.memory_analysis().temp_size_in_bytes for n, c in compiled.items()}
        return time_ratios(runs, PLAIN, self.settings.rounds), memory

    def trainings(self) -> dict[str, list[Point]]:
        """Trains in three ways, and keeps what was reported."""
        self.show_start()
        points = {PRIVATE: self.run_private()}
        for name, way in ways(self.problem, self.plan, self.settings.clipping).items():
            points[name] = self.run_way(name, way)
        save_points(self.directory / "trainings.json", points)
        return points

    def run(self, time_again: bool = False) -> list[Outcome]:
        """Trains in three ways, or takes the trainings of an earlier run, and times a step of each."""
        path = self.directory / "trainings.json"
        points = load_points(path) if time_again else self.trainings()
        times, memory = self.costs()
        return [
            Outcome(name, points[name], times[name], memory[name] / memory[PLAIN])
            for name in (PLAIN, PRIVATE, BY_VMAP)
        ]


def main(
    name: str,
    title: str,
    make_problem: Callable[[dict[str, Any]], Problem],
    argv: Sequence[str] | None = None,
) -> list[Outcome]:
    """The command line of an example: reads a configuration, runs the study, prints and plots."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--config", type=Path, default=Path("configs", f"{name}.toml"))
    parser.add_argument("--directory", type=Path, default=None, help="default: out/CONFIG")
    parser.add_argument(
        "--time-again",
        action="store_true",
        help="keep the trainings of the last run, time steps anew",
    )
    args = parser.parse_args(argv)
    settings, model = read_config(args.config)
    problem = averaging(make_problem(model), settings)
    directory = args.directory or Path("out", args.config.stem)
    plan = settings.plan(len(jax.tree.leaves(problem.data)[0]))
    print(plan.describe())
    outcomes = Study(problem, settings, plan, directory).run(args.time_again)
    print_table(outcomes, plan.delta)
    save_plot(directory / "study.png", title, outcomes)
    return outcomes
