"""What a whole train step costs, optimizer included: the plain one, and private ones.

    bazel run //benchmarks/steps:update_benchmark -- mlp --batch 64 --depth 10
    bazel run //benchmarks/steps:update_benchmark -- gpt2 --batch 4 --length 100

| row | gradients | update |
|---|---|---|
| plain | `jax.value_and_grad` | optax, fused by XLA |
| A/A | the plain step against itself: differences of its size mean nothing | |
| in steps | `grad_fn`, with noise | optax |
| one pass | `update.clipped_sums` | `bk_jax.private_update`, with noise |
| no noise | the same | the same, without noise: not private |

Parameters and the optimizer's state are donated, as users do. Steps run interleaved in one process; a
ratio is the median over pairs of neighbours, with a 95 % interval.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import bk_jax
from benchmarks.ops import machine
from benchmarks.steps import step_models
from bk_jax import optimizers
from bk_jax.overhead.timing import interleave

RATE = 1e-6  # parameters hardly move: every step has the same work
OPTIMIZERS = {
    "sgd": optimizers.sgd(RATE),
    "momentum": optimizers.sgd(RATE, 0.9),
    "adam": optimizers.adam(RATE),
    "adamw": optimizers.adamw(RATE),
}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
Step = Callable[..., tuple[Any, Any]]


class Running(NamedTuple):
    """A compiled step that goes on from where it was, and bytes of temporary memory."""

    run: Callable[[], Any]
    temporary: int


def plain_step(task: step_models.Task, optimizer: Any) -> Step:
    def step(params: Any, state: Any, batch: Any, seed: Any) -> tuple[Any, Any]:
        del seed
        _, grads = jax.value_and_grad(task.loss)(params, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return step


def step_in_steps(task: step_models.Task, optimizer: Any) -> Step:
    grad_fn = bk_jax.dp_value_and_grad(task.loss, normalize_by=64.0)

    def step(params: Any, state: Any, batch: Any, seed: Any) -> tuple[Any, Any]:
        _, grads = grad_fn(params, batch, key=jax.random.key(seed))
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return step


def step_in_one_pass(task: step_models.Task, optimizer: Any, noise: float) -> Step:
    grad_fn = bk_jax.dp_value_and_grad(task.loss, noise_multiplier=noise, normalize_by=64.0)
    update = bk_jax.private_update(grad_fn, optimizer)

    def step(params: Any, state: Any, batch: Any, seed: Any) -> tuple[Any, Any]:
        found = update.clipped_sums(params, batch)
        key = jax.random.key(seed) if noise else None
        return update(found.sums, state, params, key=key)

    return step


def steps_of(task: step_models.Task, optimizer: Any) -> dict[str, Step]:
    """The steps of the table above, by row."""
    return {
        "plain": plain_step(task, optimizer),
        "in steps": step_in_steps(task, optimizer),
        "one pass": step_in_one_pass(task, optimizer, noise=1.0),
        "no noise": step_in_one_pass(task, optimizer, noise=0.0),
    }


def start(step: Step, task: step_models.Task, optimizer: Any) -> Running:
    """Compiles a step and gives it parameters of its own."""
    own = jax.tree.map(jnp.array, task.params)
    states = [(own, jax.jit(optimizer.init)(own))]
    seed = jnp.uint32(1)
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(*states[0], task.batch, seed).compile()
    memory = compiled.memory_analysis()

    def run() -> Any:
        states[0] = compiled(*states[0], task.batch, seed)
        return states[0]

    return Running(run, memory.temp_size_in_bytes if memory is not None else 0)


def table(task: step_models.Task, name: str, arguments: argparse.Namespace) -> None:
    """One row per step; all but the milliseconds are ratios to the plain step."""
    optimizer = OPTIMIZERS[name]
    steps = steps_of(task, optimizer)
    chosen = {row: step for row, step in steps.items() if row in ("plain", *arguments.rows)}
    running = {row: start(step, task, optimizer) for row, step in chosen.items()}
    print(f"compiled the steps with {name}", file=sys.stderr, flush=True)
    plain = running.pop("plain")
    others = {"A/A": plain, **running}
    runs = {row: each.run for row, each in others.items()}
    clock = CLOCKS[arguments.clock]
    options = {"budget": arguments.budget, "rounds": arguments.rounds, "clock": clock}
    for row, timing in interleave(plain.run, runs, **options).items():
        memory = others[row].temporary / max(plain.temporary, 1)
        print(
            f"{name:9} {row:9} {1e3 * timing.seconds:9.1f} {timing.ratio:6.3f} "
            f"{timing.low:6.3f} .. {timing.high:.3f} {memory:6.2f}",
            flush=True,
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", choices=sorted(step_models.MODELS))
    parser.add_argument("--batch", type=int, help="examples in a batch")
    parser.add_argument("--length", type=int, help="tokens of an example (gpt2, roberta)")
    parser.add_argument("--depth", type=int, help="layers (mlp) or blocks (transformers)")
    parser.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=["sgd", "adam"])
    parser.add_argument("--rows", nargs="+", default=["in steps", "one pass", "no noise"])
    parser.add_argument("--budget", type=float, default=120.0, help="seconds per optimizer")
    parser.add_argument("--rounds", type=int, default=5, help="of two pairs each, at least")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: of all threads")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    print(machine.describe())
    sizes = {name: getattr(arguments, name) for name in ("batch", "length", "depth")}
    given = {name: size for name, size in sizes.items() if size is not None}
    task = step_models.make(arguments.model, **given)
    task = step_models.on_device(task)
    print(f"{'optimizer':9} {'step':9} {'ms':>9} {'ratio':>6} {'95 % interval':>15} {'temp':>6}")
    for name in arguments.optimizers:
        table(task, name, arguments)


if __name__ == "__main__":
    main()
