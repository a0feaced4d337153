"""What privacy costs in accuracy: an example without it and at two budgets, three seeds each.

    python examples/utility.py --config configs/tabular.toml

The network is the same in all runs. The run that is not private has its own batch size, number of
passes and learning rate (`[plain]` of the configuration), so that it is as good as it can be. Every
run is kept in a file when it is done; runs that are there already are not made again.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import study
from utility_report import Run, load_runs, print_table, save_plot, save_runs

Tree = Any


@dataclasses.dataclass(frozen=True)
class Plain:
    """The table `[plain]`: how the run without privacy differs."""

    batch_size: int
    epochs: float
    learning_rate: float


class Example(NamedTuple):
    """An example with its settings; a problem for every seed and learning rate."""

    settings: study.Settings
    plain: Plain
    problem: Callable[..., study.Problem]


def read_example(path: Path) -> Example:
    """The example of a configuration: `configs/images_cnn.toml` is one of `images.py`."""
    settings, model = study.read_config(path)
    plain = tomllib.loads(path.read_text()).get("plain", {})
    names = ("digits", "tabular", "images", "text", "language_model")
    name = next((name for name in names if path.stem.startswith(name)), None)
    if name is None:
        raise ValueError(f"{path.stem} begins with the name of no example; there are {names}.")
    make_problem = importlib.import_module(name).make_problem

    def problem(seed: int, settings: study.Settings = settings, **others: Any) -> study.Problem:
        return study.averaging(make_problem(model | {"seed": seed} | others), settings)

    return Example(settings, study.from_table(Plain, plain, f"{path}: [plain]"), problem)


# --- runs -----------------------------------------------------------------------------------------


def private_points(example: Example, epsilon: float, seed: int) -> list[study.Point]:
    """With `bk_jax.training.fit`, in a folder that is not kept."""
    problem = example.problem(seed)
    settings = dataclasses.replace(example.settings, epsilon=epsilon, seed=seed)
    plan = calibrated(dataclasses.replace(settings, seed=None), num_rows(problem.data))
    with tempfile.TemporaryDirectory() as folder:
        points = study.Study(problem, settings, plan, Path(folder)).run_private(plot=False)
    if points[-1].step < plan.steps:
        raise KeyboardInterrupt(f"stopped after step {points[-1].step} of {plan.steps}: not kept")
    return points


@functools.cache
def calibrated(settings: study.Settings, num_examples: int) -> Any:
    """The plan; finding its noise takes seconds, and all seeds share it."""
    return settings.plan(num_examples)


def plain_points(example: Example, seed: int) -> list[study.Point]:
    """Shuffled batches of a fixed size, and the same optimizer."""
    plain, frozen = example.plain, None
    problem = example.problem(seed, learning_rate=plain.learning_rate)
    frozen = jax.device_put(problem.frozen)

    @jax.jit
    def step(state: Tree, batch: Tree, frozen: Tree) -> Tree:
        grads = jax.grad(problem.loss_fn)(state[0], batch, frozen=frozen)
        return study.update(problem, state, grads)

    params = jax.tree.map(jnp.asarray, problem.params)
    state, points = (params, problem.optimizer.init(params)), []
    count = num_rows(problem.data)
    steps = int(plain.epochs * count / plain.batch_size)
    every = max(1, steps // example.settings.reports)
    for number, batch in enumerate(batches(problem.data, plain.batch_size, steps, seed), start=1):
        state = step(state, batch, frozen)
        if number % every == 0 or number == steps:
            metrics = {n: float(x) for n, x in problem.evaluate(study.shown(state)).items()}
            points.append(study.Point(number, metrics, float("inf")))
    return points


def batches(data: Tree, size: int, steps: int, seed: int) -> Iterator[Tree]:
    """In passes over the data; what is left of a pass waits for the next one."""
    rng, order = np.random.default_rng(seed), np.zeros(0, np.int64)
    for _ in range(steps):
        if len(order) < size:
            order = np.concatenate([order, rng.permutation(num_rows(data))])
        yield jax.tree.map(lambda x: x[order[:size]], data)  # noqa: B023  (used at once)
        order = order[size:]


def num_rows(data: Tree) -> int:
    return len(jax.tree.leaves(data)[0])


def run(example: Example, epsilon: float | None, seed: int) -> Run:
    """One training, with the processor time that it took."""
    cpu, wall = time.process_time(), time.perf_counter()
    if epsilon is None:
        points, size = plain_points(example, seed), example.plain.batch_size
    else:
        points, size = private_points(example, epsilon, seed), example.settings.batch_size
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Run(epsilon, seed, size, round(cpu, 1), round(wall, 1), points)


def main(argv: Sequence[str] | None = None) -> list[Run]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epsilons", type=float, nargs="*", default=[8.0, 3.0])
    parser.add_argument("--results", type=Path, default=Path("examples", "results"))
    parser.add_argument("--figures", type=Path, default=Path("examples", "figures"))
    args = parser.parse_args(argv)
    name, example = args.config.stem, read_example(args.config)
    path = args.results / f"{name}.json"
    runs = load_runs(path)
    done = {(one.epsilon, one.seed) for one in runs}
    for seed in args.seeds:
        for epsilon in (None, *args.epsilons):
            if (epsilon, seed) not in done:
                runs.append(run(example, epsilon, seed))
                save_runs(path, runs)
    print_table(runs)
    save_plot(args.figures / f"{name}_utility.png", name, runs, num_rows(example.problem(0).data))
    return runs


if __name__ == "__main__":
    main()
