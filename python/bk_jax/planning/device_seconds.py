"""Device seconds: what a layer takes on a GPU by its data sheet, as in `layer_seconds` by rates.

Our kernels compute whole tiles: 100 tokens cost as much as 128, and in the upper half of a Gram matrix
2.4 times what they need. Operands are read while others are multiplied, results are written once their
product is done. One share of the peak stands for all kernels, XLA's and ours, and for memory: until
somebody measures, what counts is their relation.

Kernels load 16 bytes at a time. Rows that do not start at multiples of 16 bytes, as GPT2's 50257 words
do not, take a load for each element, in every tile that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from bk_jax.planning.cost import LayerCost
from bk_jax.planning.devices import Device

SHARE = 0.6  # of the peak: an assumption
STEP = 16  # tokens that a tile takes at a time
VECTOR = 16  # bytes of one load


def plain_seconds(cost: LayerCost, batch_size: int, device: Device) -> float:
    """The gradient of the weight by a library, summed over the batch."""
    flops = 2 * batch_size * cost.n * cost.t * cost.d * cost.p
    product = _product(cost, flops, batch_size, device.flops(cost.kept_itemsize), device)
    return product + _moved(cost.stored_bytes, device)


def route_seconds(
    cost: LayerCost, route: str, batch_size: int, device: Device, *, shares_gram: bool = False
) -> float:
    """Norms and clipped sum by a route."""
    each = _each(cost, batch_size, device)
    if route == "store":
        moved = (2 * batch_size + 1) * cost.stored_bytes  # out, in again, and their sum
        return each + _moved(moved, device) + device.launch
    # On GPUs a convolution's norm is computed from its gradient, whatever its form is called.
    is_gram = route == "ghost" and not cost.is_conv
    norm = _gram(cost, batch_size, device, shares_gram) if is_gram else each
    return norm + _sum(cost, batch_size, device)


def _each(cost: LayerCost, batch_size: int, device: Device) -> float:
    """The gradient of every example, which is squared and added up; it is not written."""
    flops = 2 * batch_size * cost.n * padded(cost.t, STEP) * _tiled_weight(cost, device)
    return _product(
        cost, flops, batch_size, _rate(cost, device), device, _loads(cost, flops, device)
    )


def _sum(cost: LayerCost, batch_size: int, device: Device) -> float:
    flops = 2 * batch_size * cost.n * cost.t * _tiled_weight(cost, device)
    loads = _loads(cost, flops, device)
    product = _product(cost, flops, batch_size, _rate(cost, device), device, loads)
    return product + _moved(cost.stored_bytes, device)


def _gram(cost: LayerCost, batch_size: int, device: Device, shares_gram: bool) -> float:
    """Tiles of the upper triangles of both Gram matrices."""
    widths = [cost.p] if shares_gram else [cost.p, cost.d]
    each = batch_size * cost.n * gram_flops(cost.t, device.tile)
    single = sum(width for width in widths if not is_aligned(width, cost.kept_itemsize))
    loads = each * single / device.tile  # both sides of a tile are rows of one operand
    flops = each * sum(widths)
    return _product(cost, flops, batch_size, _rate(cost, device), device, loads)


def sharing_pays(costs: Sequence[LayerCost], device: Device) -> bool:
    """Whether one Gram matrix for layers that read the same activations saves more than it costs.

    It costs a copy of their gradients next to each other.

    >>> from bk_jax.planning.devices import find_device
    >>> layers = [[LayerCost(1, t, 768, 768, kept_itemsize=2)] * 3 for t in (512, 2048)]
    >>> [sharing_pays(costs, find_device("A100")) for costs in layers]
    [False, True]
    """
    batch_size = 64  # large enough that starting kernels does not matter
    saved = sum(
        _gram(cost, batch_size, device, False) - _gram(cost, batch_size, device, True)
        for cost in costs[1:]
    )
    nbytes = sum(cost.n * cost.t * cost.p * cost.kept_itemsize for cost in costs)
    return saved > _moved(2 * batch_size * nbytes, device)


def gram_flops(tokens: int, tile: int) -> int:
    """Of one feature in the upper triangle of a Gram matrix; `T (T + 1)` would be needed.

    >>> gram_flops(100, 64) / (100 * 101)
    2.43
    """
    tiles = -(-tokens // tile)
    return tiles * (tiles + 1) * tile**2


def _loads(cost: LayerCost, flops: float, device: Device) -> float:
    """Loads of single elements by a product with those flops: a tile's side for each step."""
    return _loaded_singly(cost) * flops / (2 * device.tile)


def _loaded_singly(cost: LayerCost) -> int:
    """Operands with rows that are not aligned; our convolutions gather their patches anyway."""
    widths = () if cost.is_conv else (cost.d, cost.p)
    return sum(not is_aligned(width, cost.kept_itemsize) for width in widths)


def is_aligned(width: int, itemsize: int) -> bool:
    """Whether every row starts at a multiple of what one load takes.

    >>> is_aligned(768, 2), is_aligned(50257, 2), is_aligned(50260, 4)
    (True, False, True)
    """
    return width * itemsize % VECTOR == 0


def _rate(cost: LayerCost, device: Device) -> float:
    """Our convolutions do without tensor cores."""
    return device.fp32 if cost.is_conv else device.flops(cost.kept_itemsize)


def _tiled_weight(cost: LayerCost, device: Device) -> int:
    return padded(cost.d, device.tile) * padded(cost.p, device.tile)


def padded(size: int, tile: int) -> int:
    """Up to whole tiles.

    >>> padded(100, 64)
    128
    """
    return -(-size // tile) * tile


def _product(
    cost: LayerCost,
    flops: float,
    batch_size: int,
    peak: float,
    device: Device,
    loads: float = 0,
) -> float:
    """As long as arithmetic, reading what was kept or single loads need, and the start of a kernel."""
    read = batch_size * cost.kept_bytes / device.memory
    return max(flops / peak, read, loads / device.loads) / SHARE + device.launch


def _moved(nbytes: float, device: Device) -> float:
    return nbytes / (SHARE * device.memory)
