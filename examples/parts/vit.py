"""A vision transformer in flax.nnx, as one would write it without privacy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What a configuration says of the network, beside `kind = "vit"`."""

    patch: int  # rows and columns that make a token
    width: int
    blocks: int
    heads: int
    hidden: int  # of the two dense layers in a block
    input_groups: int | None = None  # of channels that are normalised together; default: none
    joined: bool = False  # the last layer sees all tokens side by side; default: their mean


class Block(nnx.Module):
    """Attention and two dense layers, each behind a layer norm and beside a shortcut."""

    def __init__(self, sizes: Sizes, rngs: nnx.Rngs):
        self.norm_attention = nnx.LayerNorm(sizes.width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            sizes.heads, in_features=sizes.width, decode=False, rngs=rngs
        )
        self.norm_dense = nnx.LayerNorm(sizes.width, rngs=rngs)
        self.up = nnx.Linear(sizes.width, sizes.hidden, rngs=rngs)
        self.down = nnx.Linear(sizes.hidden, sizes.width, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm_attention(x))
        return x + self.down(nnx.gelu(self.up(self.norm_dense(x))))


class ViT(nnx.Module):
    """Patches become tokens; what the blocks make of them is classified."""

    def __init__(self, sizes: Sizes, side: int, channels: int, rngs: nnx.Rngs):
        tokens = (side // sizes.patch) ** 2
        self.sizes = sizes
        self.embed = nnx.Linear(sizes.patch**2 * channels, sizes.width, rngs=rngs)
        self.position = nnx.Param(0.02 * rngs.params.normal((tokens, sizes.width)))
        self.blocks = nnx.List([Block(sizes, rngs) for _ in range(sizes.blocks)])
        self.norm = nnx.LayerNorm(sizes.width, rngs=rngs)
        self.head = nnx.Linear(sizes.width * (tokens if sizes.joined else 1), CLASSES, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        if self.sizes.input_groups is not None:
            images = normalised(images, self.sizes.input_groups)
        x = self.embed(patches(images, self.sizes.patch)) + self.position
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x.reshape(len(x), -1) if self.sizes.joined else x.mean(axis=1))


def normalised(images: jax.Array, groups: int) -> jax.Array:
    """Group norm without parameters: every group of channels has mean 0 and deviation 1."""
    grouped = images.reshape(len(images), -1, groups, images.shape[-1] // groups)
    mean = grouped.mean(axis=(1, 3), keepdims=True)
    variance = grouped.var(axis=(1, 3), keepdims=True)
    return ((grouped - mean) * jax.lax.rsqrt(variance + 1e-6)).reshape(images.shape)


def patches(images: jax.Array, size: int) -> jax.Array:
    """From `[n, side, side, channels]` to `[n, tokens, size * size * channels]`."""
    number, side, _, channels = images.shape
    count = side // size
    cut = images.reshape(number, count, size, count, size, channels)
    return cut.swapaxes(2, 3).reshape(number, count * count, size * size * channels)


def make(sizes: Sizes, images: jax.Array, seed: int = 0) -> tuple[Any, Callable[..., jax.Array]]:
    """Initial parameters for images `[n, side, side, channels]`; the function from both to logits."""
    _, side, _, channels = images.shape
    if side % sizes.patch:
        raise ValueError(f"patch must divide {side}, the rows of a picture; got {sizes.patch}.")
    graph, params = nnx.split(ViT(sizes, side, channels, nnx.Rngs(seed)))
    return params, lambda params, images: nnx.merge(graph, params)(images)
