"""Layer seconds: what the gradient of a layer takes, and its norms and clipped sum by each route."""

from __future__ import annotations

from bk_jax.planning import device_seconds
from bk_jax.planning.cost import LayerCost
from bk_jax.planning.rates import Rates, Table, rate_at

_DENSE = {"plain": "weight_gradient", "each": "direct_norm", "sum": "clipped_gemm"}
_CONV = {"plain": "kernel_gradient", "each": "conv_norm", "sum": "conv_sum"}


def limited(seconds: float, nbytes: float, rates: Rates) -> float:
    """At least as long as the memory needs, and the start of an operation."""
    return max(seconds, nbytes / rates.memory) + rates.operation


def plain_seconds(cost: LayerCost, batch_size: int, rates: Rates) -> float:
    """XLA's gradient of the weight, summed over the batch."""
    if rates.device is not None:
        return device_seconds.plain_seconds(cost, batch_size, rates.device)
    nbytes = batch_size * cost.kept_bytes + cost.stored_bytes
    return _product(cost, "plain", batch_size, nbytes, rates)


def route_seconds(
    cost: LayerCost, route: str, batch_size: int, rates: Rates, *, shares_gram: bool = False
) -> float:
    """Norms and clipped sum; with `shares_gram` another layer made the activations' Gram matrix."""
    if rates.device is not None:
        return device_seconds.route_seconds(
            cost, route, batch_size, rates.device, shares_gram=shares_gram
        )
    kept, stored = batch_size * cost.kept_bytes, cost.stored_bytes
    if route == "store":
        each = _product(cost, "each", batch_size, kept + batch_size * stored, rates)
        return each + weighted_sum_seconds(batch_size * stored, stored, rates)
    if route == "ghost":
        norm = _ghost_norm(cost, batch_size, rates, shares_gram)
    else:
        norm = _product(cost, "each", batch_size, kept, rates)
    return norm + _product(cost, "sum", batch_size, kept + stored, rates)


def weighted_sum_seconds(nbytes: float, result: float, rates: Rates) -> float:
    """Gradients of every example, read once, and their sum, written once."""
    return limited(0.0, nbytes + result, rates)


def _product(cost: LayerCost, name: str, batch_size: int, nbytes: float, rates: Rates) -> float:
    kernels = _CONV if cost.is_conv else _DENSE
    size = cost.t if cost.is_conv or name == "each" else batch_size * cost.t
    flops = 2 * batch_size * cost.n * cost.t * cost.p * cost.d
    table: Table = getattr(rates, kernels[name])
    return limited(flops / rate_at(table, size), nbytes, rates)


def _ghost_norm(cost: LayerCost, batch_size: int, rates: Rates, shares_gram: bool) -> float:
    flops = batch_size * cost.extra_flops("ghost")
    if shares_gram:
        flops = flops * cost.p // (cost.p + cost.gram_d)
    rate = rate_at(rates.ghost_norm, cost.t) if cost.pixel_d is None else rates.pixel_gram
    return limited(flops / rate, batch_size * cost.kept_bytes, rates)
