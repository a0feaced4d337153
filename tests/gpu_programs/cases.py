"""Steps by name: each is compiled for a GPU once for all tests, and its plan is made for that GPU."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import bk_jax
from benchmarks.gpu.programs import Program, compile_step, described, make_mesh
from benchmarks.steps import step_models


class Case(NamedTuple):
    """A model, what it is compiled for, and on how many devices (`data`, `model`)."""

    model: str
    gpu: str = "a100"
    dtype: str = "float32"
    sizes: tuple[tuple[str, int], ...] = ()
    layout: str = "data"
    mesh: tuple[int, int] = (1, 1)

    @property
    def examples(self) -> int:
        return dict(self.sizes)["batch"]

    def __str__(self) -> str:
        parts = [self.model, self.gpu, self.dtype]
        return "-".join([*parts, self.layout] if self.mesh != (1, 1) else parts)


@functools.cache
def task(case: Case) -> step_models.Task:
    """On several devices, activations are pinned to those of their examples, as people do."""
    sizes: dict[str, Any] = dict(case.sizes)
    if case.mesh != (1, 1):
        place = NamedSharding(make_mesh(case.gpu, *case.mesh), P("data"))
        sizes["pin"] = lambda x: jax.lax.with_sharding_constraint(x, place)
    return step_models.make(case.model, abstract=True, **sizes)


def compiled(case: Case, step: str, **options: Any) -> Program:
    """A step of that name (`benchmarks.steps.compiled`); `options` are XLA's."""
    mesh, dtype = make_mesh(case.gpu, *case.mesh), jnp.dtype(case.dtype)
    return compile_step(task(case), step, mesh, layout=case.layout, dtype=dtype, options=options)


program = functools.cache(compiled)


@functools.cache
def explanation(case: Case) -> Any:
    """The plan of the step `auto`, for its device."""
    own, mesh = task(case), make_mesh(case.gpu, *case.mesh)
    whole = jax.tree.map(lambda x: P(), (own.params, own.batch))
    arguments = described((own.params, own.batch), whole, mesh, jnp.dtype(case.dtype))
    with jax.set_mesh(mesh):
        return bk_jax.clipped_value_and_grad(own.loss).explain(*arguments)


def weights(case: Case) -> list[tuple[int, ...]]:
    """Shapes of weights whose examples' gradients must not exist: all but those that are stored."""
    rows = explanation(case).rows
    return [row.shape for row in rows if row.route not in ("store", "leaf") and len(row.shape) > 1]


def thunks(case: Case, **options: Any) -> tuple[str, int]:
    """XLA's dump of what runs and what of it is in a command buffer; and how many calls are ours."""
    with tempfile.TemporaryDirectory() as folder:
        dumping = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        found = compiled(case, "auto", **dumping, **options)
        # The second is there if a pass changed anything: making command buffers is one.
        dumps = sorted(Path(folder).glob("*.thunk_sequence*.txt"), key=lambda path: len(path.name))
        return dumps[-1].read_text(), len(found.module().bk_calls)
