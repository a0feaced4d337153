"""Rates: how fast a machine does each kind of work, and where the numbers come from.

Everything is per second: flops for products, bytes for memory, elements for the rest; `operation`
alone is seconds. A *table* is a rate that depends on a size, as pairs of size and rate.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from bk_jax.planning.devices import Device

Table = tuple[tuple[int, float], ...]
TABLES = (
    "weight_gradient", "convolution", "kernel_gradient", "clipped_gemm", "direct_norm", "ghost_norm",
    "conv_sum", "conv_norm",
)  # fmt: skip
ADVICE = "bk_jax.calibrate() measures this machine"


@dataclasses.dataclass(frozen=True)
class Rates:
    """What a machine does in a second.

    Attributes:
      source: where the numbers come from, for people.
      product: flops of XLA's product of two matrices in float32.
      product_16: the same in bfloat16.
      batched_product: of XLA's many small products, as in attention.
      weight_gradient: of XLA's product that sums over tokens, the gradient of a dense layer, by
        tokens of the batch.
      convolution: of XLA's convolution and its gradient for images, by pixels of the result.
      kernel_gradient: of XLA's gradient of a convolution's kernel, by pixels.
      clipped_gemm: of our weighted sum of gradients of a dense layer, by tokens of the batch.
      direct_norm: of our gradients of single examples, kept or not, by tokens of an example.
      ghost_norm: of our norms from Gram matrices, by tokens of an example.
      conv_sum: of our weighted sum of gradients of a kernel, by pixels.
      conv_norm: of our gradients of a kernel for single examples, kept or not, by pixels.
      pixel_gram: of our norms of kernels from inner products of pixels.
      memory: bytes read and written by elementwise work and sums.
      transcendental: elements of exp, tanh, log and the like.
      scatter: elements that XLA adds to rows of a table.
      noise: normal numbers added to an array.
      operation: seconds to start one operation.
      is_measured: whether they were measured on this machine.
      device: the GPU whose data sheet they follow, if any; it knows more about layers.
    """

    source: str
    product: float
    product_16: float
    batched_product: float
    weight_gradient: Table
    convolution: Table
    kernel_gradient: Table
    clipped_gemm: Table
    direct_norm: Table
    ghost_norm: Table
    conv_sum: Table
    conv_norm: Table
    pixel_gram: float
    memory: float
    transcendental: float
    scatter: float
    noise: float
    operation: float
    is_measured: bool = False
    device: Device | None = None

    def faster(self, factor: float, keep: tuple[str, ...] = ()) -> Rates:
        """All rates times `factor`, but for those in `keep`.

        >>> from bk_jax.planning.default_rates import AVX2
        >>> AVX2.faster(2.0).memory / AVX2.memory
        2.0
        """
        new: dict[str, Any] = {}
        for name in names():
            value = getattr(self, name)
            if name in keep:
                continue
            if name == "operation":
                new[name] = value / factor
            elif isinstance(value, tuple):
                new[name] = tuple((size, rate * factor) for size, rate in value)
            else:
                new[name] = value * factor
        return dataclasses.replace(self, **new)

    def describe(self) -> str:
        """The source, and what to do about it if it is only a default."""
        advice = "" if self.is_measured or "GPU" in self.source else f"; {ADVICE}"
        return self.source + advice


def names() -> tuple[str, ...]:
    """Of all fields that are rates."""
    others = ("source", "is_measured", "device")
    return tuple(f.name for f in dataclasses.fields(Rates) if f.name not in others)


def rate_at(table: Table, size: int) -> float:
    """Interpolates in the logarithm of the size; beyond the ends, the rate at the end.

    >>> rate_at(((10, 1.0), (1000, 3.0)), 100)
    2.0
    >>> rate_at(((10, 1.0), (1000, 3.0)), 1)
    1.0
    """
    before = table[0]
    for after in table:
        if size <= after[0]:
            if after[0] == before[0]:
                return after[1]
            part = math.log(size / before[0]) / math.log(after[0] / before[0])
            return before[1] + part * (after[1] - before[1])
        before = after
    return before[1]


def from_json(found: Any) -> Rates:
    """Rates from what `dataclasses.asdict` gave; an error if anything is missing or not positive."""
    values: dict[str, Any] = {}
    for field in names():
        value = found[field]
        values[field] = _table(value) if field in TABLES else _positive(value)
    device = found.get("device")
    return Rates(
        source=str(found["source"]),
        is_measured=True,
        device=None if device is None else Device(**device),
        **values,
    )


def _table(found: Any) -> Table:
    table = tuple(sorted((int(size), _positive(rate)) for size, rate in found))
    if not table or table[0][0] < 1:
        raise ValueError(f"expected pairs of a size and a rate, got {found!r}")
    return table


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < math.inf:
        raise ValueError(f"expected a positive rate, got {value!r}")
    return number
