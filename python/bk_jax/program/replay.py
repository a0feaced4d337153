"""Replay: a traced program evaluated again, with something done at chosen equations.

Scopes on the way to a chosen equation (`jit`, `remat`, `scan`) are entered and applied again; all
others are evaluated as they stand, so their `jit`, `custom_vjp` and control flow survive. Each chosen
equation is given an *extra* (any tree of arrays), such as a tap or an adapter. Inside a `scan` an extra
is sliced like a scanned-over array or stays whole like a constant, and what is recorded is stacked.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax

from bk_jax import _compat
from bk_jax._compat import prims
from bk_jax.program.sites import Path
from bk_jax.repeated import RepeatedEquations

Extras = Mapping[Path, Any]
Book = dict[Path, Any]


@dataclasses.dataclass(frozen=True)
class Replay:
    """What to do at the chosen equations.

    Attributes:
      visit: from path, equation, operands and extra to the equation's results and a record.
      is_sliced: whether the scan of this depth, outermost 0, slices the extra of this path.
      kind: what `visit` depends on besides the equation, by path; `None` if that can not be said.
    """

    visit: Callable[[Path, Any, list[Any], Any], tuple[list[Any], Any]]
    is_sliced: Callable[[Path, int], bool]
    kind: Callable[[Path], Hashable] = lambda path: None

    def __call__(self, jaxpr: Any, inputs: Sequence[Any], extras: Extras) -> tuple[list[Any], Book]:
        """The outputs of a closed jaxpr, and the record of every path that has an extra."""
        inner, consts = _compat.split_closed(jaxpr)
        return self._scope(inner, consts, inputs, extras, (), 0)

    def _scope(
        self,
        jaxpr: Any,
        consts: Sequence[Any],
        inputs: Sequence[Any],
        extras: Extras,
        path: Path,
        depth: int,
    ) -> tuple[list[Any], Book]:
        env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))
        below = _by_equation(extras, len(path))
        repeats = RepeatedEquations(jaxpr.eqns)
        book: Book = {}
        for index, eqn in enumerate(jaxpr.eqns):
            operands = [v.val if _compat.is_literal(v) else env[v] for v in eqn.invars]
            here, own = (*path, index), below.get(index, {})
            with _compat.equation_context(eqn):
                if here in own:
                    visit = functools.partial(self.visit, here, eqn)
                    visit = repeats.function(index, visit, self.kind(here))
                    outs, book[here] = visit(operands, own[here])
                elif own:
                    enter = functools.partial(self._enter, eqn, here, depth, tuple(own))
                    enter = repeats.function(index, enter, self._kind_below(eqn, here, own))
                    outs, records = enter(operands, list(own.values()))
                    book.update(zip(own, records, strict=True))
                else:
                    bind = repeats.function(index, functools.partial(_compat.bind, eqn))
                    outs = bind(operands)
            env.update(zip(eqn.outvars, outs, strict=True))
        outputs = [v.val if _compat.is_literal(v) else env[v] for v in jaxpr.outvars]
        return outputs, book

    def _enter(
        self,
        eqn: Any,
        path: Path,
        depth: int,
        places: Sequence[Path],
        operands: list[Any],
        extras: list[Any],
    ) -> tuple[list[Any], list[Any]]:
        """The outputs of a scope, and its records in the order of the extras."""
        own = dict(zip(places, extras, strict=True))
        outs, book = _ENTER[eqn.primitive](self, eqn, operands, own, path, depth)
        return outs, [book[place] for place in places]

    def _kind_below(self, eqn: Any, path: Path, places: Iterable[Path]) -> Hashable:
        """What is done in a scope, if it is a call of one line such as a function of `jax.numpy`.

        Where equations are copied they are all of the line of the call.
        """
        kinds = [(place[len(path) :], self.kind(place)) for place in places]
        if eqn.primitive is not prims.jit_p or any(kind is None for _, kind in kinds):
            return None
        body, _ = _compat.split_closed(eqn.params["jaxpr"])
        return tuple(kinds) if len(set(map(_compat.source_line, body.eqns))) == 1 else None

    def _jit(
        self, eqn: Any, operands: list[Any], extras: Extras, path: Path, depth: int
    ) -> tuple[list[Any], Book]:
        inner, consts = _compat.split_closed(eqn.params["jaxpr"])
        return self._scope(inner, consts, operands, extras, path, depth)

    def _remat(
        self, eqn: Any, operands: list[Any], extras: Extras, path: Path, depth: int
    ) -> tuple[list[Any], Book]:
        inner, consts = _compat.split_closed(eqn.params["jaxpr"])

        def body(operands: list[Any], extras: Extras) -> tuple[list[Any], Book]:
            return self._scope(inner, consts, operands, extras, path, depth)

        params = eqn.params
        again = jax.checkpoint(body, prevent_cse=params["prevent_cse"], policy=params["policy"])
        return again(operands, extras)

    def _scan(
        self, eqn: Any, operands: list[Any], extras: Extras, path: Path, depth: int
    ) -> tuple[list[Any], Book]:
        params = eqn.params
        num_carry = params["num_carry"]
        scan_consts, carry, xs = _compat.split_scan(eqn, operands)
        inner, consts = _compat.split_closed(params["jaxpr"])
        sliced = {k: v for k, v in extras.items() if self.is_sliced(k, depth)}
        whole = {k: v for k, v in extras.items() if k not in sliced}

        def body(carry: list[Any], slices: Any) -> tuple[list[Any], Any]:
            xs, sliced = slices
            inputs = [*scan_consts, *carry, *xs]
            outs, book = self._scope(inner, consts, inputs, {**whole, **sliced}, path, depth + 1)
            return outs[:num_carry], (outs[num_carry:], book)

        carry, (ys, book) = jax.lax.scan(
            body,
            carry,
            (xs, sliced),
            length=params["length"],
            reverse=params["reverse"],
            unroll=params["unroll"],
        )
        return [*carry, *ys], book


def _by_equation(extras: Extras, depth: int) -> dict[int, dict[Path, Any]]:
    """The extras of a scope, whose path has this length, by the number of its equation."""
    below: dict[int, dict[Path, Any]] = {}
    for path, extra in extras.items():
        below.setdefault(path[depth], {})[path] = extra
    return below


_ENTER = {
    prims.jit_p: Replay._jit,
    prims.remat_p: Replay._remat,
    prims.scan_p: Replay._scan,
}
