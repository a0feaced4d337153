"""Programs that the gates must not let through."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.gpu.programs import Program, compile_program, make_mesh
from bk_jax import _native, ops
from gpu_programs.cases import Case, compiled


def without_calls(case: Case) -> Program:
    """The step as it is where our calls for GPUs are not registered."""
    with pytest.MonkeyPatch.context() as patch:
        nothing = _native.Library(None, (), "", switched_off=True)
        patch.setattr(_native, "cuda_library", lambda: nothing)
        return compiled(case, "auto")


def ghost_norm(order: str, examples: int) -> Program:
    """Of activations whose axes come in this order; the call wants `bntd`."""

    def norms(a: jax.Array, g: jax.Array) -> Any:
        return ops.ghost_norm(jnp.einsum(f"{order}->bntd", a), g)

    sizes = {"b": examples, "n": 1, "t": 128, "d": 768}
    place = NamedSharding(make_mesh("a100"), P())
    a, g = (
        jax.ShapeDtypeStruct([sizes[axis] for axis in axes], jnp.float32, sharding=place)
        for axes in (order, "bntd")
    )
    return compile_program(norms, a, g)
