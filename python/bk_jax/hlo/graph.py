"""Graph: what stands around an instruction, as DOT or as a picture with a layout of our own."""

from __future__ import annotations

import dataclasses
import difflib
import json
from xml.sax.saxutils import escape

from bk_jax.hlo import cost
from bk_jax.hlo.model import HloError, Instruction, Module
from bk_jax.hlo.table import si

COLORS = {
    "bk call": "#ffd6a5", "dot": "#a0c4ff", "convolution": "#a0c4ff", "movement": "#ffadad",
    "collective": "#ffc6ff", "custom call": "#fdffb6", "reduction": "#caffbf",
}  # fmt: skip
WIDTH, HEIGHT, GAP_X, GAP_Y, CHARACTER = 216, 54, 20, 44, 34


@dataclasses.dataclass(frozen=True)
class Graph:
    """Instructions by level (operands above their users) and the edges between them."""

    module: Module
    center: str
    levels: tuple[tuple[str, ...], ...]
    edges: tuple[tuple[str, str], ...]


def neighbourhood(module: Module, name: str, depth: int = 2) -> Graph:
    """What an instruction reads and who reads it, `depth` steps in both directions."""
    if name not in module.by_name:
        close = difflib.get_close_matches(name, module.by_name, n=3, cutoff=0.4)
        hint = f" Did you mean {', '.join(close)}?" if close else ""
        raise HloError(f"{module.name} has no instruction {name!r}.{hint}")
    level = {name: 0}
    for step, ahead in ((-1, False), (1, True)):
        edge = [name]
        for distance in range(1, depth + 1):
            edge = [n for e in edge for n in _next(module, e, ahead) if n not in level]
            level.update(dict.fromkeys(edge, step * distance))
    edges = [(o, n) for n in level for o in dict.fromkeys(module.by_name[n].operands) if o in level]
    return Graph(module, name, _in_levels(_pushed_down(level, edges), edges), tuple(edges))


def _next(module: Module, name: str, ahead: bool) -> list[str]:
    users = module.users.get(name, [])
    return users if ahead else list(dict.fromkeys(module.by_name[name].operands))


def _pushed_down(level: dict[str, int], edges: list[tuple[str, str]]) -> dict[str, int]:
    """Levels in which every instruction stands below all its operands."""
    level = dict(level)
    for _ in level:
        low = [(reader, level[made] + 1) for made, reader in edges if level[reader] <= level[made]]
        if not low:
            break
        level.update(low)
    return level


def _in_levels(level: dict[str, int], edges: list[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Rows of names, each ordered by the mean place of what it reads."""
    rows = [[n for n in level if level[n] == at] for at in sorted(set(level.values()))]
    place: dict[str, float] = {}
    for row in rows:
        above = {n: [place[o] for o, reader in edges if reader == n and o in place] for n in row}
        row.sort(key=lambda n: sum(above[n]) / len(above[n]) if above[n] else 0.0)
        place.update({n: i - (len(row) - 1) / 2 for i, n in enumerate(row)})
    return tuple(tuple(row) for row in rows)


def _label(module: Module, instruction: Instruction) -> list[str]:
    what = instruction.target or instruction.opcode
    size = si(instruction.shape.nbytes, "B")
    return [instruction.name, what, f"{instruction.shape} {size}"]


def _color(module: Module, instruction: Instruction) -> str:
    if instruction.opcode in cost.FREE:
        return "#f2f2f2"
    return COLORS.get(cost.kind_of(module, instruction), "#ffffff")


def to_dot(graph: Graph) -> str:
    """For Graphviz."""
    lines = ["digraph {", "  node [shape=box, style=filled, fontname=monospace, fontsize=10];"]
    for name in (name for row in graph.levels for name in row):
        instruction = graph.module.by_name[name]
        text = "\n".join(_label(graph.module, instruction))
        pen = ", penwidth=3" if name == graph.center else ""
        color = _color(graph.module, instruction)
        lines.append(f'  {json.dumps(name)} [label={json.dumps(text)}, fillcolor="{color}"{pen}];')
    lines += [f"  {json.dumps(made)} -> {json.dumps(reader)};" for made, reader in graph.edges]
    return "\n".join([*lines, "}", ""])


def to_svg(graph: Graph) -> str:
    """A picture: one row for each level, straight edges."""
    widest = max(map(len, graph.levels))
    width = widest * (WIDTH + GAP_X) + GAP_X
    height = len(graph.levels) * (HEIGHT + GAP_Y) + GAP_Y
    corners = _corners(graph, width)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="monospace" font-size="10">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#666"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *(_edge(corners[made], corners[reader]) for made, reader in graph.edges),
        *(_box(graph, name, corners[name]) for row in graph.levels for name in row),
    ]
    return "\n".join([*parts, "</svg>", ""])


def _corners(graph: Graph, width: int) -> dict[str, tuple[int, int]]:
    """Upper left corners."""
    corners = {}
    for number, row in enumerate(graph.levels):
        left = (width - len(row) * (WIDTH + GAP_X) + GAP_X) // 2
        top = GAP_Y + number * (HEIGHT + GAP_Y)
        corners.update({n: (left + i * (WIDTH + GAP_X), top) for i, n in enumerate(row)})
    return corners


def _edge(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1, x2, y2 = start[0] + WIDTH // 2, start[1] + HEIGHT, end[0] + WIDTH // 2, end[1]
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#666" marker-end="url(#tip)"/>'


def _box(graph: Graph, name: str, corner: tuple[int, int]) -> str:
    instruction = graph.module.by_name[name]
    x, y = corner
    line = 3 if name == graph.center else 1
    texts = "".join(
        f'<text x="{x + 6}" y="{y + 15 + 15 * i}">{escape(_cut(text))}</text>'
        for i, text in enumerate(_label(graph.module, instruction))
    )
    return (
        f'<g><title>{escape(instruction.op_name or name)}</title><rect x="{x}" y="{y}" rx="4" '
        f'width="{WIDTH}" height="{HEIGHT}" fill="{_color(graph.module, instruction)}" '
        f'stroke="#333" stroke-width="{line}"/>{texts}</g>'
    )


def _cut(text: str) -> str:
    return text if len(text) <= CHARACTER else text[: CHARACTER - 1] + "…"
