"""Patches: which convolutions of a plan for a GPU are dense layers of patches, and in how many parts.

Our kernel for convolutions gathers pixels and multiplies without tensor cores. Kernels of dense layers
have them; they read patches, which somebody has to write: those of 3 x 3 pixels are nine times as large
as the image. So the batch is taken in parts. The patches of a part may take a sixteenth of what is kept
of all layers, activations and output gradients: by so much the step's peak can grow, whatever the batch
and the layer. With fewer examples than parts, pixels are gathered.

| convolution | form |
|---|---|
| on a CPU | its own kernels, as ever |
| float32 and float64 | gathered: tensor cores bring float32 little, and patches are twice as large |
| depthwise | gathered: one column of a tile would be used |
| kernels of more than 64 pixels, unless side by side | gathered: nothing copies their patches |
| any other | whichever is predicted to be faster, norm and sum together |
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from bk_jax.ops.dense_patches import filled_width, has_patches, is_image
from bk_jax.planning.cost import LayerCost, Patches
from bk_jax.planning.device_seconds import route_seconds
from bk_jax.planning.devices import Device
from bk_jax.planning.fastest import BATCH_SIZE, Choice
from bk_jax.planning.rates import Rates
from bk_jax.program.sites import Site

PART = 16  # the patches of a part of the batch may take this part of what is kept
TENSOR_CORES = 2  # bytes of an element
Sites = Sequence[Site]


def with_patches(layers: Sequence[Sites], costs: Sequence[LayerCost]) -> list[LayerCost]:
    """Costs of layers on a GPU, those of convolutions with the patches that they may have."""
    room = kept_bytes(layers, costs) / PART
    return [
        _on_gpu(sites, cost, room) if cost.is_conv else cost
        for sites, cost in zip(layers, costs, strict=True)
    ]


def _on_gpu(sites: Sites, cost: LayerCost, room: float) -> LayerCost:
    """There are no other patches than these: what has none is gathered, but for pixels one by one."""
    if cost.pixel_d is None and not _is_image(sites):
        cost = dataclasses.replace(cost, pixel_d=cost.d)
    if why_gathered(sites, cost):
        return cost
    return dataclasses.replace(cost, patches=_patches(sites, cost, room))


def _is_image(sites: Sites) -> bool:
    """Whether patches are the image; those of several uses are put one after the other, a copy."""
    use = sites[0].use
    return len(sites) == 1 and is_image(use.window, *use.pixel_sizes)


def kept_bytes(layers: Sequence[Sites], costs: Sequence[LayerCost]) -> int:
    """Of one example: output gradients, and activations, once if several layers read them."""
    activations: dict[object, int] = {}
    gradients = 0
    for sites, cost in zip(layers, costs, strict=True):
        own = cost.n * cost.t * cost.p * cost.kept_itemsize
        gradients += own
        if all(site.use.kind == "lookup" for site in sites):
            continue  # of rows that are looked up, their numbers
        activations[sites[0].reads, sites[0].axes] = cost.kept_bytes - own
    return gradients + sum(activations.values())


def why_gathered(sites: Sites, cost: LayerCost) -> str:
    """Why no patches are made of these uses of a weight, or an empty string."""
    use = sites[0].use
    images = {site.use.equation.invars[0].aval.dtype for site in sites}
    if cost.kept_itemsize != TENSOR_CORES or images != {use.dtype}:
        return f"{use.dtype} is faster without tensor cores"
    if use.groups > 1 and cost.p == 1 and cost.d == math.prod(use.window.kernel):
        return "depthwise"
    if not all(has_patches(site.use.window) for site in sites):
        return "kernel too large for patches"
    return ""


def _patches(sites: Sites, cost: LayerCost, room: float) -> Patches:
    return Patches(cost.d, 1, copied=False) if _is_image(sites) else in_room(cost, room)


def in_room(cost: LayerCost, room: float) -> Patches:
    """Patches that are copied, in as few parts as there is room for, in bytes for each example.

    >>> in_room(LayerCost(1, 3136, 576, 64, kept_itemsize=2, kept_d=64), 1e6)
    Patches(width=576, parts=4, copied=True)
    """
    width = filled_width(cost.d, cost.kept_itemsize)
    nbytes = cost.n * cost.t * width * cost.kept_itemsize
    return Patches(width, max(1, math.ceil(nbytes / room)) if room else 1, copied=True)


def settled(
    sites: Sites, cost: LayerCost, choice: Choice, rates: Rates
) -> tuple[LayerCost, Choice]:
    """The faster form of a layer by its route, and the choice that says which it is."""
    if rates.device is None or not cost.is_conv:
        return cost, choice
    if cost.patches is None:
        is_gram = choice.route == "ghost" and cost.pixel_d is None
        norm = "norm from pixels as rows, sum gathered" if is_gram else "gathered"
        return cost, _noted(choice, f"{norm}: {why_gathered(sites, cost)}")
    ratio = gathered_ratio(cost, choice.route, rates.device)
    if ratio < 1:
        return cost.forms[1], _noted(choice, f"gathered, from patches {1 / ratio:.1f}x as long")
    return cost, _noted(choice, f"{_named(cost.patches)}, gathered {ratio:.1f}x as long")


def gathered_ratio(cost: LayerCost, route: str, device: Device) -> float:
    """Seconds of norm and sum with pixels that are gathered, over those from patches."""
    patched, gathered = (route_seconds(form, route, BATCH_SIZE, device) for form in cost.forms)
    return gathered / patched


def why_for(cost: LayerCost, why: str, batch_size: int) -> str:
    """The reason for a layer's form, for a batch that may be too small for it.

    >>> cost = LayerCost(1, 9, 576, 64, kept_d=64, patches=Patches(576, 6, True))
    >>> why_for(cost, "patches in 6 parts", 5)
    'patches in 6 parts, but gathered in a batch of 5'
    """
    is_small = cost.patches is not None and not cost.patches.at_once(batch_size)
    return f"{why}, but gathered in a batch of {batch_size}" if is_small else why


def _named(patches: Patches) -> str:
    parts = f" in {patches.parts} parts" if patches.parts > 1 else ""
    return f"patches{parts}" if patches.copied else "pixels as rows"


def _noted(choice: Choice, note: str) -> Choice:
    return Choice(choice.route, f"{choice.why}; {note}")
