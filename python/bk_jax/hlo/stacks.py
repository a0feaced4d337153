"""Name stacks: which part of the model an instruction belongs to, even inside functions.

XLA writes whole stacks, `jit(train)/transpose(jvp())/while/body/dot_general`. A program that JAX
only lowered has functions (of a `scan`, of a nested `jit`), and names in them are relative:
`dot_general`. The names of the calls that lead there complete them; a function called twice has two
stacks, and the body of a loop has the names of its loop, whatever XLA left in it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bk_jax.hlo import cost
from bk_jax.hlo.model import Instruction, Module

MOST = 32  # stacks of one instruction
_SCOPES = ("bk.keep[", "bk.norm[", "bk.sum[")
_CLOSED = re.compile(r"\](?=/|$)")


def name_stacks(module: Module, instruction: Instruction) -> tuple[str, ...]:
    """The whole name stacks of an instruction, one for each path of calls that leads to it."""
    name, computation = instruction.op_name, module.computation_of[instruction.name]
    if _is_whole(module, name):
        return _of_equal_loops(module, computation, name)
    outer = _scopes(module, computation)
    return tuple("/".join(filter(None, (scope, name))) for scope in outer)


def _of_equal_loops(module: Module, computation: str, name: str) -> tuple[str, ...]:
    """XLA gives equal loops one body, or copies of one, whose names are those of one of the loops."""
    loops = module.call_sites.get(computation, ())
    if not loops or any(site.opcode != "while" for site in loops):
        return (name,)
    return tuple(dict.fromkeys(_in_loop(name, loop) for loop in _scopes(module, computation)))


def _in_loop(name: str, loop: str) -> str:
    """The name stack of what stands in the body of a loop.

    >>> _in_loop("jit(step)/bk.norm[up]/while/body/dot", "jit(step)/bk.norm[down]/while")
    'jit(step)/bk.norm[down]/while/body/dot'
    """
    outside = loop.count("/while")
    parts = name.split("/while/body")
    if not loop.endswith("/while") or len(parts) <= outside:
        return name
    return f"{loop}/body{'/while/body'.join(parts[outside:])}"


def _scopes(module: Module, computation: str) -> tuple[str, ...]:
    """Name stacks of the calls of a computation; `("",)` for the program itself."""
    known = module.scopes
    if computation not in known:
        known[computation] = ("",)  # stops at a computation that calls itself
        sites = module.call_sites.get(computation, ())[:MOST]
        found = dict.fromkeys(stack for site in sites for stack in name_stacks(module, site))
        known[computation] = tuple(found)[:MOST] or ("",)
    return known[computation]


def _is_whole(module: Module, name: str) -> bool:
    return bool(name) and name.partition("/")[0] == module.top_scope


class Scope(NamedTuple):
    """What is done (`keep`, `norm` or `sum`) and for which parameters."""

    step: str
    inside: str


def layers_in(stack: str) -> tuple[str, ...]:
    """Parameters that an instruction serves, from its name stack.

    >>> layers_in("jit(step)/bk.norm[block/query,block/key]/cond/branch_0_fun/ffi_call")
    ('block/query', 'block/key')
    """
    scope = last_scope(stack)
    return tuple(scope.inside.split(",")) if scope else ()


def last_scope(stack: str) -> Scope | None:
    """The last of our scopes in a name stack.

    >>> last_scope("jit(step)/bk.keep[up]/bk.norm[up]/dot_general")
    Scope(step='norm', inside='up')
    """
    start = max(stack.rfind(scope) for scope in _SCOPES)
    if start < 0:
        return None
    step, _, rest = stack[start + len("bk.") :].partition("[")
    end = _CLOSED.search(rest)
    return Scope(step, rest[: end.start()]) if end else None


def layers_of(module: Module, instruction: Instruction) -> tuple[str, ...]:
    """Parameters that an instruction serves, by all its name stacks."""
    stacks = name_stacks(module, instruction)
    return tuple(dict.fromkeys(layer for stack in stacks for layer in layers_in(stack)))


def runs(module: Module, instruction: Instruction) -> int:
    """How often a step executes an instruction, given the loops and calls that lead to it."""
    return _runs(module, module.computation_of[instruction.name], {})


def computation_runs(module: Module) -> dict[str, int]:
    """How often a step runs each computation."""
    known: dict[str, int] = {}
    return {name: _runs(module, name, known) for name in module.computations}


def _runs(module: Module, computation: str, known: dict[str, int]) -> int:
    sites = module.call_sites.get(computation, ())
    if computation == module.entry or not sites:
        return 1
    if computation not in known:
        known[computation] = 1
        outer = [module.computation_of[site.name] for site in sites]
        times = [cost.trips(site) for site in sites]
        known[computation] = sum(
            n * _runs(module, name, known) for n, name in zip(times, outer, strict=True)
        )
    return known[computation]
