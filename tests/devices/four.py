"""One of four processes that hold a model together, a device each; started by `processes_test.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import bk_jax
from devices.networks import MODELS, Model

# Sizes of the axes `data` and `model`: in `tensor` and `product` a layer lies in two processes.
LAYOUTS = {
    "transformer": {"data": (4, 1), "fsdp": (4, 1), "tensor": (1, 4), "product": (2, 2)},
    "experts": {"tensor": (2, 2)},
    "stacked": {"tensor": (2, 2)},
}
KEY = 3


def private_step(model: Model, key: Any) -> Any:
    """Value, noisy gradients and norms."""
    grad_fn = bk_jax.dp_value_and_grad(
        model.loss, l2_clip_norm=0.5, noise_multiplier=1.0, return_stats=True, routes=model.routes
    )
    return lambda params, batch: grad_fn(params, batch, key=key)


def spread(tree: Any, specs: Any, mesh: Mesh) -> Any:
    """Arrays of which every process has the parts of its own device."""

    def place(x: Any, spec: P) -> jax.Array:
        sharding = NamedSharding(mesh, spec)
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    return jax.tree.map(place, tree, specs)


def on_all(name: str, layout: str, sizes: tuple[int, int]) -> Any:
    """The step with parameters and examples over the devices of all processes, gathered at the end."""
    mesh = jax.make_mesh(sizes, ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    pinned = NamedSharding(mesh, P("data"))
    model = MODELS[name](lambda x: jax.lax.with_sharding_constraint(x, pinned))
    params = spread(model.params, model.layouts[layout], mesh)
    batch = spread(model.batch, jax.tree.map(lambda x: P("data"), model.batch), mesh)
    step = jax.jit(private_step(model, bk_jax.random.key(KEY)))
    return multihost_utils.process_allgather(step(params, batch), tiled=True)


def main(file: str, number: str, port: str) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 4, int(number), heartbeat_timeout_seconds=60)
    found = {
        f"{name} {layout} {index}": np.asarray(leaf)
        for name, layouts in LAYOUTS.items()
        for layout, sizes in layouts.items()
        for index, leaf in enumerate(jax.tree.leaves(on_all(name, layout, sizes)))
    }
    if number == "0":
        np.savez(Path(file), **found)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
