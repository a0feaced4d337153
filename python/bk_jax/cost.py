"""Cost: flops and bytes of one layer under each route, per example.

Symbols as in the paper: T tokens, d inputs, p outputs, N weights of that shape. A multiply-add counts
as two. Non-private training of a dense layer costs `6 N T p d`.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """Sizes of a layer for one example, and what follows from them."""

    n: int
    t: int
    d: int
    p: int
    kept_itemsize: int = 4  # of activations and output gradients
    accumulate_itemsize: int = 4  # of gradients

    @property
    def non_private_flops(self) -> int:
        """Forward, output gradient and weight gradient."""
        return 6 * self.n * self.t * self.p * self.d

    @property
    def kept_bytes(self) -> int:
        """Activations and output gradients."""
        return self.n * self.t * (self.p + self.d) * self.kept_itemsize

    @property
    def stored_bytes(self) -> int:
        """The gradient of one example."""
        return self.n * self.p * self.d * self.accumulate_itemsize

    def extra_flops(self, route: str) -> int:
        """Flops on top of non-private training."""
        weights = self.n * self.p * self.d
        if route == "ghost":
            return self.n * self.t * (self.t + 1) * (self.p + self.d)
        if route == "fused":
            return 2 * self.t * weights + 2 * weights
        if route in ("store", "leaf"):
            return 4 * weights
        if route == "sparse":
            return 4 * self.n * self.t * self.p
        raise ValueError(f"unknown route {route!r}")

    def extra_bytes(self, route: str) -> int:
        """Memory per example that lives until the factors are known, on top of what is kept anyway."""
        if route in ("store", "leaf"):
            return max(self.stored_bytes - (self.kept_bytes if route == "store" else 0), 0)
        return 0
