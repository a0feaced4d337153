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
    hidden: int  # width of the dense layer before the last; 0: there is none
    groups: int = 4  # of channels that are normalised together
    input_groups: int | None = None  # the same for the input; default: it is taken as it is
    stride: int = 2


class CNN(linen.Module):
    """Convolutions with group norm, a dense layer if it has a width, and the last one."""

    sizes: Sizes

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        if self.sizes.input_groups is not None:
            x = linen.GroupNorm(self.sizes.input_groups, use_bias=False, use_scale=False)(x)
        for channels, kernel in zip(self.sizes.channels, self.sizes.kernels, strict=True):
            x = linen.Conv(channels, (kernel, kernel), strides=self.sizes.stride)(x)
            x = linen.tanh(linen.GroupNorm(self.sizes.groups)(x))
        x = x.reshape(len(x), -1)
        if self.sizes.hidden:
            x = linen.tanh(linen.Dense(self.sizes.hidden)(x))
        return linen.Dense(CLASSES)(x)


def make(sizes: Sizes, images: jax.Array, seed: int = 0) -> tuple[Any, Callable[..., jax.Array]]:
    """Initial parameters for images `[n, 28, 28, 1]`, and the function from both to logits `[n, 10]`."""
    model = CNN(sizes)
    return jax.jit(model.init)(jax.random.key(seed), images), model.apply
