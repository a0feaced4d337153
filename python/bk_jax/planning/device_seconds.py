"""Device seconds: what a layer takes on a GPU by its data sheet, as in `layer_seconds` by rates.

Our kernels compute whole tiles, of 128 x 128 or of 64 x 64 by the shape (`tile_side`): 100 tokens cost
as much as 128, and in the upper half of a Gram matrix 2.4 or 3.2 times what they need. Operands are read
while others are multiplied, results are written once their product is done. One share of the peak stands
for all kernels, XLA's and ours, and for memory: until somebody measures, what counts is their relation.

Kernels load 16 bytes at a time. Long rows of 16-bit elements that do not start at multiples of 16 bytes,
as GPT2's 50257 words, are copied with zeros at their ends first, once for norm and sum, and the zeros
are cut off the sum. In float32 they take a load for each element, in every tile that reads it.

Our kernel for convolutions gathers pixels and does without tensor cores. From patches (`patches`) a
convolution is a dense layer, whose patches are written first, part by part of the batch.

Layers of one shape share launches, which is counted for whole plans, not here.
"""

from __future__ import annotations

from collections.abc import Sequence

from bk_jax.planning.cost import LayerCost, Patches
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
    if cost.patches is not None:
        return _patched(cost, cost.patches, route, batch_size, device)
    norm = norm_seconds(cost, route, batch_size, device, shares_gram=shares_gram)
    return norm + sum_seconds(cost, route, batch_size, device)


def norm_seconds(
    cost: LayerCost, route: str, batch_size: float, device: Device, *, shares_gram: bool = False
) -> float:
    """Norms by a route, and gradients if it stores them; odd rows are filled up here."""
    filling = _filling(cost, batch_size, batch_size if route == "store" else 1, device)
    if route == "ghost" and (not cost.is_conv or cost.pixel_d is None):
        return _gram(cost.from_patches, batch_size, device, shares_gram) + filling
    # On GPUs the norm from pixels is computed from the gradient, whatever its form is called.
    written = _moved(batch_size * cost.stored_bytes, device) if route == "store" else 0.0
    each = _each(cost, batch_size, device)
    if cost.is_conv:
        each = max(each, _one_tile(cost, batch_size, device))
    return each + written + filling


def sum_seconds(cost: LayerCost, route: str, batch_size: float, device: Device) -> float:
    """The clipped sum, of gradients if they are stored."""
    if route == "store":
        return _moved((batch_size + 1) * cost.stored_bytes, device) + device.launch
    return _sum(cost, batch_size, device)


def _patched(
    cost: LayerCost, patches: Patches, route: str, batch_size: int, device: Device
) -> float:
    """A convolution as a dense layer, part by part; patches are made for the norm and for the sum."""
    part, dense = batch_size / patches.parts, cost.from_patches
    made = _making(cost, part, device) if patches.copied else 0.0
    norm = made + norm_seconds(dense, route, part, device)
    if route != "ghost":
        norm = max(norm, _one_tile(dense, part, device) + made)
    if route == "store":
        copied = _moved(2 * part * cost.stored_bytes, device) if patches.parts > 1 else 0.0
        return patches.parts * (norm + copied) + sum_seconds(dense, route, batch_size, device)
    return patches.parts * (norm + made + sum_seconds(dense, route, part, device))


def _making(cost: LayerCost, batch_size: float, device: Device) -> float:
    """Patches that are written: the images are read once, for the caches hold rows of them."""
    images = cost.n * cost.t * (cost.kept_d or 0) * cost.kept_itemsize
    rows = cost.n * cost.t * cost.from_patches.d * cost.kept_itemsize
    return _moved(batch_size * (images + rows), device) + device.launch


def _one_tile(cost: LayerCost, batch_size: float, device: Device) -> float:
    """A tile of an example's gradient is the work of one multiprocessor, however few there are.

    Images have many pixels and, where they are large, few channels, which are few tiles.
    """
    side = _product_side(cost, batch_size * cost.n)
    flops = 2 * padded(cost.t, STEP) * side**2
    return flops * device.multiprocessors / (SHARE * _rate(cost, device))


def _each(cost: LayerCost, batch_size: float, device: Device) -> float:
    """The gradient of every example, which is squared and added up; it is not written."""
    side = _product_side(cost, batch_size * cost.n)
    flops = 2 * batch_size * cost.n * padded(cost.t, STEP) * _tiled_weight(cost, side)
    loads = _loads(cost, flops, side)
    return _product(cost, flops, batch_size, _rate(cost, device), device, loads)


def _sum(cost: LayerCost, batch_size: float, device: Device) -> float:
    shares = max(1, min(MOST_SHARES, batch_size * cost.t // LEAST_ROWS))
    side = _product_side(cost, shares * cost.n)
    flops = 2 * batch_size * cost.n * cost.t * _tiled_weight(cost, side)
    loads = _loads(cost, flops, side)
    product = _product(cost, flops, batch_size, _rate(cost, device), device, loads)
    return product + _moved(cost.stored_bytes, device)


def _gram(cost: LayerCost, batch_size: float, device: Device, shares_gram: bool) -> float:
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


def tile_side(copies: float, rows: int, columns: int, itemsize: int) -> int:
    """Of the tiles of a launch over so many matrices; other elements than of 16 bits have small ones.

    >>> tile_side(8, 100, 100, 2), tile_side(8, 1024, 1024, 2), tile_side(8, 1024, 1024, 4)
    (64, 128, 64)
    """
    large = copies * -(-rows // LARGE) * -(-columns // LARGE) >= ENOUGH_LARGE
    return LARGE if large and min(rows, columns) > SMALL and itemsize == 2 else SMALL


def _product_side(cost: LayerCost, copies: float) -> int:
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


def _filling(cost: LayerCost, batch_size: float, gradients: float, device: Device) -> float:
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
    gathered = device.gathering * device.fp32
    return gathered if cost.is_conv else device.flops(cost.kept_itemsize)


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
    batch_size: float,
    peak: float,
    device: Device,
    loads: float = 0,
) -> float:
    """As long as arithmetic, reading what was kept or single loads need, and the start of a kernel."""
    read = batch_size * cost.kept_bytes / device.memory
    return max(flops / peak, read, loads / device.loads) / SHARE + device.launch


def _moved(nbytes: float, device: Device) -> float:
    return nbytes / (SHARE * device.memory)
