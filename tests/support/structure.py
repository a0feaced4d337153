"""Looking into traced and compiled programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend import core as jex_core


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr, those of inner jaxprs included."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(inner):
                yield from equations(inner)


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, jex_core.Jaxpr | jex_core.ClosedJaxpr)


def jaxpr_shapes(jaxpr: Any) -> set[tuple[int, ...]]:
    """The shapes of all values that a jaxpr computes; what a call hands on as it is does not count."""
    computed = [eqn for eqn in equations(jaxpr) if not _hands_on(eqn)]
    return {tuple(var.aval.shape) for eqn in computed for var in eqn.outvars}


def _hands_on(eqn: Any) -> bool:
    """Whether an equation is a call of a program without equations."""
    inner = [
        v for v in jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_jaxpr) if _is_jaxpr(v)
    ]
    return bool(inner) and not any(body.eqns for body in inner)


def hlo_shapes(hlo: str) -> set[tuple[int, ...]]:
    """The shapes of all array types in the text of an HLO module."""
    found = re.findall(r"\b(?:pred|[sufb]\w*?\d+)\[([\d,]*)\]", hlo)
    return {tuple(int(n) for n in dims.split(",") if n) for dims in found}


def same_up_to_layout(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Whether one shape is the other transposed, or with axes of size 1."""
    return sorted(n for n in shape if n != 1) == sorted(n for n in other if n != 1)


def custom_calls(hlo: str) -> list[str]:
    """The targets of all custom calls of an HLO module, in order of appearance."""
    return re.findall(r'custom_call_target="([^"]+)"', hlo)


def fresh_jit(fun: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit` that shares no trace with another one of the same function.

    JAX keeps traces by function, and the choice between a custom call and its twin is made when the
    function is traced.
    """

    def call(*args: Any) -> Any:
        return fun(*args)

    return jax.jit(call)
