"""Measure: `bk_jax.tax`, from a loss to two compiled steps to a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from bk_jax import random
from bk_jax.api import dp_value_and_grad
from bk_jax.grad_fn import DPValueAndGrad
from bk_jax.overhead import seconds as profiling
from bk_jax.overhead import timing
from bk_jax.overhead.attribution import Program, make_rows, read_program
from bk_jax.overhead.report import StepMemory, Tax
from bk_jax.overhead.seconds import Profile
from bk_jax.program.plain import plain_value_and_grad
from bk_jax.program.trace import Signature, arrays_of, flatten_parameters, merge_arrays

REFUSED = ("return_stats",)
SHARE_OF_PROFILE = 0.25  # of the budget


def tax(
    loss_fn: Callable[..., Any],
    params: Any,
    batch: Any,
    *args: Any,
    rounds: int = 5,
    budget: float = 10.0,
    profile: bool = True,
    key: Any = None,
    **options: Any,
) -> Tax:
    """What privacy costs a train step: time and memory against the same step without it.

    Compiles `jax.value_and_grad(loss_fn)` and `bk_jax.dp_value_and_grad(loss_fn, **options)`, runs
    them in turn, and reports how much longer the private one takes, with an interval. It also
    compares the plain step with itself: differences of that size mean nothing. Then it runs both
    under JAX's profiler and reports which parameters cause the difference, next to what flops and
    bytes predict. The gradients are thrown away.

    >>> import jax.numpy as jnp, bk_jax
    >>> def loss_fn(params, x):
    ...     return jnp.mean(jnp.tanh(x @ params["kernel"] + params["bias"]) ** 2)
    >>> params = {"kernel": jnp.ones((16, 32)), "bias": jnp.zeros(32)}
    >>> report = bk_jax.tax(loss_fn, params, jnp.ones((8, 4, 16)), rounds=1, budget=0.1)
    >>> report.ratio > 0
    True
    >>> [(row.name, row.route) for row in report.rows if row.kind == "parameter"]
    [('bias', 'leaf'), ('kernel', 'ghost')]

    `print(report)` is a table, `report.plot("tax.png")` a picture, `report.to_json()` for machines.

    Args:
      loss_fn: a mean loss of a batch, as `dp_value_and_grad` takes it.
      params: the parameters.
      batch: the batch at its real size: the tax depends on it.
      *args: further arguments of `loss_fn`.
      rounds: minimum rounds of the comparison; each runs every step twice, next to the plain one.
      budget: approximate seconds of measuring; compiling comes on top.
      profile: whether to run both steps under JAX's profiler, for the time of each parameter.
      key: for the noise; fixed by default, which is safe because nothing is released.
      **options: of `dp_value_and_grad`: `l2_clip_norm`, `noise_multiplier`, `method`, ...

    Returns:
      A `bk_jax.overhead.Tax`.
    """
    _check(rounds, budget, options, (params, batch, *args))
    grad_fn = dp_value_and_grad(loss_fn, **options)
    steps = _make_steps(grad_fn, (params, batch, *args), key, options)
    explanation = grad_fn.explain(params, batch, *args)
    timed = 1 - SHARE_OF_PROFILE if profile else 1.0
    others = {name: step.run for name, step in steps.items()}
    timings = timing.interleave(steps["plain"].run, others, budget=timed * budget, rounds=rounds)
    plain_seconds = timings["plain"].seconds
    paths = _paths(grad_fn, (params, batch, *args))
    programs = {name: read_program(steps[name].compiled, paths) for name in ("plain", "private")}
    once = plain_seconds + timings["private"].seconds
    turns = max(4, min(50, int(SHARE_OF_PROFILE * budget / once)))
    profiles, note = _profile(steps, programs, turns) if profile else (None, "not profiled")
    rows = make_rows(programs, explanation, profiles)
    return Tax(
        method=grad_fn.method.name,
        batch_size=explanation.batch_size,
        device=jax.devices()[0].device_kind,
        noise_multiplier=float(grad_fn.noise_multiplier),
        plain_seconds=plain_seconds,
        time=timings["private"],
        time_without_noise=timings.get("clipped", timings["private"]),
        plain_against_itself=timings["plain"],
        plain_memory=steps["plain"].memory,
        private_memory=steps["private"].memory,
        flops_ratio=explanation.flops_ratio,
        predicted_ratio=1 + sum(row.predicted for row in rows),
        rows=rows,
        profiled_steps=profiles["plain"].steps if profiles else 0,
        note=note,
    )


def _check(rounds: int, budget: float, options: Mapping[str, Any], args: Sequence[Any]) -> None:
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"rounds must be a whole number, at least 1; got {rounds!r}.")
    if not isinstance(budget, (int, float)) or not budget > 0:
        raise ValueError(f"budget must be a positive number of seconds, got {budget!r}.")
    for name in REFUSED:
        if name in options:
            raise TypeError(f"tax returns a report, not gradients; it takes no {name}.")
    for leaf in arrays_of(args):
        if isinstance(leaf, (jax.core.Tracer, jax.ShapeDtypeStruct)):
            raise TypeError(
                f"tax runs the step, so it needs arrays; got {leaf}. Call it outside of jit."
            )


def _make_steps(
    grad_fn: DPValueAndGrad, args: Sequence[Any], key: Any, options: Mapping[str, Any]
) -> dict[str, Step]:
    """The plain step, the private one, and, if that has noise, the one without."""
    has_noise = float(grad_fn.noise_multiplier) > 0
    if has_noise and key is None:
        key = random.key(0)
    loss_fn, signature = grad_fn.loss_fn, grad_fn.signature
    steps = {
        "private": private_step(grad_fn, args, key if has_noise else None, "private"),
        "plain": plain_step(loss_fn, signature, args, "plain"),
    }
    if has_noise:
        clipped = dp_value_and_grad(loss_fn, **{**options, "noise_multiplier": 0.0})
        steps["clipped"] = private_step(clipped, args, None, "clipped")
    return steps


def _paths(grad_fn: DPValueAndGrad, args: Sequence[Any]) -> list[str]:
    parameters = flatten_parameters(args, grad_fn.signature.argnums)
    return [leaf.path for leaf in parameters.trainable_leaves()]


def _profile(
    steps: Mapping[str, Step], programs: Mapping[str, Program], turns: int
) -> tuple[dict[str, Profile] | None, str]:
    """Profiles of the plain and the private step, or None and the reason."""
    try:
        events = profiling.record({name: steps[name].run for name in programs}, turns)
    except RuntimeError as error:
        return None, f"JAX's profiler did not start: {error}"
    found = {
        name: profiling.summarize(events, name, program.instructions, program.holding)
        for name, program in programs.items()
    }
    kept = {name: seen for name, seen in found.items() if seen is not None}
    if len(kept) < len(found):
        return None, "JAX's profiler reports no operations on this device"
    return kept, ""


@dataclasses.dataclass(frozen=True)
class Step:
    """A compiled step; its last results are the gradients, one per trained parameter."""

    compiled: Any
    run: Callable[[], Any]

    @property
    def memory(self) -> StepMemory | None:
        """What XLA reports for it, where it reports anything."""
        found = self.compiled.memory_analysis()
        if found is None:
            return None
        kept = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
        return StepMemory(found.temp_size_in_bytes, kept + found.temp_size_in_bytes)


def private_step(grad_fn: DPValueAndGrad, args: Sequence[Any], key: Any, name: str) -> Step:
    """The value and the private gradients."""

    def step(arrays: list[Any], key: Any) -> Any:
        call_args = merge_arrays(args, arrays)
        value, grads = grad_fn(*call_args, key=key)
        several = (grads,) if grad_fn.single else grads
        leaves = jax.tree_util.tree_leaves(several)
        return value, [leaves[i] for i in _trained(grad_fn.signature, call_args)]

    return _compile(step, name, arrays_of(args), key)


def plain_step(
    loss_fn: Callable[..., Any], signature: Signature, args: Sequence[Any], name: str
) -> Step:
    """The value and the gradients of the mean loss, by `jax.value_and_grad`."""

    def step(arrays: list[Any]) -> Any:
        return plain_value_and_grad(loss_fn, signature, merge_arrays(args, arrays))

    return _compile(step, name, arrays_of(args))


def _trained(signature: Signature, args: Sequence[Any]) -> tuple[int, ...]:
    return flatten_parameters(args, signature.argnums).trainable


def _compile(step: Callable[..., Any], name: str, *args: Any) -> Step:
    step.__name__ = step.__qualname__ = f"bk_tax_{name}"
    args = jax.device_put(args)
    compiled = jax.jit(step).lower(*args).compile()
    return Step(compiled, lambda: compiled(*args))
