"""Three small models, with the ways in which people spread such models over devices.

`pin` is what people do to activations: a sharding constraint that keeps examples on their devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

B, T, D, VOCABULARY, HEADS, EXPERTS = 8, 4, 16, 32, 2, 4
WHOLE: P = P()


@dataclasses.dataclass(frozen=True)
class Model:
    """A loss, its arguments, and for each layout the spec of every parameter."""

    loss: Callable[..., Any]
    params: dict[str, Any]
    batch: Any
    layouts: dict[str, dict[str, P]]
    routes: dict[str, str] | None = None  # so that a weight that is cut is stored


def values(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Normal parameters, small enough for a well-behaved loss."""
    rng = np.random.default_rng(0)
    return {
        name: (rng.normal(size=shape) / np.sqrt(shape[-2] if len(shape) > 1 else 2)).astype("f")
        for name, shape in shapes.items()
    }


def fsdp(shapes: dict[str, tuple[int, ...]]) -> dict[str, P]:
    """Every parameter cut over the devices that share the batch, along the first axis that fits."""
    specs = {}
    for name, shape in shapes.items():
        fits = [axis for axis, size in enumerate(shape) if size % 4 == 0]
        specs[name] = P(*[None] * fits[0], "data") if fits else WHOLE
    return specs


def cut_again(spec: P) -> P:
    """FSDP of what tensor parallelism left whole: the first axis, or the second if that is taken."""
    if not spec:
        return P("data")
    first, *others = spec
    if first is None:
        return P("data", *others)
    return P(first, "data") if others else spec


Pin = Callable[[jax.Array], jax.Array]


def norm(scale: jax.Array, x: jax.Array) -> jax.Array:
    return scale * x / jnp.sqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 0.1)


def transformer(pin: Pin = lambda x: x) -> Model:
    """A decoder with a tied head; Megatron's tensor parallelism, the vocabulary cut as well."""

    def loss(params: Any, ids: jax.Array) -> jax.Array:
        x = pin(params["table"][ids] + params["position"])
        h = norm(params["norm"], x)
        q, k, v = (
            (h @ params[name]).reshape(*h.shape[:2], HEADS, D // HEADS) for name in ("q", "k", "v")
        )
        weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k))
        mixed = jnp.einsum("bhts,bshd->bthd", weights, v).reshape(h.shape)
        x = pin(x + mixed @ params["out"])
        x = pin(x + jnp.tanh(x @ params["up"] + params["bias"]) @ params["down"])
        logits = jax.nn.log_softmax(x @ params["table"].T)
        return -jnp.mean(jnp.take_along_axis(logits[:, :-1], ids[:, 1:, None], axis=-1))

    shapes = {
        "table": (VOCABULARY, D), "position": (T, D), "norm": (D,), "q": (D, D), "k": (D, D),
        "v": (D, D), "out": (D, D), "up": (D, 2 * D), "bias": (2 * D,), "down": (2 * D, D),
    }  # fmt: skip
    column, row = P(None, "model"), P("model", None)
    tensor = dict.fromkeys(shapes, WHOLE) | {
        "table": row, "q": column, "k": column, "v": column, "out": row,
        "up": column, "bias": P("model"), "down": row,
    }  # fmt: skip
    ids = np.random.default_rng(1).integers(0, VOCABULARY, (B, T)).astype(np.int32)
    layouts = {"data": dict.fromkeys(shapes, WHOLE), "fsdp": fsdp(shapes), "tensor": tensor}
    layouts["product"] = {name: cut_again(spec) for name, spec in tensor.items()}
    return Model(loss, values(shapes), ids, layouts)


