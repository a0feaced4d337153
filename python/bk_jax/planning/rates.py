"""Rates: how fast a machine does each kind of work, and where the numbers come from.

Everything is per second: flops for products, bytes for memory, elements for the rest; `operation`
alone is seconds. A *table* is a rate that depends on a size, as pairs of size and rate.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax

from bk_jax import _native
from bk_jax.planning import stored_rates

Table = tuple[tuple[int, float], ...]
ADVICE = "bk_jax.calibrate() measures this machine"


@dataclasses.dataclass(frozen=True)
class Rates:
    """What a machine does in a second.

    Attributes:
      source: where the numbers come from, for people.
      product: flops of XLA's product of two matrices in float32.
      product_16: the same in bfloat16.
      batched_product: of XLA's many small products, as in attention.
      weight_gradient: of XLA's product that sums over tokens, the gradient of a dense layer.
      convolution: of XLA's convolution and its gradient for images, by pixels of the result.
      kernel_gradient: of XLA's gradient of a convolution's kernel, by pixels.
      clipped_gemm: of our weighted sum of gradients of a dense layer.
      direct_norm: of our gradients of single examples, kept or not.
      ghost_norm: of our norms from Gram matrices, by tokens.
      conv_sum: of our weighted sum of gradients of a kernel, by pixels.
      conv_norm: of our gradients of a kernel for single examples, kept or not, by pixels.
      pixel_gram: of our norms of kernels from inner products of pixels.
      memory: bytes read and written by elementwise work and sums.
      transcendental: elements of exp, tanh, log and the like.
      scatter: elements that XLA adds to rows of a table.
      noise: normal numbers added to an array.
      operation: seconds to start one operation.
      is_measured: whether they were measured on this machine.
    """

    source: str
    product: float
    product_16: float
    batched_product: float
    weight_gradient: float
    convolution: Table
    kernel_gradient: Table
    clipped_gemm: float
    direct_norm: float
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

    def faster(self, factor: float, keep: tuple[str, ...] = ()) -> Rates:
        """All rates times `factor`, but for those in `keep`.

        >>> DEFAULTS["avx2"].faster(2.0).memory / DEFAULTS["avx2"].memory
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
    others = ("source", "is_measured")
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


def current_rates() -> Rates:
    """Those of this machine: as `bk_jax.calibrate` stored them, or defaults. Never raises.

    >>> current_rates().product > 0
    True
    """
    if jax.default_backend() == "gpu":
        return nominal_rates(jax.devices()[0].device_kind)
    default = _default_rates()
    found, problem = stored_rates.load()
    if found is not None:
        try:
            return from_json(found)
        except (KeyError, TypeError, ValueError):
            problem = f"the calibration in {stored_rates.path()} cannot be read"
    return dataclasses.replace(default, source=_joined(default.source, problem))


def from_json(found: Any) -> Rates:
    """Rates from what `dataclasses.asdict` gave; an error if anything is missing or not positive."""
    values: dict[str, Any] = {}
    for field in names():
        value = found[field]
        is_table = isinstance(getattr(DEFAULTS["avx2"], field), tuple)
        values[field] = (
            tuple((int(size), _positive(rate)) for size, rate in value)
            if is_table
            else _positive(value)
        )
        if values[field] == ():
            raise ValueError(f"{field} has no sizes")
    return Rates(source=str(found["source"]), is_measured=True, **values)


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < math.inf:
        raise ValueError(f"expected a positive rate, got {value!r}")
    return number


def _joined(source: str, problem: str) -> str:
    return f"{source} ({problem})" if problem else source


def _default_rates() -> Rates:
    """By instruction set; the shipped numbers are of two cores."""
    module = _native.library().module
    isa = module.active_isa() if module is not None else "none"
    rates = DEFAULTS["avx512" if isa in ("avx512", "amx") else "avx2"]
    return rates.faster(stored_rates.cores() / 2, keep=("memory", "operation"))


def nominal_rates(device: str) -> Rates:
    """From the data sheet of a GPU: never measured.

    >>> nominal_rates("NVIDIA H100 80GB HBM3").source
    'nominal for an H100 GPU, not measured'
    """
    known = next((name for name in DATA_SHEETS if name in device), None)
    tf32, bf16, memory = DATA_SHEETS[known or "A100"]
    product, ours, moved = EFFICIENCY * tf32, OUR_EFFICIENCY * tf32, MEMORY_EFFICIENCY * memory
    name = f"an {known} GPU" if known in ("A100", "H100") else f"a {known} GPU"
    of = name if known else f"an A100 GPU, in place of {device!r}"
    return Rates(
        source=f"nominal for {of}, not measured",
        product=product,
        product_16=EFFICIENCY * bf16,
        batched_product=product / 2,
        weight_gradient=product,
        convolution=((1, product),),
        kernel_gradient=((1, product),),
        clipped_gemm=ours,
        direct_norm=ours,
        ghost_norm=((16, ours / 4), (100, ours / 2), (256, ours)),
        conv_sum=((1, ours),),
        conv_norm=((1, ours),),
        pixel_gram=ours,
        memory=moved,
        transcendental=moved / 8,  # bound by memory: an element is read and written
        scatter=moved / 16,
        noise=moved / 16,
        operation=4e-6,
    )


# Dense peaks in flop/s (TF32, bfloat16) and bytes/s, from NVIDIA's data sheets of the SXM modules:
# A100 80 GB, H100, and B200 (an eighth of HGX B200's, half of the sparse numbers).
DATA_SHEETS = {
    "A100": (156e12, 312e12, 2.0e12),
    "H100": (495e12, 989e12, 3.35e12),
    "B200": (1.1e15, 2.25e15, 8.0e12),
}
EFFICIENCY = 0.6  # of the peak, in products: an assumption
OUR_EFFICIENCY = 0.4  # the same for our calls: an assumption
MEMORY_EFFICIENCY = 0.8  # an assumption

DEFAULTS: dict[str, Rates] = {"avx2": Rates("default for AVX2", *[1e11]*4, ((1,1e11),),((1,1e11),),1e11,1e11,((1,1e11),),((1,1e11),),((1,1e11),),1e11,1e10,1e9,1e9,1e9,1e-6)}
DEFAULTS["avx512"] = DEFAULTS["avx2"]
