"""Words for instructions: what they do, at a glance."""

from __future__ import annotations

from bk_jax.hlo import cost
from bk_jax.hlo.model import Instruction, Module

_CALLERS = frozenset({"while", "call", "conditional"})
_SMALL = cost.FREE | {"broadcast", "reshape", "copy", "transpose", "convert", "slice"}
_MOST = 3  # operations named for a fusion


def what(module: Module, instruction: Instruction) -> str:
    """The operation; for a custom call its target, for a fusion its contents.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> compiled = jax.jit(lambda x: jnp.sin(x) * 2 + x).lower(jnp.ones(64)).compile()
    >>> module, = bk_jax.hlo.load(compiled)
    >>> [what(module, i) for i in module if i.opcode == "fusion"]
    ['sine+multiply+add']
    """
    if instruction.target:
        return instruction.target
    if instruction.opcode != "fusion":
        return instruction.opcode
    inside = [i for name in instruction.called for i in module.computations[name].instructions]
    working = [i.opcode for i in inside if i.opcode not in _SMALL]
    moving = [i.opcode for i in inside if i.opcode not in cost.FREE]
    names = list(dict.fromkeys(working or moving))
    names.sort(key=lambda name: name not in ("dot", "convolution", "reduce"))
    return "+".join(names[:_MOST]) + ("+…" if len(names) > _MOST else "") or "fusion"


def kind(module: Module, instruction: Instruction) -> str:
    """As `cost.kind_of`; `"free"` for what costs nothing itself."""
    is_free = instruction.opcode in cost.FREE or instruction.opcode in _CALLERS
    return "free" if is_free else cost.kind_of(module, instruction)
