"""Equations with a program inside: entered, batched in place, and applied again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax

from bk_jax import _compat
from bk_jax._compat import prims
from bk_jax.program.batching.value import ABSENT, Place, Value, at

if TYPE_CHECKING:
    from bk_jax.program.batching.interpreter import Batching

Scope = Callable[["Batching", Any, Sequence[Value]], "list[Value] | None"]


def call(batching: Batching, eqn: Any, operands: Sequence[Value]) -> list[Value] | None:
    """`jit`: the same call of the batched program, traced once for calls that are alike."""
    if _compat.is_placed(eqn):
        return None
    jaxpr, places = eqn.params["jaxpr"], tuple(operand.place for operand in operands)
    key = (id(jaxpr), places)
    if key not in batching.calls:
        run, found = _function(batching, jaxpr, places)
        run.__name__ = eqn.params["name"]
        batching.calls[key] = (jax.jit(run, inline=eqn.params["inline"]), found, [], jaxpr)
    run, found, fallbacks, _ = batching.calls[key]
    seen = len(batching.fallbacks)
    outs = run(*(operand.array for operand in operands))
    fallbacks[:] = batching.fallbacks[seen:] or fallbacks  # those of its one trace count every time
    batching.fallbacks[seen:] = fallbacks
    return [Value(out, place) for out, place in zip(outs, found, strict=True)]


def _function(
    batching: Batching, jaxpr: Any, places: Sequence[Place], wanted: Sequence[Place] | None = None
) -> tuple[Callable[..., list[Any]], list[Place]]:
    """The batched program as a function of arrays; a trace of it leaves the places of its results.

    With `wanted` it brings its results to these places.
    """
    found: list[Place] = []

    def run(*arrays: Any) -> list[Any]:
        values = [Value(array, place) for array, place in zip(arrays, places, strict=True)]
        outs = batching.evaluate(jaxpr, values)
        if wanted is not None:
            pairs = zip(outs, wanted, strict=True)
            outs = [at(out, place, batching.size) for out, place in pairs]
        found[:] = [out.place for out in outs]
        return [out.array for out in outs]

    return run, found


def inline(batching: Batching, eqn: Any, operands: Sequence[Value]) -> list[Value]:
    """A call, or a function with derivatives of its own, which nobody will ask for any more."""
    return batching.evaluate(eqn.params["call_jaxpr"], operands)


def remat(batching: Batching, eqn: Any, operands: Sequence[Value]) -> list[Value]:
    """A part that is computed again in the backward pass, and kept from being computed only once."""
    places = [operand.place for operand in operands]
    run, found = _function(batching, eqn.params["jaxpr"], places)
    arrays = [operand.array for operand in operands]
    traced = jax.make_jaxpr(jax.checkpoint(run))(*arrays)
    jaxpr, consts = _compat.split_closed(traced)
    (new,) = jaxpr.eqns
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arrays], strict=True))
    given = [v.val if _compat.is_literal(v) else env[v] for v in new.invars]
    params = {**eqn.params, "jaxpr": new.params["jaxpr"]}
    outs = dict(zip(new.outvars, _compat.bind(new.replace(params=params), given), strict=True))
    results = (v.val if _compat.is_literal(v) else {**env, **outs}[v] for v in jaxpr.outvars)
    return [Value(out, place) for out, place in zip(results, found, strict=True)]


def scan(batching: Batching, eqn: Any, operands: Sequence[Value]) -> list[Value] | None:
    """A loop: what is carried keeps its place from step to step."""
    params = eqn.params
    consts, init, xs = _compat.split_scan(eqn, operands)
    if any(x.place == Place(0) for x in xs):
        return None  # a loop of one step over the batch itself
    xs = [_behind_steps(x, batching.size) for x in xs]
    inner = [*(v.place for v in consts), *(v.place for v in init), *(_of_step(x) for x in xs)]
    carried, ys = _carried_places(batching, eqn, consts, init, xs, inner)
    places = [*(v.place for v in consts), *carried, *(_of_step(x) for x in xs)]
    run, _ = _function(batching, params["jaxpr"], places, [*carried, *ys])
    fixed = [v.array for v in consts]

    def body(carry: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        outs = run(*fixed, *carry, *slices)
        return outs[: len(carried)], outs[len(carried) :]

    first = [at(v, place, batching.size).array for v, place in zip(init, carried, strict=True)]
    options = {name: params[name] for name in ("length", "reverse", "unroll")}
    last, stacked = jax.lax.scan(body, first, [x.array for x in xs], **options)
    outs = [Value(array, place) for array, place in zip(last, carried, strict=True)]
    return outs + [Value(array, _of_steps(place)) for array, place in zip(stacked, ys, strict=True)]


def _carried_places(
    batching: Batching,
    eqn: Any,
    consts: Sequence[Value],
    init: Sequence[Value],
    xs: Sequence[Value],
    inner: Sequence[Place],
) -> tuple[list[Place], list[Place]]:
    """Where what is carried has its examples, and what comes out of every step.

    A step may batch what was the same for all examples before; then all that follows is batched.
    """
    carried = [v.place for v in init]
    first = len(consts)
    types = [_compat.struct_of(jax.typeof(v.array)) for v in consts]
    steps = [_step_type(x) for x in xs]
    while True:
        places = [*inner[:first], *carried, *inner[first + len(carried) :]]
        run, found = _function(batching, eqn.params["jaxpr"], places)
        moved = [_type_at(v, place, batching.size) for v, place in zip(init, carried, strict=True)]
        seen = len(batching.fallbacks)
        jax.eval_shape(run, *types, *moved, *steps)
        del batching.fallbacks[seen:]  # they are met again when the loop is written down
        after = [
            out if before == ABSENT else before for before, out in zip(carried, found, strict=False)
        ]
        if after == carried:
            return carried, found[len(carried) :]
        carried = after


def _type_at(value: Value, place: Place, size: int) -> Any:
    return jax.eval_shape(lambda x: at(Value(x, value.place), place, size).array, value.array)


def _step_type(x: Value) -> Any:
    array = x.array
    return _compat.struct_like(jax.ShapeDtypeStruct(array.shape[1:], array.dtype), array)


def _behind_steps(x: Value, size: int) -> Value:
    """The axis of steps is in front of that of the examples."""
    return at(x, Place(1, extra=True), size) if x.place == Place(0, extra=True) else x


def _of_step(x: Value) -> Place:
    """The place in one step."""
    axis, extra = x.place
    return ABSENT if axis is None else Place(axis - 1, extra)


def _of_steps(place: Place) -> Place:
    axis, extra = place
    return ABSENT if axis is None else Place(axis + 1, extra)


def cond(batching: Batching, eqn: Any, operands: Sequence[Value]) -> list[Value] | None:
    """A choice that is the same for all examples; its branches put their results in one place."""
    index, *rest = operands
    if index.is_batched:
        return None
    places, branches = [v.place for v in rest], eqn.params["branches"]
    arrays = [v.array for v in rest]
    wanted: list[Place] = [ABSENT] * len(eqn.outvars)
    seen = len(batching.fallbacks)
    for branch in branches:
        run, found = _function(batching, branch, places)
        jax.eval_shape(run, *arrays)
        wanted = [a if b == ABSENT else b for a, b in zip(found, wanted, strict=True)]
    del batching.fallbacks[seen:]
    runs = [_function(batching, branch, places, wanted)[0] for branch in branches]
    outs = jax.lax.switch(index.array, runs, *arrays)
    return [Value(out, place) for out, place in zip(outs, wanted, strict=True)]


SCOPES: dict[Any, Scope] = {
    prims.jit_p: call,
    prims.remat_p: remat,
    prims.scan_p: scan,
    prims.cond_p: cond,
    prims.closed_call_p: inline,
    prims.custom_jvp_call_p: inline,
    prims.custom_vjp_call_p: inline,
}
