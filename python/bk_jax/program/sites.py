"""Sites: where in the loss each parameter is used.

`find_sites` follows every parameter leaf through the jaxpr of the loss of one example. For each
equation that a parameter enters, in this order:

1. an equation that the loss does not depend on is passed over;
2. `stop_gradient` ends the parameter's path: no gradient comes back through it;
3. a view (`bk_jax.program.views`) moves the parameter on;
4. a known linear use (`bk_jax.program.rules`) of one parameter operand becomes a `Site`;
5. `jit`, `remat` and `scan` are entered;
6. anything else makes the parameter an *opaque* leaf, with the equation as the reason: its gradient
   is then taken from a tap on the leaf itself, which is exact for every program.

Nothing is dropped: a leaf ends with sites only, or opaque, or unused by the loss.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from bk_jax import _compat
from bk_jax._compat import prims
from bk_jax.program import views
from bk_jax.program.rules import USE_RULES
from bk_jax.program.views import Unstack, View

Path = tuple[int, ...]
Origins = tuple[tuple[Path, Any], ...]  # variables, each by its scope


@dataclasses.dataclass(frozen=True)
class ScanAxis:
    """One enclosing `scan`: each step has its own weight (`stacked`) or all share one."""

    length: int
    stacked: bool


@dataclasses.dataclass(frozen=True)
class Site:
    """One linear use of a parameter: the equation at `path`, inside the scans `axes`."""

    path: Path
    views: tuple[View, ...]
    use: Any  # one of the uses of `bk_jax.program.rules`, by its `kind`
    axes: tuple[ScanAxis, ...]
    reads: Origins  # where the other operands come from: equal for sites that read the same arrays
    primitive: str
    source: str
    varying: frozenset[str] = frozenset()  # axes of a shard_map along which the result differs

    @functools.cached_property
    def leaves(self) -> tuple[int, ...]:
        """The leaves whose elements make up the weight at this site."""
        return tuple(dict.fromkeys(view.leaf for view in self.views))


@dataclasses.dataclass(frozen=True)
class Opaque:
    """Why a leaf has to be tapped itself."""

    primitive: str
    source: str

    def __str__(self) -> str:
        return f"{self.primitive} at {self.source}"


@dataclasses.dataclass(frozen=True)
class Sites:
    """All sites in program order, and the reasons of every opaque leaf."""

    sites: tuple[Site, ...]
    opaque: dict[int, tuple[Opaque, ...]]


@dataclasses.dataclass(frozen=True)
class _Tracked:
    """A parameter-derived value during the walk."""

    views: tuple[View, ...]
    axes: tuple[ScanAxis, ...]


def find_sites(closed_jaxpr: Any, num_leaves: int, *, every_use: bool = False) -> Sites:
    """Finds the uses of the first `num_leaves` inputs of the jaxpr.

    Those that the gradient of the first output, the loss, has to do with; or, with `every_use`, all
    that any output depends on: then `stop_gradient` is a use like any other.
    """
    jaxpr, _ = _compat.split_closed(closed_jaxpr)
    walk = _Walk(every_use)
    inputs: list[_Tracked | None] = [None] * len(jaxpr.invars)
    for leaf in range(num_leaves):
        inputs[leaf] = _Tracked((View(leaf, tuple(jaxpr.invars[leaf].aval.shape)),), ())
    live = [every_use or output == 0 for output in range(len(jaxpr.outvars))]
    outs = walk.jaxpr(jaxpr, inputs, live, ())
    for out in outs if every_use else outs[:1]:
        walk.returned(out)
    return Sites(tuple(walk.sites), {k: tuple(v) for k, v in sorted(walk.opaque.items())})


class _Walk:
    """The traversal: it knows equations and scopes, and no layer."""

    def __init__(self, every_use: bool) -> None:
        self.every_use = every_use
        self.sites: list[Site] = []
        self.opaque: dict[int, list[Opaque]] = {}
        self.enclosing = ""  # source line of the innermost call that has one
        self.origins: dict[tuple[Path, Any], tuple[Path, Any]] = {}  # of inputs of calls

    def jaxpr(
        self, jaxpr: Any, inputs: Sequence[_Tracked | None], live: Sequence[bool], path: Path
    ) -> list[_Tracked | None]:
        """Walks one scope and returns the tracked values among its outputs."""
        env: dict[Any, _Tracked] = {
            var: value for var, value in zip(jaxpr.invars, inputs, strict=True) if value
        }
        live_equations = _live_equations(jaxpr, live)
        for index, eqn in enumerate(jaxpr.eqns):
            operands = [None if _compat.is_literal(v) else env.get(v) for v in eqn.invars]
            if index not in live_equations or not any(operands):
                continue
            outs = self.equation(eqn, operands, live_equations[index], (*path, index))
            env.update({var: out for var, out in zip(eqn.outvars, outs, strict=True) if out})
        return [None if _compat.is_literal(v) else env.get(v) for v in jaxpr.outvars]

    def equation(
        self, eqn: Any, operands: list[_Tracked | None], live: list[bool], path: Path
    ) -> Sequence[_Tracked | None]:
        """One equation with at least one tracked operand; see the module's numbered list."""
        nothing: list[_Tracked | None] = [None] * len(eqn.outvars)
        if eqn.primitive is prims.stop_gradient_p and not self.every_use:
            return nothing
        moved = _move(eqn, operands)
        if moved is not None:
            return moved
        site = _match(eqn, operands, path, self.source(eqn), self.reads(eqn, operands, path))
        if site is not None:
            self.sites.append(site)
            return nothing
        enter = _ENTER.get(eqn.primitive)
        if enter is None:
            self.give_up(eqn, operands)
            return nothing
        outside, self.enclosing = self.enclosing, self.source(eqn)
        outs = enter(self, eqn, operands, live, path)
        self.enclosing = outside
        return outs

    def origin(self, scope: Path, var: Any) -> tuple[Path, Any]:
        """The variable of the outermost scope that holds the same array; a literal is its own."""
        place = (scope, id(var) if _compat.is_literal(var) else var)
        return self.origins.get(place, place)

    def reads(self, eqn: Any, operands: Sequence[_Tracked | None], path: Path) -> Origins:
        """The origins of the operands that hold no parameter."""
        pairs = zip(eqn.invars, operands, strict=True)
        return tuple(self.origin(path[:-1], var) for var, operand in pairs if operand is None)

    def source(self, eqn: Any) -> str:
        """The user's line of an equation; inside library code, that of the call."""
        return _compat.source_line(eqn) or self.enclosing

    def returned(self, output: _Tracked | None) -> None:
        """A parameter that is the loss itself, with no equation on its way that uses it."""
        where = "an output" if self.every_use else "the loss itself"
        for view in output.views if output else ():
            self.opaque.setdefault(view.leaf, []).append(Opaque("return", where))

    def give_up(self, eqn: Any, operands: Sequence[_Tracked | None]) -> None:
        """Marks the leaves of all tracked operands as opaque because of this equation."""
        reason = Opaque(str(eqn.primitive), self.source(eqn))
        for operand in operands:
            for view in operand.views if operand else ():
                self.opaque.setdefault(view.leaf, []).append(reason)


