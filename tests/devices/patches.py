"""Convolutions from patches on eight devices, planned for a GPU: results, and how many patches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import bk_jax
from bk_jax import ops
from bk_jax.planning import patches

B, SIDE, CHANNELS = 16, 5, 8
# Output channels of the first kernel and input channels of the second are on several devices.
SPECS = {"up": P(None, None, None, "model"), "down": P(None, None, "model", None)}
ROUTES = ("ghost", "fused", "store")


def loss(params: Any, x: jax.Array, axes: tuple[str, ...] = ()) -> jax.Array:
    """`axes`: over which a device adds up its part of the sums."""
    inner = jnp.tanh(_convolve(x, params["up"]))
    out = _convolve(inner, params["down"])
    out = lax.psum(out, axes) if axes else out
    return jnp.mean(jnp.square(out.astype(jnp.float32)))


def _convolve(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def grad_fn(route: str, axes: tuple[str, ...] = (), device: str = "A100") -> Any:
    return bk_jax.clipped_value_and_grad(
        lambda params, x: loss(params, x, axes),
        l2_clip_norm=0.1, routes={"*": route}, device=device, dtype=jnp.float32,
    )  # fmt: skip


def convolutions(make_mesh: Any) -> dict[str, Any]:
    """For each way and route: the largest difference from one device, the largest gradient, patches."""
    rng = np.random.default_rng(0)
    shapes = {"up": (3, 3, CHANNELS, 2 * CHANNELS), "down": (3, 3, 2 * CHANNELS, CHANNELS)}
    params = {n: np.asarray(rng.normal(size=s) / 4, jnp.bfloat16) for n, s in shapes.items()}
    x = np.asarray(rng.normal(size=(B, SIDE, SIDE, CHANNELS)), jnp.bfloat16)
    found = {}
    for route in ROUTES:
        one = jax.jit(grad_fn(route, device="cpu"))(params, x)[1]
        for name, way in {"jit": on_mesh, "map": mapped}.items():
            with pytest.MonkeyPatch.context() as patch:
                made = _prefer_patches(patch)
                many = way(make_mesh(2, 4), route, params, x)
            pairs = [(np.asarray(many[leaf]), np.asarray(one[leaf])) for leaf in one]
            found[f"{name}, {route}"] = {
                "error": max(float(np.abs(a - b).max()) for a, b in pairs),
                "largest": max(float(np.abs(b).max()) for _, b in pairs),
                "made": len(made),
            }
    return found


def on_mesh(mesh: Any, route: str, params: Any, x: Any) -> Any:
    """Divided by XLA."""
    places = jax.tree.map(lambda spec: NamedSharding(mesh, spec), SPECS)
    given = jax.device_put(params, places), jax.device_put(x, NamedSharding(mesh, P("data")))
    return jax.jit(lambda *args: grad_fn(route)(*args)[1], out_shardings=places)(*given)


def mapped(mesh: Any, route: str, params: Any, x: Any) -> Any:
    """Divided by hand."""
    inside = jax.shard_map(
        lambda *args: grad_fn(route, ("model",))(*args)[1],
        mesh=mesh, in_specs=(SPECS, P("data")), out_specs=SPECS,
    )  # fmt: skip
    return jax.jit(inside)(params, x)


def _prefer_patches(patch: pytest.MonkeyPatch) -> list[int]:
    """In two parts, wherever there can be any; grows by one for each that is made."""
    made: list[int] = []
    copy, parts = ops.dense_patches, patches.Patches
    patch.setattr(ops, "dense_patches", lambda *args: made.append(1) or copy(*args))
    patch.setattr(patches, "Patches", lambda width, _, copied: parts(width, 2, copied))
    patch.setattr(patches, "route_seconds", lambda form, *_: 0.5 if form.patches else 1.0)
    return made
