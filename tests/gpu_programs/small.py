"""Small steps, each compiled for a GPU once for all tests of this folder."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import bk_jax
from benchmarks.gpu.programs import Program, compile_program, compile_step, make_mesh
from benchmarks.steps import step_models
from bk_jax import _native, ops

EXAMPLES = 6  # no axis of a model has this size
SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"length": 128, "depth": 2, "words": 1257},  # the width of GPT2, an odd number of words
    "resnet18": {"size": 64},
}


@functools.cache
def task(model: str) -> step_models.Task:
    return step_models.make(model, abstract=True, batch=EXAMPLES, **SIZES[model])


@functools.cache
def program(model: str, step: str, gpu: str = "a100", dtype: str = "float32") -> Program:
    """A step of that name (`benchmarks.steps.compiled`)."""
    return compile_step(task(model), step, make_mesh(gpu), dtype=jnp.dtype(dtype))


def described(model: str, dtype: str = "float32") -> tuple[list[Any], Any, Any]:
    """Leaves of the parameters, parameters and batch as shapes."""
    own, dtype_ = task(model), jnp.dtype(dtype)

    def describe(x: Any) -> jax.ShapeDtypeStruct:
        is_number = jnp.issubdtype(x.dtype, jnp.floating)
        return jax.ShapeDtypeStruct(x.shape, dtype_ if is_number else x.dtype)

    params, batch = jax.tree.map(describe, (own.params, own.batch))
    return jax.tree.leaves(params), params, batch


@functools.cache
def explanation(model: str, dtype: str = "float32") -> Any:
    """The plan of the step `auto`."""
    _, params, batch = described(model, dtype)
    return bk_jax.clipped_value_and_grad(task(model).loss).explain(params, batch)


def weights(model: str, dtype: str = "float32") -> list[tuple[int, ...]]:
    """Shapes of weights whose examples' gradients must not exist: all but those that are stored."""
    rows = explanation(model, dtype).rows
    return [row.shape for row in rows if row.route not in ("store", "leaf") and len(row.shape) > 1]


def thunks(model: str, step: str, **options: Any) -> tuple[str, int]:
    """XLA's dump of what runs and what of it is in a command buffer; and how many calls are ours."""
    with tempfile.TemporaryDirectory() as folder:
        options |= {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        found = compile_step(task(model), step, make_mesh("a100"), options=options)
        (dump,) = Path(folder).glob("*.thunk_sequence_after_thunk_passes.txt")
        return dump.read_text(), len(found.module().bk_calls)


def without_calls() -> Program:
    """The step as it is where our calls for GPUs are not registered."""
    with pytest.MonkeyPatch.context() as patch:
        nothing = _native.Library(None, (), "", switched_off=True)
        patch.setattr(_native, "cuda_library", lambda: nothing)
        return compile_step(task("gpt2"), "auto", make_mesh("a100"))


def ghost_norm(order: str) -> Program:
    """Of activations whose axes come in this order; the call wants `bntd`."""

    def norms(a: jax.Array, g: jax.Array) -> Any:
        return ops.ghost_norm(jnp.einsum(f"{order}->bntd", a), g)

    sizes = {"b": EXAMPLES, "n": 1, "t": 128, "d": 768}
    place = NamedSharding(make_mesh("a100"), P())
    a, g = (
        jax.ShapeDtypeStruct([sizes[axis] for axis in axes], jnp.float32, sharding=place)
        for axes in (order, "bntd")
    )
    return compile_program(norms, a, g)
