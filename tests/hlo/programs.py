"""Small programs of every kind, lowered and compiled once for all tests of this folder."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import bk_jax

B, T, D, VOCAB = 4, 5, 24, 40


class Step(NamedTuple):
    """A train step and its arguments."""

    lowered: Any
    explanation: Any


def _array(*shape: int) -> np.ndarray:
    return np.linspace(-0.5, 0.5, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def gpt2() -> tuple[Any, Any, Any]:
    """Embedding, attention, two dense layers and a head of its own."""

    def loss(params, ids):
        x = params["embedding"][ids]
        q, k, v = jnp.split(x @ params["qkv"], 3, axis=-1)
        weights = jax.nn.softmax(jnp.einsum("btd,bsd->bts", q, k))
        x = x + jnp.einsum("bts,bsd->btd", weights, v)
        x = x + jax.nn.gelu(x @ params["up"]) @ params["down"]
        return jnp.mean(jax.nn.logsumexp(x @ params["head"], axis=-1))

    shapes = {
        "embedding": (VOCAB, D), "qkv": (D, 3 * D), "up": (D, 2 * D), "down": (2 * D, D),
        "head": (D, VOCAB),
    }  # fmt: skip
    params = {name: _array(*shape) for name, shape in shapes.items()}
    return loss, params, np.arange(B * T, dtype=np.int32).reshape(B, T) % VOCAB


def resnet(examples: int = B, side: int = 9) -> tuple[Any, Any, Any]:
    """A residual block, then one that halves the picture and projects its shortcut."""

    def conv(x, kernel, stride=1):
        numbers = ("NHWC", "HWIO", "NHWC")
        strides = (stride, stride)
        return jax.lax.conv_general_dilated(x, kernel, strides, "SAME", dimension_numbers=numbers)

    def loss(params, x):
        x = conv(x, params["stem"])
        y = params["scale"] * (x - x.mean((1, 2, 3), keepdims=True))
        x = jax.nn.relu(x + conv(jax.nn.relu(y), params["block"]))
        x = conv(x, params["shortcut"], 2) + jax.nn.relu(conv(x, params["down"], 2))
        return jnp.mean((x.mean((1, 2)) @ params["head"]) ** 2)

    shapes = {
        "stem": (3, 3, 3, 8), "scale": (8,), "block": (3, 3, 8, 8), "shortcut": (1, 1, 8, 24),
        "down": (3, 3, 8, 24), "head": (24, 10),
    }  # fmt: skip
    return (
        loss,
        {name: _array(*shape) for name, shape in shapes.items()},
        _array(examples, side, side, 3),
    )


def threes() -> tuple[Any, Any, Any]:
    """Kernels, pictures and the batch are all 3; `down` is `block` three times over."""
    return resnet(3, 6)


def square() -> tuple[Any, Any, Any]:
    """As many examples as units in each layer."""

    def loss(params, x):
        x = jnp.tanh(jnp.tanh(x @ params["first"]) @ params["second"])
        return jnp.mean((x @ params["head"]) ** 2)

    shapes = {"first": (T, D), "second": (D, D), "head": (D, 10)}
    return loss, {name: _array(*shape) for name, shape in shapes.items()}, _array(D, T)


def scan() -> tuple[Any, Any, Any]:
    """Stacked layers in a scan."""

    def loss(params, x):
        body = lambda h, w: (jnp.tanh(h @ w), None)  # noqa: E731
        return jnp.mean(jax.lax.scan(body, x, params["layers"])[0] ** 2)

    return loss, {"layers": _array(5, D, D)}, _array(B, T, D)


MODELS = {"gpt2": gpt2, "resnet": resnet, "scan": scan}
ACCIDENTS = {"threes": threes, "square": square}  # sizes that agree without a reason


@functools.cache
def step(
    name: str, routes: tuple[tuple[str, str], ...] = (), platform: str = "cpu", private: bool = True
) -> Step:
    """A step of gradient descent on one of the models."""
    loss, params, batch = (MODELS | ACCIDENTS)[name]()
    transform = bk_jax.dp_value_and_grad(loss, routes=dict(routes))

    def train(params, batch, key):
        if private:
            _, grads = transform(params, batch, key=jax.random.wrap_key_data(key))
        else:
            grads = jax.grad(loss)(params, batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    key = np.zeros(2, np.uint32)
    traced = jax.jit(train).trace(params, batch, key)
    explanation = bk_jax.dp_value_and_grad(loss).explain(params, batch)
    return Step(traced.lower(lowering_platforms=(platform,)), explanation)
