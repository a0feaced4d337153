"""Variables that a loss changes, which are refused: nothing makes them private.

A variable whose value is another array may still be what it was: `nnx.jit` and `nnx.remat` hand all
variables through. Whether they do is read off the program of the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bk_jax import _compat
from bk_jax._compat import prims
from bk_jax._extras import require
from bk_jax.interop.nnx_arguments import variables

nnx = require("flax.nnx", "flax", install="flax")

Values = Mapping[tuple[Any, ...], tuple[str, Any]]  # of a path: kind of the variable, and its array
CALLS = (prims.jit_p, prims.remat_p)


def values_of(objects: Any) -> Values:
    """Kind and value of every variable that a loss must leave as it is."""
    return {
        path: (type(variable).__name__, variable.get_raw_value())
        for path, variable in variables(objects)
        if not isinstance(variable, nnx.RngState)
    }


def refuse_changes(
    before: Values, after: Values, again: Callable[[Any], tuple[Values, Values]], state: Any
) -> None:
    """Raises if the loss has changed a variable; `again(state)` runs it once more."""
    others = [path for path, (_, value) in after.items() if not _is_in(before, path, value)]
    known = [path for path in others if path in before]
    same = _handed_through(again, state, known) if known else []
    if changed := {path: after[path][0] for path in others if path not in same}:
        raise ValueError(_message(changed))


def _is_in(before: Values, path: tuple[Any, ...], value: Any) -> bool:
    return path in before and before[path][1] is value


def _handed_through(
    again: Callable[[Any], tuple[Values, Values]], state: Any, paths: Sequence[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Those among the paths whose value after the run is the one before it."""

    def ends(state: Any) -> list[tuple[Any, Any]]:
        before, after = again(state)
        return [(before[path][1], after[path][1]) for path in paths]

    program, _ = _compat.split_closed(_compat.trace(ends, state)[0])
    olds, news = program.outvars[::2], program.outvars[1::2]
    pairs = zip(paths, olds, news, strict=True)
    return [path for path, old, new in pairs if _origin(program, new) is old]


def _origin(program: Any, var: Any) -> Any:
    """The variable of the program whose value this one has, through calls that hand it on."""
    makers = {out: (eqn, i) for eqn in program.eqns for i, out in enumerate(eqn.outvars)}
    while not _compat.is_literal(var) and var in makers:
        eqn, i = makers[var]
        if eqn.primitive not in CALLS:
            break
        inner, _ = _compat.split_closed(eqn.params["jaxpr"])
        end = _origin(inner, inner.outvars[i])
        if _compat.is_literal(end) or end not in inner.invars:
            break
        var = eqn.invars[inner.invars.index(end)]
    return var


def _message(changed: Mapping[tuple[Any, ...], str]) -> str:
    """What is changed, and what to do instead; paths begin with the number and part of an argument."""
    names = ", ".join(f"{'/'.join(map(str, p[2:]))!r} ({kind})" for p, kind in changed.items())
    statistics = nnx.BatchStat.__name__ in changed.values()
    advice = (
        "BatchNorm in training mode sees one example at a time here. Replace it by GroupNorm or "
        "LayerNorm, or keep its statistics as they are: model.eval(), or use_running_average=True."
        if statistics
        else "Return what you want to see with has_aux=True; it comes back per example."
    )
    return (
        f"loss_fn changes {names}. A private gradient runs it on each example by itself, and a state "
        f"that examples have changed is not private. {advice}"
    )
