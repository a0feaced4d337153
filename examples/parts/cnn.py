"""A convolutional network in flax.linen, as one would write it without privacy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from flax import linen

CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What a configuration says of the network, beside `kind = "cnn"`."""

    channels: tuple[int, ...]  # of the convolutions
    kernels: tuple[int, ...]  # rows and columns that each of them sees
    hidden: int  # width of the dense layer before the last
    groups: int = 4  # of channels that are normalised together


class CNN(linen.Module):
    """Convolutions of stride 2 with group norm, then two dense layers."""

    sizes: Sizes

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for channels, kernel in zip(self.sizes.channels, self.sizes.kernels, strict=True):
            x = linen.Conv(channels, (kernel, kernel), strides=2)(x)
            x = linen.tanh(linen.GroupNorm(self.sizes.groups)(x))
        x = x.reshape(len(x), -1)
        x = linen.tanh(linen.Dense(self.sizes.hidden)(x))
        return linen.Dense(CLASSES)(x)


def make(sizes: Sizes, images: jax.Array, seed: int = 0) -> tuple[Any, Callable[..., jax.Array]]:
    """Initial parameters for images `[n, 28, 28, 1]`, and the function from both to logits `[n, 10]`."""
    model = CNN(sizes)
    return jax.jit(model.init)(jax.random.key(seed), images), model.apply
