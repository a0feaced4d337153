"""Layers of one shape on eight devices, planned for a GPU: results, and which came together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import bk_jax
from bk_jax import ops
from bk_jax.summing.blocks import equal

B, T, D, DEPTH = 8, 4, 16, 4
SPECS = {"up": P(None, "model"), "down": P("model", None)}


def loss(params: Any, x: jax.Array, axes: tuple[str, ...] = ()) -> jax.Array:
    """Blocks of two layers of one shape; `axes`: over which a device adds up its part of the sums."""
    for block in params:
        inner = jnp.tanh(x @ block["up"])
        out = inner @ block["down"]
        x = x + (jax.lax.psum(out, axes) if axes else out)
    return jnp.mean(jnp.square(x.astype(jnp.float32)))


def values(dtype: Any) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return np.asarray(rng.normal(size=shape) / 4, dtype)

    params = [{"up": draw(D, 2 * D), "down": draw(2 * D, D)} for _ in range(DEPTH)]
    return params, draw(B, T, D)


def grad_fn(axes: tuple[str, ...] = (), device: str = "A100") -> Any:
    return bk_jax.clipped_value_and_grad(
        lambda params, x: loss(params, x, axes),
        l2_clip_norm=0.1, routes={"*": "ghost"}, device=device, dtype=jnp.float32,
    )  # fmt: skip


def on_mesh(mesh: Any, specs: Any, params: Any, x: Any) -> Any:
    """Divided by XLA."""
    places = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)
    given = jax.device_put(params, places), jax.device_put(x, NamedSharding(mesh, P("data")))
    return jax.jit(lambda *args: grad_fn()(*args)[1], out_shardings=places)(*given)


def mapped(mesh: Any, specs: Any, axes: tuple[str, ...], params: Any, x: Any) -> Any:
    """Divided by hand."""
    inside = jax.shard_map(
        lambda *args: grad_fn(axes)(*args)[1],
        mesh=mesh, in_specs=(specs, P("data")), out_specs=specs,
    )  # fmt: skip
    return jax.jit(inside)(params, x)


def equal_layers(make_mesh: Any) -> dict[str, Any]:
    """For each way: the largest difference from one device, the largest gradient, numbers of layers."""
    found = {}
    halves = [SPECS] * (DEPTH // 2) + [dict.fromkeys(SPECS, P())] * (DEPTH // 2)
    for dtype in (jnp.float32, jnp.bfloat16):
        params, x = values(dtype)
        one = jax.jit(lambda *args: grad_fn(device="cpu")(*args)[1])(params, x)
        whole = [dict.fromkeys(SPECS, P())] * DEPTH
        ways = {
            "jit, data": lambda: on_mesh(make_mesh(8, 1), whole, params, x),  # noqa: B023
            "jit, half of the layers in parts": lambda: on_mesh(make_mesh(2, 4), halves, params, x),  # noqa: B023
            "map, data": lambda: mapped(make_mesh(2, 1), whole, (), params, x),  # noqa: B023
            "map, layers in parts": lambda: mapped(
                make_mesh(2, 4), [SPECS] * DEPTH, ("model",), params, x  # noqa: B023
            ),
        }  # fmt: skip
        for name, run in ways.items():
            with pytest.MonkeyPatch.context() as patch:
                counts: dict[str, list[int]] = {"ghost_norms": [], "clipped_gemms": []}
                for op, numbers in counts.items():
                    patch.setattr(ops, op, _counting(getattr(ops, op), numbers))
                patch.setattr(equal, "PART", 1)
                many = run()
            pairs = list(zip(jax.tree.leaves(many), jax.tree.leaves(one), strict=True))
            found[f"{name}, {jnp.dtype(dtype).name}"] = {
                "error": max(float(np.abs(np.asarray(a) - b).max()) for a, b in pairs),
                "largest": max(float(np.abs(b).max()) for _, b in pairs),
                **counts,
            }
    return found


def _counting(fun: Any, numbers: list[int]) -> Any:
    """The same, and the number of layers of each call."""

    def counted(*args: Any) -> Any:
        numbers.append(len(args[-1]))
        return fun(*args)

    return counted
