"""Graph: the neighbourhood of an instruction, also as DOT."""

from __future__ import annotations

import dataclasses
import difflib
import json

from bk_jax.hlo.model import HloError, Instruction, Module
from bk_jax.hlo.table import si
from bk_jax.hlo.words import kind, what
from bk_jax.palette import KINDS

NEAR, FAR = 8, 5  # instructions in a row: directly connected ones, and those further away


@dataclasses.dataclass(frozen=True)
class Graph:
    """Instructions by level (operands above their users) and the edges between them.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> root = module.computations[module.entry].root
    >>> graph = neighbourhood(module, root)
    >>> graph.center == root, graph.left_out
    (True, 0)
    """

    module: Module
    center: str
    levels: tuple[tuple[str, ...], ...]
    edges: tuple[tuple[str, str], ...]
    left_out: int = 0  # neighbours beyond the limit


def neighbourhood(module: Module, name: str, depth: int = 2) -> Graph:
    """What an instruction reads and what reads it, `depth` steps in both directions.

    The picture is meant to be read at a glance: if there are many neighbours, it shows those with
    the largest results.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> root = module.computations[module.entry].root
    >>> [len(level) for level in neighbourhood(module, root, depth=1).levels]
    [2, 1]
    """
    if name not in module.by_name:
        short = [known for known in module.by_name if len(known) < 100]
        close = difflib.get_close_matches(name[:100], short, n=3, cutoff=0.4)
        hint = f" Did you mean {', '.join(close)}?" if close else ""
        raise HloError(f"{module.name} has no instruction {name!r}.{hint}")
    level, left_out = {name: 0}, 0
    for step, ahead in ((-1, False), (1, True)):
        edge = [name]
        for distance in range(1, depth + 1):
            near = dict.fromkeys(n for e in edge for n in _next(module, e, ahead) if n not in level)
            edge = sorted(near, key=lambda n: -module.by_name[n].shape.nbytes)
            edge = edge[: NEAR if distance == 1 else FAR]
            left_out += len(near) - len(edge)
            level.update(dict.fromkeys(edge, step * distance))
            if not edge:
                break
    edges = [(o, n) for n in level for o in dict.fromkeys(module.by_name[n].operands) if o in level]
    return Graph(module, name, _in_levels(_pushed_down(level, edges)), tuple(edges), left_out)


def _next(module: Module, name: str, ahead: bool) -> list[str]:
    users = module.users.get(name, [])
    return users if ahead else list(dict.fromkeys(module.by_name[name].operands))


def _pushed_down(level: dict[str, int], edges: list[tuple[str, str]]) -> dict[str, int]:
    """Levels in which every instruction is below all its operands."""
    level = dict(level)
    for _ in level:
        low = [(reader, level[made] + 1) for made, reader in edges if level[reader] <= level[made]]
        if not low:
            break
        level.update(low)
    return level


def _in_levels(level: dict[str, int]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple(name for name in level if level[name] == at) for at in sorted(set(level.values()))
    )


def _label(module: Module, instruction: Instruction) -> str:
    size = si(instruction.shape.nbytes, "B")
    return f"{instruction.name}\n{what(module, instruction)}\n{instruction.shape} {size}"


def to_dot(graph: Graph) -> str:
    """For Graphviz.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> print(to_dot(neighbourhood(module, module.computations[module.entry].root))[:9])
    digraph {
    """
    lines = ["digraph {", "  node [shape=box, style=filled, fontname=monospace, fontsize=10];"]
    for name in (name for row in graph.levels for name in row):
        instruction = graph.module.by_name[name]
        text = json.dumps(_label(graph.module, instruction))
        pen = ", penwidth=3" if name == graph.center else ""
        color = KINDS[kind(graph.module, instruction)] + "55"  # paler, because text is on top
        lines.append(f'  {json.dumps(name)} [label={text}, fillcolor="{color}"{pen}];')
    lines += [f"  {json.dumps(made)} -> {json.dumps(reader)};" for made, reader in graph.edges]
    return "\n".join([*lines, "}", ""])
