"""Cost: flops and bytes of one layer under each route, per example.

Symbols as in the paper: T tokens, d inputs, p outputs, N weights of that shape. A multiply-add
counts as two. Non-private training of a dense layer costs `6 N T p d`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bk_jax.ops.numerics import accumulation_dtype
from bk_jax.program.sites import Site

# The flops of a Gram matrix of pixels relative to those of one of patches: measured, a kernel of one
# pixel takes 1.2 to 1.5 times as long, 3 x 3 kernels 0.15 to 0.6.
PIXELS_OVER_PATCHES = 0.75


def pixel_gram_d(use: Any, uses: int) -> int | None:
    """Features in an entry of a convolution's Gram matrix of pixels, if patches would cost more.

    Several uses of one kernel need patches.
    """
    if use.kind != "conv" or uses > 1:
        return None
    _, _, d, p = use.sizes
    pays = use.pixel_channels + p < PIXELS_OVER_PATCHES * (d + p)
    return int(use.pixel_channels) if pays else None


class Patches(NamedTuple):
    """How a convolution becomes a dense layer on a GPU (`ops.dense_patches`).

    Attributes:
      width: elements of a row, with the zeros at its end.
      parts: the batch is taken in at least so many, one after the other.
      copied: whether rows are written: those of a kernel of one pixel are the image as it is.
    """

    width: int
    parts: int
    copied: bool

    def at_once(self, batch_size: int) -> int:
        """Examples whose patches exist at a time; 0: there are too few, and pixels are gathered.

        >>> [Patches(576, 6, True).at_once(size) for size in (32, 6, 5)]
        [5, 1, 0]
        """
        return batch_size // self.parts


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """Sizes of a layer for one example, and what follows from them."""

    n: int
    t: int
    d: int
    p: int
    kept_itemsize: int = 4  # of activations and output gradients
    accumulate_itemsize: int = 4  # of gradients
    kept_d: float | None = (
        None  # activations kept for each token, if not d: a convolution keeps images
    )
    pixel_d: int | None = None  # features in an entry of the Gram matrix of pixels, if that is used
    patches: Patches | None = None  # of a convolution that is a dense layer on a GPU

    @property
    def is_conv(self) -> bool:
        """Whether images are kept, not patches."""
        return self.kept_d is not None

    @property
    def forms(self) -> tuple[LayerCost, ...]:
        """The layer from patches, if it has any, and with pixels that are gathered."""
        return (self, dataclasses.replace(self, patches=None)) if self.patches else (self,)

    def of_batch(self, batch_size: int) -> LayerCost:
        """The layer as it is computed: patches need as many examples as they have parts."""
        made = self.patches is not None and self.patches.at_once(batch_size) > 0
        return self if made else dataclasses.replace(self, patches=None)

    @property
    def from_patches(self) -> LayerCost:
        """The dense layer that patches are the activations of."""
        width = self.patches.width if self.patches else self.d
        return dataclasses.replace(self, d=width, kept_d=None, pixel_d=None, patches=None)

    @property
    def gram_d(self) -> int:
        """Features of the activations in their Gram matrix."""
        return self.d if self.pixel_d is None else self.pixel_d

    @property
    def non_private_flops(self) -> int:
        """Forward, output gradient and weight gradient."""
        return 6 * self.n * self.t * self.p * self.d

    @property
    def kept_bytes(self) -> int:
        """Activations and output gradients."""
        kept = self.d if self.kept_d is None else self.kept_d
        return int(self.n * self.t * (self.p + kept) * self.kept_itemsize)

    @property
    def stored_bytes(self) -> int:
        """The gradient of one example."""
        return self.n * self.p * self.d * self.accumulate_itemsize

    def extra_flops(self, route: str) -> int:
        """Flops on top of non-private training."""
        weights = self.n * self.p * self.d
        if route == "ghost":
            return self.n * self.t * (self.t + 1) * (self.p + self.gram_d)
        if route == "fused":
            return 2 * self.t * weights + 2 * weights
        if route in ("store", "leaf"):
            return 4 * weights
        if route == "sparse":
            return 4 * self.n * self.t * self.p
        raise ValueError(f"unknown route {route!r}")

    def extra_bytes(self, route: str) -> int:
        """Memory per example that lives until the factors are known, beyond what is kept anyway."""
        if route in ("store", "leaf"):
            return max(self.stored_bytes - (self.kept_bytes if route == "store" else 0), 0)
        return 0


def cost_of(sites: Sequence[Site]) -> LayerCost:
    """Sizes of the layer that the sites form together, for one example."""
    main = [site for site in sites if site.use.kind != "lookup"] or list(sites)
    n, _, d, p = main[0].use.sizes
    n *= math.prod(axis.length for axis in main[0].axes if axis.stacked)
    t = sum(
        site.use.sizes[1] * math.prod(axis.length for axis in site.axes if not axis.stacked)
        for site in main
    )
    dtype = main[0].use.dtype
    cost = LayerCost(n, t, d, p, dtype.itemsize, np.dtype(accumulation_dtype(dtype)).itemsize)
    if main[0].use.kind != "conv":
        return cost
    return dataclasses.replace(
        cost, kept_d=main[0].use.kept_d, pixel_d=pixel_gram_d(main[0].use, len(main))
    )
