"""The same layers under the package's own cost model: routes, flops and memory of every method."""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import cache

import jax
import numpy as np
from jax import lax

from benchmarks.paper.complexity.layers import Layer, Model
from bk_jax.planning.cost import LayerCost, pixel_gram_d
from bk_jax.planning.methods import METHODS, Method
from bk_jax.program.rules import conv


@dataclasses.dataclass(frozen=True)
class Cost:
    """A model's step for one example: flops without and with privacy, extra bytes, routes of layers."""

    non_private: int
    private: int
    extra_bytes: int
    routes: Counter[str]

    @property
    def ratio(self) -> float:
        """Flops of the private step over those of the plain one."""
        return self.private / self.non_private


@cache
def layer_cost(layer: Layer) -> LayerCost:
    """Sizes of a layer as the transform sees them."""
    if layer.kind != "conv":
        return LayerCost(layer.groups, layer.t, layer.d, layer.p)
    use = _conv_use(layer)
    return LayerCost(*use.sizes, kept_d=use.kept_d, pixel_d=pixel_gram_d(use, 1))


def _conv_use(layer: Layer) -> conv.ConvUse:
    """What the transform's rule reads off a convolution of that shape."""
    channels = layer.d // layer.kernel**2
    side = round(layer.t**0.5) * layer.stride
    image = jax.ShapeDtypeStruct((1, side, side, channels * layer.groups), np.float32)
    shape = (layer.kernel, layer.kernel, channels, layer.p * layer.groups)

    def convolve(x: jax.Array, kernel: jax.Array) -> jax.Array:
        strides = (layer.stride, layer.stride)
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, kernel, strides, "SAME", dimension_numbers=numbers, feature_group_count=layer.groups
        )

    jaxpr = jax.make_jaxpr(convolve)(image, jax.ShapeDtypeStruct(shape, np.float32))
    found = conv.rule(jaxpr.eqns[0], 1, ())
    assert found is not None
    return found[0]


def choose(method: Method, layer: Layer) -> str:
    """The route of a layer."""
    if method.tap_everything:
        return "leaf"
    if layer.kind == "embedding":
        return "sparse"
    route = method.choose(layer_cost(layer)).route
    return "ghost" if layer.tied and route == "fused" else route


def model_cost(model: Model, name: str) -> Cost:
    """Adds up the generalized linear layers under a method; lookups cost no product."""
    method = METHODS[name]
    plain = private = memory = 0
    routes: Counter[str] = Counter()
    for layer in model.linear():
        route, cost = choose(method, layer), layer_cost(layer)
        products = 0 if layer.kind == "embedding" else cost.non_private_flops
        again = products * 2 // 3 if method.second_backward else 0  # forward, output gradient
        flops, kept = cost.extra_flops(route), cost.extra_bytes(route)
        if route == "leaf" and layer.tied:
            flops = kept = 0  # counted with the layer that owns the weight
        plain += layer.count * products
        private += layer.count * (products + again + flops)
        memory += layer.count * kept
        routes[route] += layer.count
    return Cost(plain, private, memory, routes)
