"""Layout of a small graph in rows: boxes that do not overlap, and edges that go around boxes.

An edge that crosses a row gets its own narrow place in it. Rows are ordered by the mean place of
what their members are connected to: downwards, upwards and downwards again.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

WIDTH, HEIGHT, GAP_X, GAP_Y, LANE = 196, 48, 18, 40, 16
MARGIN = 16

Edge = tuple[str, str]


class Lane(NamedTuple):
    """The place of an edge in a row it crosses."""

    edge: tuple[str, str]
    row: int


Node = str | Lane
Point = tuple[float, float]


class Layout(NamedTuple):
    """Top left corners of boxes, the points that edges pass through, and the total size."""

    corners: Mapping[str, Point]
    routes: Mapping[Edge, tuple[Point, ...]]
    width: float
    height: float


def arrange(levels: Sequence[Sequence[str]], edges: Sequence[Edge]) -> Layout:
    """Places for rows of boxes, the first row on top.

    >>> found = arrange([["a"], ["b"], ["c"]], [("a", "b"), ("b", "c"), ("a", "c")])
    >>> found.corners["a"][1] < found.corners["b"][1] < found.corners["c"][1]
    True
    >>> len(found.routes["a", "b"]), len(found.routes["a", "c"])  # the latter goes around b
    (2, 4)
    """
    row_of = {name: number for number, row in enumerate(levels) for name in row}
    chains = {edge: _chain(edge, row_of) for edge in edges}
    rows: list[list[Node]] = [list(row) for row in levels]
    for chain in chains.values():
        for node in chain:
            if isinstance(node, Lane):
                rows[node.row].append(node)
    _order(rows, [pair for chain in chains.values() for pair in itertools.pairwise(chain)])
    width = max(sum(map(_width, row)) + GAP_X * (len(row) - 1) for row in rows) + 2 * MARGIN
    left = _left_sides(rows, width)
    routes = {edge: tuple(_points(chain, left, row_of)) for edge, chain in chains.items()}
    corners = {name: (left[name], _top(row)) for name, row in row_of.items()}
    return Layout(corners, routes, width, _top(len(rows)) - GAP_Y + MARGIN)


def _chain(edge: Edge, row_of: Mapping[str, int]) -> list[Node]:
    """An edge as a path with one node in every row."""
    made, reader = edge
    lanes = [Lane(edge, row) for row in range(row_of[made] + 1, row_of[reader])]
    return [made, *lanes, reader]


def _order(rows: list[list[Node]], pairs: Sequence[tuple[Node, Node]]) -> None:
    above: dict[Node, list[Node]] = {}
    below: dict[Node, list[Node]] = {}
    for upper, lower in pairs:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    place = {node: at for row in rows for node, at in _centred(row)}
    for order, near in ((rows, above), (rows[::-1], below), (rows, above)):
        for row in order:
            pull = {
                node: _mean([place[o] for o in near.get(node, ())], place[node]) for node in row
            }
            row.sort(key=pull.__getitem__)
            place.update(_centred(row))


def _centred(row: Sequence[Node]) -> list[tuple[Node, float]]:
    return [(node, number - (len(row) - 1) / 2) for number, node in enumerate(row)]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _width(node: Node) -> int:
    return WIDTH if isinstance(node, str) else LANE


def _top(row: int) -> float:
    return MARGIN + row * (HEIGHT + GAP_Y)


def _left_sides(rows: Sequence[Sequence[Node]], width: float) -> dict[Node, float]:
    found: dict[Node, float] = {}
    for row in rows:
        at = (width - sum(map(_width, row)) - GAP_X * (len(row) - 1)) / 2
        for node in row:
            found[node] = at
            at += _width(node) + GAP_X
    return found


def _points(
    chain: Sequence[Node], left: Mapping[Node, float], row_of: Mapping[str, int]
) -> list[Point]:
    """From the bottom of one box, through the rows in between, to the top of another."""
    row = row_of[str(chain[0])]
    xs = [left[node] + _width(node) / 2 for node in chain]
    points = [(xs[0], _top(row) + HEIGHT)]
    for number, x in enumerate(xs[1:-1], row + 1):
        points += [(x, _top(number)), (x, _top(number) + HEIGHT)]
    return [*points, (xs[-1], _top(row + len(chain) - 1))]
