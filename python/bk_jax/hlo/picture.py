"""Picture: a graph as SVG, with a color for each kind of operation and its layers by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from xml.sax.saxutils import escape

from bk_jax.hlo.graph import Graph
from bk_jax.hlo.layout import HEIGHT, WIDTH, Edge, Layout, Point, arrange
from bk_jax.hlo.stacks import layers_of, name_stacks
from bk_jax.hlo.table import si
from bk_jax.hlo.words import kind, what
from bk_jax.palette import FAINT, INK, KINDS, LINE, PALE

_BIG, _SMALL = 25, 29  # characters that fit in a box, in the two sizes
_LEGEND = 24  # pixels

_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
    'height="{height:g}" font-family="system-ui, sans-serif" font-size="12">\n'
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
    f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{FAINT}"/></marker></defs>\n'
    '<rect width="{width:g}" height="{height:g}" fill="white"/>'
)


def to_svg(graph: Graph) -> str:
    """A picture: operands above, readers below.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> root = module.computations[module.entry].root
    >>> to_svg(bk_jax.hlo.neighbourhood(module, root)).startswith("<svg")
    True
    """
    layout = arrange(graph.levels, graph.edges)
    kinds = sorted({kind(graph.module, graph.module.by_name[name]) for name in layout.corners})
    width = max(layout.width, 110 * len(kinds) + 20)
    shift = (width - layout.width) / 2
    head = _HEAD.format(width=width, height=layout.height + _LEGEND)
    parts = [
        head, f'<g transform="translate({shift:g} 0)">',
        *(_edge(graph, edge, layout.routes[edge]) for edge in graph.edges),
        *(_box(graph, name, layout) for name in layout.corners),
        "</g>", *_legend(graph, kinds, layout.height),
    ]  # fmt: skip
    return "\n".join([*parts, "</svg>", ""])


def _edge(graph: Graph, edge: Edge, points: tuple[Point, ...]) -> str:
    path = f"M{points[0][0]:g} {points[0][1]:g}"
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        middle = (y1 + y2) / 2
        straight = f"L{x2:g} {y2:g}"
        curve = f"C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"
        path += straight if x1 == x2 else curve
    color, line = (INK, 1.8) if graph.center in edge else (PALE, 1.2)
    return (
        f'<path class="edge" d="{path}" fill="none" stroke="{color}" stroke-width="{line}" '
        'marker-end="url(#tip)"/>'
    )


def _box(graph: Graph, name: str, layout: Layout) -> str:
    module, (x, y) = graph.module, layout.corners[name]
    instruction = module.by_name[name]
    chosen = name == graph.center
    layers = ", ".join(layers_of(module, instruction))
    title = what(module, instruction) + (f" · {layers}" if layers else "")
    size = f"{instruction.shape}  {si(instruction.shape.nbytes, 'B')}"
    tip = "\n".join([name, size, *name_stacks(module, instruction)[:4]])
    return (
        f'<g class="node" transform="translate({x:g} {y:g})"><title>{escape(tip)}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="5" fill="{"#e3eeff" if chosen else "#ffffff"}" '
        f'stroke="{INK if chosen else LINE}" stroke-width="{2 if chosen else 1}"/>'
        f'<rect width="6" height="{HEIGHT}" rx="2" fill="{KINDS[kind(module, instruction)]}"/>'
        f'<text x="14" y="19" fill="{INK}">{escape(_cut(title, _BIG))}</text>'
        f'<text x="14" y="37" fill="{FAINT}" font-size="11">{escape(_cut(size, _SMALL))}</text></g>'
    )


def _legend(graph: Graph, kinds: list[str], top: float) -> Iterator[str]:
    for number, name in enumerate(kinds):
        x = 16 + 110 * number
        yield (
            f'<rect x="{x}" y="{top + 4:g}" width="10" height="10" rx="3" fill="{KINDS[name]}"/>'
            f'<text x="{x + 15}" y="{top + 13:g}" font-size="11" fill="{FAINT}">{name}</text>'
        )
    if graph.left_out:
        yield (
            f'<text x="16" y="12" font-size="11" fill="{FAINT}">{graph.left_out} more are not drawn'
            "</text>"
        )


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
