"""What `training.fit` costs over its own bare step: sampling, padding, accounting, checkpoints, reports.

    bazel run //benchmarks/steps:fit_benchmark -- mlp --batch 64
    python -m benchmarks.steps.fit_benchmark gpt2 --batch 4 --length 100 --depth 2 --chunk 10

The bare step is the very program that `fit` compiles, on batches that were drawn beforehand. The two
take turns in one process: `fit` reports after every chunk of steps, and in that report (its `evaluate`)
the bare step takes as many. A ratio is the median over chunks, with a 95 % interval; the goal is at most
1.03. The parts are what each piece of `fit` holds its loop up for, per step; while it does, the step
before may still run, so they do not add up to the difference. `--clock cpu` counts the time of all
threads of this process: less disturbed on a busy machine, but blind to waiting for the disk.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import optax
import rich.console

import bk_jax
from benchmarks.ops import machine
from benchmarks.steps import step_models
from bk_jax import privacy, training
from bk_jax.overhead.timing import Clock, Timing, summarize
from bk_jax.privacy import Ledger, Step
from bk_jax.sampling import Loader, sampler_of
from bk_jax.training import steps as training_steps
from bk_jax.training.checkpoints import Checkpoints
from bk_jax.training.recorder import Recorder

GOAL = 1.03
RATE = 1e-6  # parameters hardly move: every step has the same work
BATCHES = 8  # drawn beforehand for the bare step
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
PARTS = {
    "accounting": (Ledger, "take"),
    "sampling": (Loader, "batch"),
    "checkpoints": (Checkpoints, "save"),
    "recording": (Recorder, "step"),
}


class Found(NamedTuple):
    """Seconds per step of `fit` against those of its bare step, and what its parts took."""

    timing: Timing
    parts: dict[str, float]


@dataclasses.dataclass
class Drawn:
    """In place of a loader: batches that are there."""

    batches: list[Any]
    turn: int = 0

    def batch(self, key: Any) -> Any:
        del key
        self.turn += 1
        return self.batches[self.turn % len(self.batches)]


def plan_of(batch: int, examples: int, steps: int) -> privacy.PrivacyPlan:
    """Batches of that size on average, padded to what nearly all of them fit into."""
    most = batch + 4 * int(batch**0.5) + 1
    return privacy.PrivacyPlan(
        num_examples=examples, batch_size=batch, steps=steps, delta=1e-6, noise_multiplier=1.0,
        max_batch_size=min(most, examples), pld_interval=0.01,
    )  # fmt: skip


def bare_run(task: step_models.Task, plan: Any, optimizer: Any) -> Callable[[], Any]:
    """One step of the program that `fit` compiles; goes on from where it was."""
    grad_fn = training_steps.make_grad_fn(task.loss, plan, {}, ())
    take_step = training_steps.step_as_one(grad_fn, optimizer, {})
    sampler_at = sampler_of(plan, bk_jax.random.key(0))
    keys = [bk_jax.random.key(number) for number in range(BATCHES)]
    loaders = [Loader(task.batch, sampler_at(number)) for number in range(BATCHES)]
    drawn = Drawn([loader.batch(key) for loader, key in zip(loaders, keys, strict=True)])
    states = [training_steps.initial_state(optimizer, task.params)]
    step = Step(0, bk_jax.random.key(1), bk_jax.random.key(2))

    def run() -> Any:
        states[0], seen = take_step(states[0], drawn, step)  # type: ignore[arg-type]
        return states[0].params, seen

    return run


class Turns:
    """Lets the bare step take as many steps as `fit` took since the last time."""

    def __init__(self, run: Callable[[], Any], chunk: int, clock: Clock) -> None:
        self.run, self.chunk, self.clock = run, chunk, clock
        self.pairs: list[tuple[float, float]] = []
        self.since: float | None = None  # the first chunk of `fit` also compiles
        jax.block_until_ready(run())

    def __call__(self, params: Any) -> dict[str, float]:
        jax.block_until_ready(params)
        begin = self.clock()
        for _ in range(self.chunk):
            out = self.run()
        jax.block_until_ready(out)
        end = self.clock()
        if self.since is not None:
            self.pairs.append(((end - begin) / self.chunk, (begin - self.since) / self.chunk))
        self.since = self.clock()
        return {}


@contextmanager
def clocked(seconds: dict[str, float]) -> Iterator[None]:
    """Adds up how long the parts of `fit` hold it up."""

    def timed(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                seconds[name] += time.perf_counter() - begin

        return call

    with ExitStack() as stack:
        for name, (owner, method) in PARTS.items():
            changed = timed(name, getattr(owner, method))
            stack.enter_context(mock.patch.object(owner, method, changed))
        yield


def measure(
    task: step_models.Task,
    plan: Any,
    chunk: int,
    checkpoint_every: int,
    folder: Path,
    clock: Clock = time.perf_counter,
) -> Found:
    """Runs `fit` for the steps of the plan, with turns of the bare step in between."""
    optimizer = optax.sgd(RATE)
    turns = Turns(bare_run(task, plan, optimizer), chunk, clock)
    seconds: dict[str, float] = defaultdict(float)
    with clocked(seconds):
        training.fit(
            task.loss, task.params, task.batch, plan=plan, optimizer=optimizer, directory=folder,
            evaluate=turns, report_every=chunk, checkpoint_every=checkpoint_every, plot=False,
            console=rich.console.Console(file=io.StringIO()),
        )  # fmt: skip
    return Found(summarize(turns.pairs), {name: seconds[name] / plan.steps for name in PARTS})


def describe(found: Found) -> str:
    """Lines for people."""
    t = found.timing
    parts = ", ".join(f"{name} {1e3 * seconds:.2f}" for name, seconds in found.parts.items())
    verdict = "within" if t.ratio <= GOAL else "above"
    return (
        f"bare step {1e3 * t.baseline:.1f} ms, fit {1e3 * t.seconds:.1f} ms: {t.ratio:.3f} "
        f"({t.low:.3f} .. {t.high:.3f}, {t.pairs} chunks), {verdict} {GOAL}\n"
        f"held up by, ms per step: {parts}"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=sorted(step_models.MODELS))
    parser.add_argument("--batch", type=int, default=64, help="examples in a batch, on average")
    parser.add_argument("--length", type=int, help="tokens of an example (gpt2, roberta)")
    parser.add_argument("--depth", type=int, help="layers (mlp) or blocks (transformers)")
    parser.add_argument("--width", type=int, help="of layers (mlp)")
    parser.add_argument("--examples", type=int, help="in the data; 16 batches unless given")
    parser.add_argument("--chunk", type=int, default=20, help="steps between turns")
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--checkpoint-every", type=int, default=100)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: of all threads")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    print(machine.describe())
    sizes = {name: getattr(arguments, name) for name in ("length", "depth", "width")}
    given = {name: size for name, size in sizes.items() if size is not None}
    examples = arguments.examples or 16 * arguments.batch
    task = step_models.make(arguments.model, batch=examples, **given)
    plan = plan_of(arguments.batch, examples, arguments.chunk * (arguments.chunks + 1))
    with tempfile.TemporaryDirectory() as folder:
        options = (
            arguments.chunk,
            arguments.checkpoint_every,
            Path(folder) / "run",
            CLOCKS[arguments.clock],
        )
        print(describe(measure(task, plan, *options)))


if __name__ == "__main__":
    main()
