"""Fastest: the route of a layer that takes the least time in the memory that book-keeping takes.

The predictions are those of shipped rates, never of a calibration, and of a batch of fixed size: all
processes of a run, whatever their machines, must choose alike. `target` says which rates those are.
"""

from __future__ import annotations

import dataclasses

from bk_jax.planning.cost import LayerCost
from bk_jax.planning.default_rates import AVX512
from bk_jax.planning.layer_seconds import plain_seconds, route_seconds
from bk_jax.planning.rates import Rates

BATCH_SIZE = 8
SUMMED = ("ghost", "fused", "store")  # routes of layers that multiply
# A stored gradient may be an eighth larger than the activations and output gradients it replaces: a
# step also holds what lies between layers, and no compiled one was seen to grow by that.
SPARE = 1 / 8


@dataclasses.dataclass(frozen=True)
class Choice:
    """A route and the reason for it."""

    route: str
    why: str


def fastest_route(cost: LayerCost, rates: Rates = AVX512) -> Choice:
    """The route with the least predicted time among those that there is memory for.

    >>> fastest_route(LayerCost(1, 100, 768, 768)).route
    'ghost'
    >>> fastest_route(LayerCost(1, 1000, 768, 768)).route
    'store'
    """
    seconds = {
        route: min(route_seconds(form, route, BATCH_SIZE, rates) for form in cost.forms)
        for route in SUMMED
    }
    fits = cost.extra_bytes("store") <= SPARE * cost.kept_bytes
    possible = [route for route in SUMMED if fits or route != "store"]
    chosen = min(possible, key=lambda route: seconds[route])
    plain = plain_seconds(cost, BATCH_SIZE, rates)
    order = sorted(SUMMED, key=lambda route: (route != chosen, seconds[route]))
    times = ", ".join(f"{route} {seconds[route] / plain:.2f}" for route in order[:2])
    too_large = "" if seconds["store"] >= seconds[chosen] else "; too large to store"
    return Choice(chosen, f"{times} x plain{too_large}")
