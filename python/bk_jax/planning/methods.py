"""Methods: the systems that the Book-Keeping paper compares, as choices within one framework.

| method | norm of a layer | sum |
|---|---|---|
| `tf_privacy` | gradient of one example at a time | a loop that adds them up |
| `opacus` | per-example gradients of everything | weighted sum of them |
| `fast_grad_clip` | per-example gradients, dropped again | second back-propagation |
| `ghost_clip` | ghost norm | second back-propagation |
| `mix_ghost_clip` | ghost norm if 2 T^2 < p d, else instantiated | second back-propagation |
| `bk` | ghost norm | book-keeping |
| `bk_mix_ghost_clip` | ghost norm if 2 T^2 < p d, else instantiated | book-keeping |
| `bk_mix_opt` | ghost norm if 2 T^2 < p d, else stored | book-keeping, or the stored gradients |
| `auto` | whichever is predicted to be fastest, within memory | as `bk_mix_opt` |

All give the same gradients up to rounding. A *route* is what is done with one weight: `ghost` and
`fused` keep activations and output gradients and differ in the norm; `store` keeps the per-example
gradient instead; `sparse` is for lookups; `leaf` taps the parameter itself.

A second back-propagation starts from the loss times the clip factor, which gives the clipped
gradient only if back-propagation is linear. The backward function of a `jax.custom_vjp` need not be
linear: a loss that contains one keeps the book in every method.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

from bk_jax.planning.cost import LayerCost
from bk_jax.planning.default_rates import AVX512
from bk_jax.planning.fastest import Choice, fastest_route
from bk_jax.planning.rates import Rates

ROUTES = ("ghost", "fused", "store", "sparse", "leaf")


class Chooser(Protocol):
    """How a method chooses."""

    def __call__(self, cost: LayerCost, rates: Rates = ..., /) -> Choice:
        """The route of a layer by its sizes, and by what a device does in a second."""


@dataclasses.dataclass(frozen=True)
class Method:
    """How routes are chosen, and how the sum is computed."""

    name: str
    choose: Chooser
    second_backward: bool = False
    tap_everything: bool = False
    loop: bool = False
    # One ghost norm for layers that read the same array; on GPUs one call for layers of one shape.
    share_activations: bool = False


def _always(route: str) -> Chooser:
    def choose(cost: LayerCost, rates: Rates = AVX512) -> Choice:
        return Choice(route, "chosen by the method")

    return choose


def _paper_rule(otherwise: str) -> Chooser:
    def choose(cost: LayerCost, rates: Rates = AVX512) -> Choice:
        small = 2 * cost.t**2 < cost.p * cost.d
        comparison = f"2 T^2 = {2 * cost.t**2} {'<' if small else '>='} p d = {cost.p * cost.d}"
        return Choice("ghost" if small else otherwise, comparison)

    return choose


METHODS = {
    method.name: method
    for method in (
        Method("auto", fastest_route, share_activations=True),
        Method("bk", _always("ghost")),
        Method("bk_mix_ghost_clip", _paper_rule("fused")),
        Method("bk_mix_opt", _paper_rule("store")),
        Method("ghost_clip", _always("ghost"), second_backward=True),
        Method("mix_ghost_clip", _paper_rule("fused"), second_backward=True),
        Method("fast_grad_clip", _always("fused"), second_backward=True),
        Method("opacus", _always("store"), tap_everything=True),
        Method("tf_privacy", _always("store"), tap_everything=True, loop=True),
    )
}


def get_method(name: str) -> Method:
    """The method of that name, or an error that lists them."""
    if name not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {name!r}.")
    return METHODS[name]
