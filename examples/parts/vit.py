"""A vision transformer in flax.nnx, as one would write it without privacy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

CLASSES = 10
SIDE = 28  # pixels


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What a configuration says of the network, beside `kind = "vit"`."""

    patch: int  # rows and columns of pixels that make a token
    width: int
    blocks: int
    heads: int
    hidden: int  # of the two dense layers in a block

    def __post_init__(self) -> None:
        if SIDE % self.patch:
            raise ValueError(f"patch must divide {SIDE}: 4, 7 or 14; got {self.patch}.")


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
    """Patches become tokens; the mean of what the blocks make of them is classified."""

    def __init__(self, sizes: Sizes, rngs: nnx.Rngs):
        tokens = (SIDE // sizes.patch) ** 2
        self.patch = sizes.patch
        self.embed = nnx.Linear(sizes.patch**2, sizes.width, rngs=rngs)
        self.position = nnx.Param(0.02 * rngs.params.normal((tokens, sizes.width)))
        self.blocks = nnx.List([Block(sizes, rngs) for _ in range(sizes.blocks)])
        self.norm = nnx.LayerNorm(sizes.width, rngs=rngs)
        self.head = nnx.Linear(sizes.width, CLASSES, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        x = self.embed(patches(images, self.patch)) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(axis=1))


def patches(images: jax.Array, size: int) -> jax.Array:
    """From `[n, 28, 28, 1]` to `[n, tokens, size * size]`."""
    count = SIDE // size
    cut = images.reshape(len(images), count, size, count, size)
    return cut.swapaxes(2, 3).reshape(len(images), count * count, size * size)


def make(sizes: Sizes, images: jax.Array, seed: int = 0) -> tuple[Any, Callable[..., jax.Array]]:
    """Initial parameters for images `[n, 28, 28, 1]`, and the function from both to logits `[n, 10]`."""
    graph, params = nnx.split(ViT(sizes, nnx.Rngs(seed)))
    return params, lambda params, images: nnx.merge(graph, params)(images)
