"""Device seconds: what a layer takes on a GPU by its data sheet, as in `layer_seconds` by rates.

Our kernels compute whole tiles, of 128 x 128 or of 64 x 64 by the shape (`tile_side`): 100 tokens cost
as much as 128, and in the upper half of a Gram matrix 2.4 or 3.2 times what they need. Operands are read
while others are multiplied, results are written once their product is done. One share of the peak stands
for all kernels, XLA's and ours, and for memory: until somebody measures, what counts is their relation.

Kernels load 16 bytes at a time. Long rows of 16-bit elements that do not start at multiples of 16 bytes,
as GPT2's 50257 words, are copied with zeros at their ends first, once for norm and sum, and the zeros
are cut off the sum. In float32 they take a load for each element, in every tile that reads it.

Layers of one shape share launches, which is counted for whole plans, not here.
"""

from __future__ import annotations

from collections.abc import Sequence

from bk_jax.planning.cost import LayerCost
from bk_jax.planning.devices import Device

SHARE = 0.6  # of the peak: an assumption
STEP = 16  # tokens that a tile takes at a time
MOST_SHARES, LEAST_ROWS = 16, 256  # of a sum, and of the rows of a share: clipped_gemm.cu
VECTOR = 16  # bytes of one load
LARGE, SMALL = 128, 64  # sides of tiles: custom_calls/cuda/tiling.h, as the number below
ENOUGH_LARGE = 216  # tiles
LONG_ROW = 1024  # elements: shorter rows are not filled up, see ops/_border.py


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
        cut = _filling(cost, batch_size, batch_size, device)
        return each + _moved(moved, device) + device.launch + cut
    # On GPUs a convolution's norm is computed from its gradient, whatever its form is called.
    is_gram = route == "ghost" and not cost.is_conv
    norm = _gram(cost, batch_size, device, shares_gram) if is_gram else each
    return norm + _sum(cost, batch_size, device) + _filling(cost, batch_size, 1, device)


def _each(cost: LayerCost, batch_size: int, device: Device) -> float:
    """The gradient of every example, which is squared and added up; it is not written."""
    side = _product_side(cost, batch_size * cost.n)
    flops = 2 * batch_size * cost.n * padded(cost.t, STEP) * _tiled_weight(cost, side)
    loads = _loads(cost, flops, side)
    return _product(cost, flops, batch_size, _rate(cost, device), device, loads)


def _sum(cost: LayerCost, batch_size: int, device: Device) -> float:
    shares = max(1, min(MOST_SHARES, batch_size * cost.t // LEAST_ROWS))
    side = _product_side(cost, shares * cost.n)
    flops = 2 * batch_size * cost.n * cost.t * _tiled_weight(cost, side)
    loads = _loads(cost, flops, side)
    product = _product(cost, flops, batch_size, _rate(cost, device), device, loads)
    return product + _moved(cost.stored_bytes, device)


def _gram(cost: LayerCost, batch_size: int, device: Device, shares_gram: bool) -> float:
    """Tiles of the upper triangles of both Gram matrices."""
    widths = [cost.p] if shares_gram else [cost.p, cost.d]
    side = tile_side(batch_size * cost.n, cost.t, cost.t, cost.kept_itemsize)
    each = batch_size * cost.n * gram_flops(cost.t, side)
    single = sum(width for width in widths if is_loaded_singly(width, cost.kept_itemsize))
    loads = each * single / side  # both sides of a tile are rows of one operand
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


def tile_side(copies: int, rows: int, columns: int, itemsize: int) -> int:
    """Of the tiles of a launch over so many matrices; other elements than of 16 bits have small ones.

    >>> tile_side(8, 100, 100, 2), tile_side(8, 1024, 1024, 2), tile_side(8, 1024, 1024, 4)
    (64, 128, 64)
    """
    large = copies * -(-rows // LARGE) * -(-columns // LARGE) >= ENOUGH_LARGE
    return LARGE if large and min(rows, columns) > SMALL and itemsize == 2 else SMALL


def _product_side(cost: LayerCost, copies: int) -> int:
    """Convolutions have small tiles, whatever their elements."""
    return SMALL if cost.is_conv else tile_side(copies, cost.d, cost.p, cost.kept_itemsize)


def _loads(cost: LayerCost, flops: float, side: int) -> float:
    """Loads of single elements by a product with those flops: a tile's side for each step."""
    return _loaded_singly(cost) * flops / (2 * side)


def _loaded_singly(cost: LayerCost) -> int:
    """Operands with rows that are not aligned; our convolutions gather their patches anyway."""
    widths = () if cost.is_conv else (cost.d, cost.p)
    return sum(is_loaded_singly(width, cost.kept_itemsize) for width in widths)


def is_loaded_singly(width: int, itemsize: int) -> bool:
    """Whether kernels load the elements of these rows one by one: not those of 16 bits.

    >>> is_loaded_singly(50257, 4), is_loaded_singly(50257, 2)
    (True, False)
    """
    return itemsize >= 4 and not is_aligned(width, itemsize)


def _filling(cost: LayerCost, batch_size: int, gradients: int, device: Device) -> float:
    """Long odd rows of 16 bits are copied with zeros, and gradients without."""
    widths = () if cost.is_conv or cost.kept_itemsize != 2 else (cost.d, cost.p)
    odd = [width for width in widths if width >= LONG_ROW and not is_aligned(width, 2)]
    if not odd:
        return 0.0
    copied = 2 * batch_size * cost.n * cost.t * cost.kept_itemsize * sum(odd)
    cut = 2 * gradients * cost.stored_bytes
    return _moved(copied + cut, device) + (len(odd) + 1) * device.launch


def is_aligned(width: int, itemsize: int) -> bool:
    """Whether every row starts at a multiple of what one load takes.

    >>> is_aligned(768, 2), is_aligned(50257, 2), is_aligned(50260, 4)
    (True, False, True)
    """
    return width * itemsize % VECTOR == 0


def _rate(cost: LayerCost, device: Device) -> float:
    """Our convolutions do without tensor cores."""
    return device.fp32 if cost.is_conv else device.flops(cost.kept_itemsize)


def _tiled_weight(cost: LayerCost, side: int) -> int:
    return padded(cost.d, side) * padded(cost.p, side)


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
