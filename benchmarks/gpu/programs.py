"""Train steps compiled by XLA for a GPU that is not there, on one device or on a mesh of several.

    mesh = make_mesh("a100", data=4)
    compile_step(task, "auto", mesh, Layout("fsdp")).peak

configs/gpus describes the devices; `tools/gpu_environment.py` runs Python with what this needs.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.gpu.layouts import parameter_specs
from benchmarks.steps.compiled import step_function
from benchmarks.steps.step_models import Task
from bk_jax import hlo

GPUS = Path(__file__).resolve().parents[2] / "configs" / "gpus"


class Program(NamedTuple):
    """A compiled step; `temporary` is XLA's own memory on one device, `peak` adds what lives besides."""

    compiled: Any
    temporary: int
    peak: int

    def module(self) -> hlo.Module:
        """What XLA made of it, as data."""
        return hlo.load(self.compiled)[0]


def missing() -> str:
    """Why nothing can be compiled for a GPU in this process; empty if it can."""
    if importlib.util.find_spec("jax_cuda13_plugin") is None:
        return (
            "JAX's CUDA plugin is not installed here; tools/gpu_environment.py runs Python with it"
        )
    if importlib.util.find_spec("bk_jax._cuda") is None:
        return "bk_jax._cuda was not built (python tools/build_native.py --cuda)"
    return ""


@functools.cache
def _topology(gpu: str, devices: int, memory: int | None) -> topologies.TopologyDescription:
    description = (GPUS / f"{gpu}.pbtxt").read_text()
    if memory is not None:
        size = f"device_memory_size: {memory}"
        description = re.sub(r"device_memory_size: \d+", size, description)
    topology = f"1x1x{devices}"
    return topologies.get_topology_desc(
        platform="cuda", target_config=description, topology=topology
    )


def make_mesh(gpu: str, data: int = 1, model: int = 1, *, memory: int | None = None) -> Mesh:
    """A mesh of GPUs of one kind, in one host, with the axes `data` and `model`.

    Where a step would take most of a device's memory, XLA computes parts of it twice instead; with
    `memory`, in bytes, the device has another size.
    """
    devices = _topology(gpu, data * model, memory)
    return topologies.make_mesh(devices, (data, model), ("data", "model"))


def described(tree: Any, specs: Any, mesh: Mesh, dtype: Any = None) -> Any:
    """Shapes in place of arrays, with their place on a mesh; numbers get `dtype`."""

    def describe(x: Any, spec: P) -> jax.ShapeDtypeStruct:
        is_number = dtype is not None and jnp.issubdtype(x.dtype, jnp.floating)
        place = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(x.shape, dtype if is_number else x.dtype, sharding=place)

    return jax.tree.map(describe, tree, specs)


def compile_program(fun: Any, *args: Any, options: Mapping[str, Any] | None = None) -> Program:
    """Compiles a function of described arguments (`described`); `options` are XLA's."""
    jitted = fun if hasattr(fun, "trace") else jax.jit(fun)
    mesh = jax.tree.leaves(args)[0].sharding.mesh
    with jax.set_mesh(mesh):  # bk_jax learns from it that there are several devices
        lowered = jitted.trace(*args).lower(lowering_platforms=("cuda",))
    compiled = lowered.compile(compiler_options=dict(options or {}))
    memory = compiled.memory_analysis()
    around = memory.argument_size_in_bytes + memory.output_size_in_bytes
    temporary = memory.temp_size_in_bytes
    return Program(compiled, temporary, temporary + around - memory.alias_size_in_bytes)


def compile_step(
    task: Task,
    name: str,
    mesh: Mesh,
    *,
    layout: str = "data",
    dtype: Any = jnp.float32,
    options: Mapping[str, Any] | None = None,
) -> Program:
    """The step of that name (`benchmarks.steps.compiled`), examples split along the axis `data`."""
    fun, (params, batch, *rest) = step_function(task, name)
    specs = parameter_specs(params, layout, mesh)
    examples = jax.tree.map(lambda x: P("data"), batch)
    arguments = [described(params, specs, mesh, dtype), described(batch, examples, mesh, dtype)]
    arguments += [described(x, P(), mesh) for x in rest]
    whole, parts = NamedSharding(mesh, P()), jax.tree.map(lambda s: NamedSharding(mesh, s), specs)
    jitted = jax.jit(fun, out_shardings=(whole, parts))
    return compile_program(jitted, *arguments, options=options)
