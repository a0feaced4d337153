"""jax_privacy and optax against plain JAX, in the environment that holds them; bk_jax beside them.

One comparison as JSON on standard input, the result as JSON on standard output (benchmarks/suite).

| step | is |
|---|---|
| `jax_privacy` | `clipped_grad`: one vmap over all examples |
| `jax_privacy, loop` | the same with `microbatch_size=1`, its strongest form on a CPU |
| `optax` | `vmap(grad)` and `per_example_global_norm_clip` |
| `bk_jax` | `clipped_value_and_grad` |
| `bk_jax, loop` | the same with `method="tf_privacy"`: one example after the other |
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

import jax
import optax

import bk_jax
from benchmarks.peers import flax_models
from benchmarks.steps.compiled import trace_program
from benchmarks.suite.comparisons import Comparison, from_dict
from benchmarks.suite.worker import describe_compiled, time_all

R = 1.0  # clip norm
Loss = Callable[..., Any]
LIBRARIES = ("jax", "jax_privacy", "optax", "flax", "transformers")


def by_jax_privacy(loss: Loss, microbatch_size: int | None = None) -> Callable[..., Any]:
    import jax_privacy

    return jax_privacy.clipped_grad(
        loss, l2_clip_norm=R, microbatch_size=microbatch_size, return_values=True
    )


def by_optax(loss: Loss) -> Callable[..., Any]:
    def one(params: Any, example: Any) -> Any:
        return jax.value_and_grad(loss)(params, jax.tree.map(lambda x: x[None], example))

    def step(params: Any, batch: Any) -> Any:
        losses, grads = jax.vmap(one, (None, 0))(params, batch)
        leaves, tree = jax.tree.flatten(grads)
        clipped, _ = optax.per_example_global_norm_clip(leaves, R)
        return losses.mean(), jax.tree.unflatten(tree, clipped)

    return step


STEPS: dict[str, Callable[[Loss], Callable[..., Any]]] = {
    "plain": jax.value_and_grad,
    "jax_privacy": by_jax_privacy,
    "jax_privacy, loop": lambda loss: by_jax_privacy(loss, 1),
    "optax": by_optax,
    "bk_jax": lambda loss: bk_jax.clipped_value_and_grad(loss, l2_clip_norm=R),
    "bk_jax, loop": lambda loss: bk_jax.clipped_value_and_grad(
        loss, l2_clip_norm=R, method="tf_privacy"
    ),
}


def mean_loss(name: str, out: Any) -> float:
    """The mean loss that a step returned; jax_privacy returns gradients first and one loss each."""
    return float(out[1].values.mean() if name.startswith("jax_privacy") else out[0])


def norm_of_sum(name: str, out: Any) -> float:
    """The norm of the clipped sum that it returned: the same in all, or they did not do the same."""
    return float(optax.tree.norm(out[0] if name.startswith("jax_privacy") else out[1]))


def versions() -> str:
    """Of the libraries that are installed."""
    found = {one.name.replace("-", "_"): one.version for one in metadata.distributions()}
    return ", ".join(f"{name} {found[name]}" for name in LIBRARIES if name in found)


def measure(comparison: Comparison) -> dict[str, Any]:
    task = flax_models.make(comparison.model, **comparison.sizes)
    params, batch = jax.device_put((task.params, task.batch))
    names = ["plain", *comparison.steps]
    compiled = {
        name: trace_program(STEPS[name](task.loss), params, batch).compile() for name in names
    }
    steps = {name: describe_compiled(step) for name, step in compiled.items()}
    runs = time_all(comparison, compiled, steps)
    outs = {name: run() for name, run in runs.items()}
    return {
        "steps": steps,
        "losses": {name: mean_loss(name, out) for name, out in outs.items()},
        "sums": {name: norm_of_sum(name, out) for name, out in outs.items() if name != "plain"},
        "versions": versions(),
    }


if __name__ == "__main__":
    print(json.dumps(measure(from_dict(json.load(sys.stdin)))))
