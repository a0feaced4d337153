"""The steps of the transform up to the plan, for a loss of several weights and one example."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bk_jax.planning.methods import get_method
from bk_jax.planning.plan import Plan, make_plan
from bk_jax.planning.routes import force_routes
from bk_jax.program.sites import Sites, find_sites
from bk_jax.program.trace import Leaf


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr, those of inner jaxprs included, on every JAX that we support."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            for item in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(getattr(item, "jaxpr", item), "eqns"):
                    yield from equations(item)


def count_up(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """0, 1, 2, ... in that shape."""
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)


def sites_of(loss: Callable[..., Any], weights: Sequence[Any], *example: Any) -> Sites:
    """The uses of the weights, which are the first arguments of the loss."""
    return find_sites(jax.make_jaxpr(loss)(*weights, *example), len(weights))


def only_site(loss: Callable[..., Any], weights: Sequence[Any], *example: Any) -> Any:
    """The one use that there is, and nothing else."""
    found = sites_of(loss, weights, *example)
    assert not found.opaque
    (site,) = found.sites
    return site


def plan_of(
    loss: Callable[..., Any],
    weights: Sequence[Any],
    *example: Any,
    method: str = "auto",
    groups: Sequence[int] | None = None,
    routes: Mapping[str, str] | None = None,
) -> Plan:
    """The plan for weights called w0, w1, ..."""
    leaves = [Leaf(f"w{i}", w.shape, w.dtype, True) for i, w in enumerate(weights)]
    found = sites_of(loss, weights, *example)
    forced = force_routes(routes, leaves)
    return make_plan(found, leaves, groups or [0] * len(leaves), get_method(method), forced)
