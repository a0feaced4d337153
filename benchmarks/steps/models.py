"""The models whose train steps are timed, in plain JAX: parameters, a batch and a loss.

Sizes are those of the published models; weights are random. Normalisation is over one example
(LayerNorm, GroupNorm), as private training needs it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Params = Any
VOCABULARY = 50257


@dataclasses.dataclass(frozen=True)
class Task:
    """What a train step is made of: `loss(params, batch)` is a mean over the batch."""

    loss: Callable[[Params, Any], jax.Array]
    params: Params
    batch: Any


class Weights:
    """Draws parameters one after the other."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def normal(self, *shape: int, scale: float = 0.02) -> np.ndarray:
        return (scale * self.random.standard_normal(shape, np.float32)).astype(np.float32)

    def dense(self, d: int, p: int) -> Params:
        return {"w": self.normal(d, p), "b": np.zeros(p, np.float32)}

    def norm(self, d: int) -> Params:
        return {"scale": np.ones(d, np.float32), "bias": np.zeros(d, np.float32)}

    def conv(self, size: int, d: int, p: int) -> Params:
        kernel = self.normal(size, size, d, p, scale=(2 / (size * size * d)) ** 0.5)
        return {"kernel": kernel, **self.norm(p)}

    def ids(self, *shape: int) -> np.ndarray:
        return self.random.integers(0, VOCABULARY, shape).astype(np.int32)

    def images(self, batch: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        images = self.normal(batch, size, size, 3, scale=1.0)
        return images, self.random.integers(0, 1000, batch).astype(np.int32)


def dense(p: Params, x: jax.Array) -> jax.Array:
    return x @ p["w"] + p["b"]


def layer_norm(p: Params, x: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * p["scale"] + p["bias"]


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    picked = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)


# --- a multilayer perceptron ---


def mlp(batch: int = 128, width: int = 1000, depth: int = 10) -> Task:
    """Figure 2 of the paper: `depth` layers of `width`, then ten classes."""
    w = Weights()
    params = [w.dense(width, width) for _ in range(depth)] + [w.dense(width, 10)]

    def loss(params: Params, batch: Any) -> jax.Array:
        x, labels = batch
        for layer in params[:-1]:
            x = jax.nn.relu(dense(layer, x))
        return cross_entropy(dense(params[-1], x), labels)

    labels = w.random.integers(0, 10, batch).astype(np.int32)
    return Task(loss, params, (w.normal(batch, width, scale=1.0), labels))


# --- transformers ---


def _block_params(w: Weights, d: int) -> Params:
    return {
        "norm1": w.norm(d), "qkv": w.dense(d, 3 * d), "out": w.dense(d, d),
        "norm2": w.norm(d), "up": w.dense(d, 4 * d), "down": w.dense(4 * d, d),
    }  # fmt: skip


def _attention(p: Params, x: jax.Array, heads: int, mask: jax.Array | None) -> jax.Array:
    batch, length, d = x.shape
    split = dense(p["qkv"], x).reshape(batch, length, 3, heads, d // heads)
    q, k, v = (split[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    scores = q @ k.swapaxes(-1, -2) / np.float32((d // heads) ** 0.5)
    if mask is not None:
        scores = jnp.where(mask, scores, -1e9)
    mixed = (jax.nn.softmax(scores, -1) @ v).transpose(0, 2, 1, 3)
    return dense(p["out"], mixed.reshape(batch, length, d))


def _blocks(blocks: Sequence[Params], x: jax.Array, heads: int, mask: Any = None) -> jax.Array:
    for p in blocks:
        x = x + _attention(p, layer_norm(p["norm1"], x), heads, mask)
        x = x + dense(p["down"], jax.nn.gelu(dense(p["up"], layer_norm(p["norm2"], x))))
    return x


def gpt2(batch: int = 8, length: int = 100, depth: int = 12, d: int = 768) -> Task:
    """GPT2-small with its output head tied to the token embedding."""
    w = Weights()
    params = {
        "token": w.normal(VOCABULARY, d), "position": w.normal(1024, d), "norm": w.norm(d),
        "blocks": [_block_params(w, d) for _ in range(depth)],
    }  # fmt: skip

    def loss(params: Params, ids: jax.Array) -> jax.Array:
        causal = jnp.tril(jnp.ones((length, length), bool))
        x = params["token"][ids] + params["position"][jnp.arange(length)]
        x = layer_norm(params["norm"], _blocks(params["blocks"], x, d // 64, causal))
        return cross_entropy((x @ params["token"].T)[:, :-1], ids[:, 1:])

    return Task(loss, params, w.ids(batch, length))


def roberta(batch: int = 4, length: int = 256, depth: int = 12, d: int = 768) -> Task:
    """RoBERTa-base with a classifier of sentences."""
    w = Weights()
    params = {
        "token": w.normal(VOCABULARY, d), "position": w.normal(514, d), "norm": w.norm(d),
        "blocks": [_block_params(w, d) for _ in range(depth)],
        "pooler": w.dense(d, d), "head": w.dense(d, 2),
    }  # fmt: skip

    def loss(params: Params, batch: Any) -> jax.Array:
        ids, labels = batch
        x = params["token"][ids] + params["position"][jnp.arange(length)]
        x = _blocks(params["blocks"], layer_norm(params["norm"], x), d // 64)
        return cross_entropy(
            dense(params["head"], jnp.tanh(dense(params["pooler"], x[:, 0]))), labels
        )

    labels = w.random.integers(0, 2, batch).astype(np.int32)
    return Task(loss, params, (w.ids(batch, length), labels))


def vit(batch: int = 4, size: int = 224, depth: int = 12, d: int = 768) -> Task:
    """ViT-base with patches of 16 pixels."""
    w = Weights()
    patches = (size // 16) ** 2
    params = {
        "patch": w.dense(16 * 16 * 3, d), "cls": w.normal(1, 1, d), "norm": w.norm(d),
        "position": w.normal(1, patches + 1, d), "head": w.dense(d, 1000),
        "blocks": [_block_params(w, d) for _ in range(depth)],
    }  # fmt: skip

    def loss(params: Params, batch: Any) -> jax.Array:
        images, labels = batch
        n, side = images.shape[0], size // 16
        cut = images.reshape(n, side, 16, side, 16, 3).transpose(0, 1, 3, 2, 4, 5)
        x = dense(params["patch"], cut.reshape(n, patches, -1))
        x = jnp.concatenate([jnp.broadcast_to(params["cls"], (n, 1, d)), x], 1) + params["position"]
        x = layer_norm(params["norm"], _blocks(params["blocks"], x, d // 64))
        return cross_entropy(dense(params["head"], x[:, 0]), labels)

    return Task(loss, params, w.images(batch, size))


# --- convolutional networks ---


def _conv(p: Params, x: jax.Array, stride: int = 1) -> jax.Array:
    """Convolution and GroupNorm of 32 groups."""
    numbers = ("NHWC", "HWIO", "NHWC")
    x = lax.conv_general_dilated(
        x, p["kernel"], (stride, stride), "SAME", dimension_numbers=numbers
    )
    n, height, width, channels = x.shape
    grouped = x.reshape(n, height * width, 32, channels // 32)
    mean = grouped.mean((1, 3), keepdims=True)
    variance = jnp.square(grouped - mean).mean((1, 3), keepdims=True)
    x = ((grouped - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)
    return x * p["scale"] + p["bias"]


def _max_pool(x: jax.Array, window: int) -> jax.Array:
    size, strides = (1, window, window, 1), (1, 2, 2, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, size, strides, "SAME")


def resnet18(batch: int = 8, size: int = 224) -> Task:
    """ResNet18 with GroupNorm."""
    w = Weights()
    stages, channels = [], 64
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            params = {"conv1": w.conv(3, channels, width), "conv2": w.conv(3, width, width)}
            if channels != width:
                params["shortcut"] = w.conv(1, channels, width)
            stages.append((params, stride))
            channels = width
    strides = [stride for _, stride in stages]
    params = {
        "stem": w.conv(7, 3, 64),
        "blocks": [p for p, _ in stages],
        "head": w.dense(512, 1000),
    }

    def loss(params: Params, batch: Any) -> jax.Array:
        x, labels = batch
        x = _max_pool(jax.nn.relu(_conv(params["stem"], x, 2)), 3)
        for p, stride in zip(params["blocks"], strides, strict=True):
            y = _conv(p["conv2"], jax.nn.relu(_conv(p["conv1"], x, stride)))
            x = jax.nn.relu(y + (_conv(p["shortcut"], x, stride) if "shortcut" in p else x))
        return cross_entropy(dense(params["head"], x.mean((1, 2))), labels)

    return Task(loss, params, w.images(batch, size))


def vgg11(batch: int = 4, size: int = 224) -> Task:
    """VGG11 with GroupNorm; its first dense layer has 103 million weights."""
    w = Weights()
    widths = (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)  # 0: pooling
    convs, channels = [], 3
    for width in filter(None, widths):
        convs.append(w.conv(3, channels, width))
        channels = width
    side = size // 32
    params = {
        "convs": convs,
        "dense": [w.dense(512 * side * side, 4096), w.dense(4096, 4096), w.dense(4096, 1000)],
    }

    def loss(params: Params, batch: Any) -> jax.Array:
        x, labels = batch
        convs = iter(params["convs"])
        for width in widths:
            x = jax.nn.relu(_conv(next(convs), x)) if width else _max_pool(x, 2)
        x = x.reshape(x.shape[0], -1)
        for layer in params["dense"][:-1]:
            x = jax.nn.relu(dense(layer, x))
        return cross_entropy(dense(params["dense"][-1], x), labels)

    return Task(loss, params, w.images(batch, size))


MODELS: dict[str, Callable[..., Task]] = {
    "mlp": mlp, "gpt2": gpt2, "roberta": roberta, "vit": vit, "resnet18": resnet18, "vgg11": vgg11,
}  # fmt: skip