def _move(eqn: Any, operands: list[_Tracked | None]) -> list[_Tracked | None] | None:
    """Step 3: the equation as a view, or `None`."""
    if eqn.primitive in views.PASS_THROUGH:
        return operands
    if eqn.primitive in views.JOINS:
        joined = views.join(eqn, [op.views if op else None for op in operands])
        axes = {op.axes for op in operands if op}
        return [_Tracked(joined, axes.pop())] if joined and len(axes) == 1 else None
    rule = views.VIEW_RULES.get(eqn.primitive)
    first = operands[0]
    if rule is None or first is None or any(operands[1:]):
        return None
    outs = rule(eqn, first.views)
    return None if outs is None else [_Tracked(out, first.axes) for out in outs]


def _match(
    eqn: Any, operands: list[_Tracked | None], path: Path, source: str, reads: Origins
) -> Site | None:
    """Step 4: the equation as a linear use of its one tracked operand, or `None`."""
    rule = USE_RULES.get(eqn.primitive)
    tracked = [index for index, operand in enumerate(operands) if operand]
    if rule is None or len(tracked) != 1:
        return None
    operand = operands[tracked[0]]
    matched = rule(eqn, tracked[0], operand.views) if operand else None
    if matched is None or operand is None:
        return None
    use, views_to_use = matched
    return Site(
        path=path,
        views=views_to_use,
        use=use,
        axes=operand.axes,
        reads=reads,
        primitive=str(eqn.primitive),
        source=source,
        varying=_compat.varying(eqn.outvars[0].aval),
    )


def _enter_call(
    walk: _Walk, eqn: Any, operands: list[_Tracked | None], live: list[bool], path: Path
) -> Sequence[_Tracked | None]:
    inner, _ = _compat.split_closed(eqn.params["jaxpr"])
    for outside, inside in zip(eqn.invars, inner.invars, strict=True):
        walk.origins[path, inside] = walk.origin(path[:-1], outside)
    return walk.jaxpr(inner, operands, live, path)


def _enter_scan(
    walk: _Walk, eqn: Any, operands: list[_Tracked | None], live: list[bool], path: Path
) -> Sequence[_Tracked | None]:
    """Constants join the tokens, scanned-over arrays unstack, carried parameters are opaque."""
    length = eqn.params["length"]
    consts, carries, xs = _compat.split_scan(eqn, operands)
    walk.give_up(eqn, carries)
    inputs: list[_Tracked | None] = [_shared(op, length) for op in consts]
    inputs += [None] * len(carries)
    inputs += [_stacked(op, length) for op in xs]
    inner, _ = _compat.split_closed(eqn.params["jaxpr"])
    outs = walk.jaxpr(inner, inputs, [True] * len(inner.outvars), path)
    walk.give_up(eqn, outs)
    return [None] * len(eqn.outvars)


def _shared(operand: _Tracked | None, length: int) -> _Tracked | None:
    if operand is None:
        return None
    return _Tracked(operand.views, (*operand.axes, ScanAxis(length, stacked=False)))


def _stacked(operand: _Tracked | None, length: int) -> _Tracked | None:
    if operand is None:
        return None
    step = Unstack(length)
    inner = tuple(view.then(step, view.shape[1:]) for view in operand.views)
    return _Tracked(inner, (*operand.axes, ScanAxis(length, stacked=True)))


_ENTER = {
    prims.jit_p: _enter_call,
    prims.remat_p: _enter_call,
    prims.scan_p: _enter_scan,
}


def _live_equations(jaxpr: Any, live_outputs: Sequence[bool]) -> dict[int, list[bool]]:
    """The equations that the live outputs depend on, with the liveness of their own outputs."""
    live = {
        var
        for var, is_live in zip(jaxpr.outvars, live_outputs, strict=True)
        if is_live and not _compat.is_literal(var)
    }
    equations: dict[int, list[bool]] = {}
    for index in range(len(jaxpr.eqns) - 1, -1, -1):
        eqn = jaxpr.eqns[index]
        needed = [var in live for var in eqn.outvars]
        if any(needed):
            equations[index] = needed
            live.update(v for v in eqn.invars if not _compat.is_literal(v))
    return equations