def resnet(pin: Pin = lambda x: x) -> Model:
    """A stem, a residual block with a strided shortcut, a head; channels cut for tensor parallelism."""

    def conv(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, kernel, (stride,) * 2, "SAME", dimension_numbers=layout
        )

    def loss(params: Any, batch: Any) -> jax.Array:
        images, labels = batch
        x = pin(jnp.tanh(conv(images, params["stem"])))
        h = jnp.tanh(conv(x, params["first"], 2) + params["bias"])
        x = pin(conv(h, params["second"]) + conv(x, params["shortcut"], 2))
        logits = jax.nn.log_softmax(jnp.mean(jnp.tanh(x), axis=(1, 2)) @ params["head"])
        return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], axis=-1))

    shapes = {
        "stem": (3, 3, 3, 4), "first": (3, 3, 4, 8), "bias": (8,), "second": (3, 3, 8, 8),
        "shortcut": (1, 1, 4, 8), "head": (8, 4),
    }  # fmt: skip
    tensor = dict.fromkeys(shapes, WHOLE) | {
        "first": P(None, None, None, "model"), "bias": P("model"),
        "second": P(None, None, "model"), "head": P("model"),
    }  # fmt: skip
    rng = np.random.default_rng(1)
    images = rng.normal(size=(B, 6, 6, 3)) * np.logspace(-1, 0, B).reshape(-1, 1, 1, 1)
    batch = (images.astype("f"), rng.integers(0, 4, B).astype(np.int32))
    layouts = {"data": dict.fromkeys(shapes, WHOLE), "fsdp": fsdp(shapes), "tensor": tensor}
    return Model(loss, values(shapes), batch, layouts)


def experts(pin: Pin = lambda x: x) -> Model:
    """A soft mixture of experts, the experts spread over devices."""

    def loss(params: Any, batch: Any) -> jax.Array:
        x, y = batch
        gate = jax.nn.softmax(x @ params["gate"])
        h = jnp.tanh(jnp.einsum("btd,edh->beth", x, params["up"]))
        out = pin(jnp.einsum("beth,ehd,bte->btd", h, params["down"], gate))
        return jnp.mean(jnp.square(out + params["bias"] - y))

    shapes = {
        "gate": (D, EXPERTS), "up": (EXPERTS, D, 8), "down": (EXPERTS, 8, D), "bias": (D,)
    }  # fmt: skip
    expert = dict.fromkeys(shapes, WHOLE) | {"up": P("model"), "down": P("model")}
    rng = np.random.default_rng(1)
    scale = np.logspace(-1, 0, B).reshape(-1, 1, 1)
    batch = tuple((scale * rng.normal(size=(B, T, D))).astype("f") for _ in range(2))
    cut = fsdp(shapes) | {"up": P(None, "data"), "down": P(None, "data")}
    layouts = {"data": dict.fromkeys(shapes, WHOLE), "fsdp": cut, "tensor": expert}
    return Model(loss, values(shapes), batch, layouts, routes={"down": "store"})


def stacked(pin: Pin = lambda x: x) -> Model:
    """Layers in a scan, weights with several axes, one of the inner ones cut: heads and groups."""

    def layer(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        q, k, v = jnp.moveaxis(jnp.einsum("btd,dshk->btshk", x, w["qkv"]), 2, 0)
        weights = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k))
        x = pin(x + jnp.einsum("bhts,bshk,hkd->btd", weights, v, w["out"]))
        grouped = jnp.einsum("btgc,gce->btge", x.reshape(*x.shape[:2], 4, 4), w["groups"])
        return pin(x + jnp.tanh(grouped).reshape(x.shape)), None

    def loss(params: Any, x: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(jax.lax.scan(layer, x, params)[0]))

    shapes = {"qkv": (2, D, 3, 4, 6), "out": (2, 4, 6, D), "groups": (2, 4, 4, 4)}
    cut = {"qkv": P(None, None, None, "model"), "out": P(None, "model"), "groups": P(None, "model")}
    batch = np.random.default_rng(1).normal(size=(B, T, D)).astype("f")
    small = {name: value / 4 for name, value in values(shapes).items()}
    return Model(loss, small, batch, {"tensor": cut}, routes={"groups": "store"})


MODELS = {"transformer": transformer, "resnet": resnet, "experts": experts, "stacked": stacked}
