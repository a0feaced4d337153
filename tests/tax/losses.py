"""Small losses of every kind, with parameters and a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

B, T, D, VOCAB = 4, 3, 8, 10


class Problem(NamedTuple):
    """What `tax` takes, and the routes that the report must name."""

    loss: Any
    params: Any
    batch: Any
    routes: dict[str, str]
    options: dict[str, Any] = {}  # noqa: RUF012  (nobody changes it)


def array(*shape: int) -> np.ndarray:
    return np.linspace(-0.5, 0.5, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def mlp() -> Problem:
    """Two layers with biases; one parameter is not used, one is an integer."""

    def loss(params, x):
        hidden = jnp.tanh(x @ params["first"]["w"] + params["first"]["b"])
        return jnp.mean((hidden @ params["second"]["w"]) ** 2)

    params = {
        "first": {"w": array(D, 2 * D), "b": array(2 * D)}, "second": {"w": array(2 * D, D)},
        "unused": array(3), "count": np.int32(7),
    }  # fmt: skip
    routes = {"first/b": "leaf", "first/w": "ghost", "second/w": "ghost", "unused": "none"}
    return Problem(loss, params, array(B, T, D), routes)


def conv() -> Problem:
    def loss(params, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(
            x, params["kernel"], (1, 1), "SAME", dimension_numbers=numbers
        )
        return jnp.mean((jax.nn.relu(x).mean((1, 2)) @ params["head"]) ** 2)

    params = {"kernel": array(3, 3, 2, 4), "head": array(4, 5)}
    return Problem(loss, params, array(B, 5, 5, 2), {"head": "ghost", "kernel": "store"})


def scan() -> Problem:
    """Stacked layers in a scan: their weight gradients are made inside a loop."""

    def loss(params, x):
        body = lambda h, w: (jnp.tanh(h @ w), None)  # noqa: E731
        return jnp.mean(jax.lax.scan(body, x, params["layers"])[0] ** 2)

    return Problem(loss, {"layers": array(5, D, D)}, array(B, T, D), {"layers": "ghost"})


def tied() -> Problem:
    """An embedding that is also the output head."""

    def loss(params, ids):
        x = jnp.tanh(params["table"][ids] @ params["w"])
        return jnp.mean(jax.nn.logsumexp(x @ params["table"].T, axis=-1))

    ids = np.arange(B * T, dtype=np.int32).reshape(B, T) % VOCAB
    routes = {"table": "ghost", "w": "ghost"}
    return Problem(loss, {"table": array(VOCAB, D), "w": array(D, D)}, ids, routes)


def aux() -> Problem:
    """A loss of a bare example, with something beside the loss, and a bare array as parameter."""

    def loss(w, x):
        y = x @ w
        return jnp.sum(y**2), {"y": y, "x": x}

    options = {"has_aux": True, "keep_batch_dim": False}
    return Problem(loss, array(D, D), array(B, T, D), {"": "ghost"}, options)


def microbatches() -> Problem:
    """Sums are made inside a loop; one weight keeps the gradients of single examples."""

    def loss(params, x):
        return jnp.mean((x @ params["a"]) * (x @ params["b"]))

    params = {"a": array(D, D), "b": array(D, D)}
    options = {"microbatch_size": 2, "routes": {"a": "store"}}
    return Problem(loss, params, array(B, T, D), {"a": "store", "b": "ghost"}, options)


PROBLEMS = {f.__name__: f for f in (mlp, conv, scan, tied, aux, microbatches)}
