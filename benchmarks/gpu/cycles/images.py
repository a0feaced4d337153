"""Images: convolutions in bfloat16, with pixels that are gathered and as dense layers of patches.

Steps of whole networks as in `steps`: matrix products alone, norms and sums by the route and the form
that the planner chooses. Depthwise convolutions have a kernel that nobody has read, so networks with
them are missing.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from benchmarks.gpu.cycles.calls import ITEM, Calls, Dense
from benchmarks.gpu.cycles.steps import Step, library_seconds, private_seconds
from benchmarks.paper.complexity import layers
from bk_jax.planning.cost import LayerCost, Patches
from bk_jax.planning.default_rates import nominal_rates
from bk_jax.planning.fastest import fastest_route
from bk_jax.planning.patches import PART, gathered_ratio, in_room

NETWORKS = ("resnet18", "resnet50", "wide_resnet50", "vgg11", "vgg16")
BATCH = 32


class Convolution(NamedTuple):
    """One layer of a network, with the patches that it may have there, and how often it occurs."""

    name: str
    cost: LayerCost
    count: int
    side: int  # of the result

    @property
    def dense(self) -> Dense:
        """As a product of patches that are not filled up, of `BATCH` examples."""
        return Dense(BATCH, self.cost.t, self.cost.d, self.cost.p)

    @property
    def patch_bytes(self) -> float:
        """Of all examples."""
        width = self.cost.patches.width if self.cost.patches else self.cost.d
        return float(ITEM * BATCH * self.cost.t * width)


def convolutions(network: str) -> list[Convolution]:
    """All of a network; images of 16 bits, a sixteenth of what is kept as room for patches."""
    found = [one for one in layers.read(network).multiplied() if one.kind == "conv"]
    costs = [_cost(one) for one in found]
    room = sum(one.count * cost.kept_bytes for one, cost in zip(found, costs, strict=True)) / PART
    return [
        Convolution(one.name, _with_patches(one, cost, room), one.count, math.isqrt(cost.t))
        for one, cost in zip(found, costs, strict=True)
    ]


def _cost(one: layers.Layer) -> LayerCost:
    """A stride leaves out pixels, which are kept all the same."""
    kept = one.d / one.kernel**2 * one.stride**2
    return LayerCost(one.groups, one.t or 1, one.d, one.p, ITEM, kept_d=kept, pixel_d=one.d)


def _with_patches(one: layers.Layer, cost: LayerCost, room: float) -> LayerCost:
    is_image = one.kernel == one.stride == 1
    patches = Patches(cost.d, 1, copied=False) if is_image else in_room(cost, room)
    return dataclasses.replace(cost, patches=patches, pixel_d=None if is_image else cost.d)


def making(calls: Calls, one: Convolution, parts: int) -> float:
    """Patches of a part of the batch, written by XLA."""
    patches = one.cost.patches
    if patches is None or not patches.copied:
        return 0.0
    images = ITEM * BATCH * one.cost.t * (one.cost.kept_d or 0)
    return calls.patches(images / parts, one.patch_bytes / parts)


def from_patches(calls: Calls, one: Convolution, route: str, parts: int) -> tuple[float, float]:
    """Norm and sum in so many parts: patches are made for each of them."""
    made = making(calls, one, parts)
    width = one.cost.patches.width if one.cost.patches else one.cost.d
    part = Dense(math.ceil(BATCH / parts), one.cost.t, width, one.cost.p)
    norm, total = private_seconds(calls, part, route, 1)
    if route != "store":
        return parts * (made + norm), parts * (made + total)
    stored = 4.0 * BATCH * one.cost.d * one.cost.p
    copied = calls.memory(2 * stored) if parts > 1 else 0.0
    return parts * (made + norm) + copied, calls.weighted_sum(one.dense)


def gathered(calls: Calls, one: Convolution, route: str) -> tuple[float, float]:
    """Norm and sum by the kernel that gathers pixels."""
    norm = calls.convolution(one.dense)
    if route != "store":
        return norm, norm
    stored = calls.memory(4.0 * BATCH * one.cost.d * one.cost.p)
    return norm + stored, calls.weighted_sum(one.dense)


def planned(calls: Calls, one: Convolution, *, patches: bool) -> tuple[str, float, float]:
    """Route, norm and sum, with the form that a plan chooses, or without patches."""
    cost = one.cost if patches else dataclasses.replace(one.cost, patches=None, pixel_d=one.cost.d)
    rates = nominal_rates(calls.gpu.name)
    route = fastest_route(cost, rates).route
    assert rates.device is not None
    if cost.patches is None or gathered_ratio(cost, route, rates.device) < 1:
        return route, *gathered(calls, one, route)
    return route, *from_patches(calls, one, route, cost.patches.parts)


def step(network: str, calls: Calls, *, patches: bool = True) -> Step:
    """Of a network without its head and its noise, which are the same in both forms."""
    plain = norms = sums = replaced = 0.0
    routes = {}
    for one in convolutions(network):
        gradient = library_seconds(2.0 * BATCH * one.cost.t * one.cost.d * one.cost.p, calls.gpu)
        route, norm, total = planned(calls, one, patches=patches)
        plain += 3 * one.count * gradient
        replaced += one.count * gradient
        norms += one.count * norm
        sums += one.count * total
        routes[one.name] = route
    return Step(*(1e3 * part for part in (plain, norms, sums, 0.0, replaced)), routes)
