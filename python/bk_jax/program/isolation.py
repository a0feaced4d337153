"""Isolation: no example can touch another's gradient, whatever the loss calls.

JAX batches a program equation by equation, and its own rules keep the rows of a batch apart. Some
equations bring a rule of their own, or hand all rows to code that nobody can look into:

| equation | would see the whole batch | here |
|---|---|---|
| `custom_vmap` | its rule | the rule is not used: its function is called for each example |
| `pure_callback`, `ffi_call` | with `vmap_method` other than sequential | one example at a time |
| `io_callback` with results | and may remember earlier examples | refused |
| a collective (`psum`) over an axis of an outer `vmap` | all of that axis | refused |
| the same inside a rule of `custom_jvp` or `custom_vjp` | likewise | refused |

A primitive that somebody registered with a batching rule of their own is trusted, as JAX's are;
`bk_jax.audit` finds one that mixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import _compat
from bk_jax._compat import prims

SEQUENTIAL = ("sequential", "sequential_unrolled")
_FOREIGN = (_compat.pure_callback_p, _compat.ffi_call_p)
_CUSTOM_RULES = (prims.custom_jvp_call_p, prims.custom_vjp_call_p)


def isolate(closed_jaxpr: Any) -> Any:
    """The traced loss with every equation batched example by example; raises where that fails."""
    for eqn in _compat.equations(closed_jaxpr):
        _check_callback(eqn)
        if eqn.primitive in _CUSTOM_RULES and not _compat.is_of_jax(eqn):
            _check_rules(eqn)
    if not any(_is_mixing(eqn) for eqn in _compat.equations(closed_jaxpr)):
        return closed_jaxpr
    return closed_jaxpr.replace(jaxpr=_rewrite(closed_jaxpr.jaxpr))


def check_collectives(closed_jaxpr: Any, allowed: set[str]) -> None:
    """Refuses communication along axes that are no axes of a `shard_map`: those of an outer `vmap`."""
    for eqn, names in _collectives(closed_jaxpr, frozenset(allowed)):
        raise ValueError(
            f"the loss communicates ({eqn.primitive}, {_compat.source_line(eqn)}) along "
            f"{sorted(names)}, an axis of a vmap around the private gradient: what is mapped there "
            "would change each other's gradients, and clipping would bound nothing. Communicate "
            "outside of the loss."
        )


def _collectives(jaxpr: Any, bound: frozenset[str]) -> Iterator[tuple[Any, set[str]]]:
    opened, _ = _compat.split_closed(jaxpr)
    for eqn in opened.eqns:
        names = _compat.collective_axes(eqn) - bound
        if names:
            yield eqn, names
        inside = bound | _compat.bound_axes(eqn)
        for inner in _compat.inner_jaxprs(eqn):
            yield from _collectives(inner, inside)


def _is_mixing(eqn: Any) -> bool:
    """Whether JAX would hand all examples at once to code with a rule of its own."""
    if eqn.primitive in _FOREIGN:
        return eqn.params["vmap_method"] not in SEQUENTIAL
    return eqn.primitive is _compat.custom_vmap_p


def _check_callback(eqn: Any) -> None:
    if eqn.primitive is _compat.io_callback_p and eqn.outvars:
        raise ValueError(
            f"the loss uses a result of io_callback ({_compat.source_line(eqn)}), which may depend on "
            "examples that the callback saw before. Use jax.pure_callback for a function of its "
            'arguments, with vmap_method="sequential".'
        )


def _check_rules(eqn: Any) -> None:
    """The functions that differentiate a custom_jvp or custom_vjp are opaque until they are called."""
    for inner in _compat.equations(_traced_rules(eqn)):
        _check_callback(inner)
        if _is_mixing(inner):
            raise ValueError(
                f"the differentiation rule of a {eqn.primitive} ({_compat.source_line(eqn)}) contains "
                f"{inner.primitive}, which would see all examples at once: one could change another's "
                'gradient. Give a callback vmap_method="sequential"; call the function of a '
                "custom_vmap without it."
            )


def _traced_rules(eqn: Any) -> Any:
    """The equation and its pullback as a jaxpr; empty when it cannot be differentiated at all."""
    avals = [v.aval for v in eqn.invars]
    moved = [i for i, aval in enumerate(avals) if jnp.issubdtype(aval.dtype, jnp.floating)]

    def both_ways(operands: list[Any]) -> Any:
        def function(moving: list[Any]) -> list[Any]:
            given = list(operands)
            for position, value in zip(moved, moving, strict=True):
                given[position] = value
            return [x for x in _compat.bind(eqn, given) if jnp.issubdtype(x.dtype, jnp.floating)]

        out, pullback = jax.vjp(function, [operands[i] for i in moved])
        return pullback([jnp.ones_like(x) for x in out])

    try:
        return jax.make_jaxpr(both_ways)([_compat.struct_of(aval) for aval in avals])
    except Exception:  # a rule that refuses is never used, or refuses again where it is
        return jax.make_jaxpr(lambda: ())()


def _rewrite(jaxpr: Any) -> Any:
    """An open jaxpr in which no equation mixes examples, at any depth."""
    return jaxpr.replace(eqns=[_rewrite_equation(eqn) for eqn in jaxpr.eqns])


def _rewrite_equation(eqn: Any) -> Any:
    if eqn.primitive in _FOREIGN:
        return eqn.replace(params={**eqn.params, "vmap_method": "sequential"})
    if eqn.primitive is _compat.custom_vmap_p:
        return _call(eqn, eqn.params["call"])
    return eqn.replace(params={k: _rewrite_parameter(v) for k, v in eqn.params.items()})


def _rewrite_parameter(value: Any) -> Any:
    if type(value) in (tuple, list):  # branches
        return type(value)(_rewrite_parameter(item) for item in value)
    if isinstance(value, _compat.ClosedJaxpr):
        return value.replace(jaxpr=_rewrite(value.jaxpr))
    return _rewrite(value) if isinstance(value, _compat.Jaxpr) else value


def _call(eqn: Any, body: Any) -> Any:
    """The equation as a plain call of a closed jaxpr."""
    function = _compat.jaxpr_as_fun(_rewrite_parameter(body))
    shapes = [_compat.struct_of(v.aval) for v in eqn.invars]
    (call,) = jax.make_jaxpr(jax.jit(function))(*shapes).eqns
    return eqn.replace(primitive=call.primitive, params=call.params)
