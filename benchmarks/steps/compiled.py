"""Train steps by name, compiled: what XLA needs for one is known before it runs.

    task = step_models.make("mlp", abstract=True)
    compile_step(task, "auto").peak

Names: `plain` is `jax.value_and_grad`; a method of `bk_jax.planning.methods` clips without
noise; `noise` is `auto` with noise.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import bk_jax
from benchmarks.steps.step_models import Task
from bk_jax.planning.methods import METHODS

# In the order of the paper, the slowest first; ours last.
PAPER = ("tf_privacy", "opacus", "fast_grad_clip", "ghost_clip", "mix_ghost_clip")
BOOK = ("bk", "bk_mix_ghost_clip", "bk_mix_opt", "auto")
ALL = (*PAPER, *BOOK)
assert set(ALL) == METHODS.keys()


# XLA assigns buffers before LLVM sees the program: the same bytes, in half the time.
UNOPTIMIZED = {"xla_backend_optimization_level": 0}


class Compiled(NamedTuple):
    """A program with its arguments, seconds to trace and to compile it, and bytes that it needs.

    `temporary` is XLA's own; `peak` adds parameters, batch and gradients, which exist besides; `given`
    is what of that is there before it runs. Custom calls allocate a few megabytes more
    (tests/custom_calls/scratch_test.cc says how many). Nobody knows how long a program compiles that
    was compiled for its bytes alone.
    """

    run: Callable[[], Any]
    trace: float
    compile: float | None
    temporary: int
    peak: int
    given: int = 0


@dataclasses.dataclass(frozen=True)
class Traced:
    """A program that XLA has not seen yet, with its arguments and the seconds that tracing took."""

    lowered: Any
    args: tuple[Any, ...]
    seconds: float

    def fingerprint(self) -> str:
        """Steps that have the same are one program: methods often choose alike."""
        return hashlib.sha256(self.lowered.as_text().encode()).hexdigest()

    def compile(self, *, to_run: bool = True) -> Compiled:
        """For bytes alone, what is not to run is compiled faster."""
        start = time.perf_counter()
        program = self.lowered.compile(compiler_options=None if to_run else UNOPTIMIZED)
        seconds = time.perf_counter() - start if to_run else None
        memory = program.memory_analysis()
        temporary = memory.temp_size_in_bytes if memory is not None else 0
        given, made = 0, 0
        if memory is not None:
            given = memory.argument_size_in_bytes
            made = memory.output_size_in_bytes - memory.alias_size_in_bytes
        run = partial(program, *self.args)
        return Compiled(run, self.seconds, seconds, temporary, temporary + given + made, given)


def trace_program(fun: Callable[..., Any], *args: Any) -> Traced:
    """Traces for arguments that are arrays, or shapes if it is not to be run."""
    start = time.perf_counter()
    lowered = jax.jit(fun).lower(*args)
    return Traced(lowered, args, time.perf_counter() - start)


def step_function(task: Task, name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A step by name, and its arguments."""
    if name == "plain":
        return jax.value_and_grad(task.loss), (task.params, task.batch)
    if name == "noise":
        noisy = bk_jax.dp_value_and_grad(task.loss)

        def step(params: Any, batch: Any, seed: Any) -> Any:
            return noisy(params, batch, key=jax.random.key(seed))

        return step, (task.params, task.batch, jnp.uint32(1))
    clipped = bk_jax.clipped_value_and_grad(task.loss, method=name)
    return clipped, (task.params, task.batch)


def trace_step(task: Task, name: str) -> Traced:
    """Traces the step of that name."""
    fun, args = step_function(task, name)
    return trace_program(fun, *args)


def compile_step(task: Task, name: str) -> Compiled:
    """Compiles it."""
    return trace_step(task, name).compile()
