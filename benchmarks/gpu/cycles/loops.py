"""Loops of a control flow graph, and the path that a turn of one takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from benchmarks.gpu.cycles.sass import Block, Instruction


class Loop(NamedTuple):
    """A natural loop: its first block, all its blocks, and those that jump back."""

    header: int
    body: frozenset[int]
    latches: frozenset[int]


def loops(blocks: dict[int, Block]) -> list[Loop]:
    """All natural loops; those with one header are one loop."""
    dominators = _dominators(blocks)
    latches: dict[int, set[int]] = {}
    for name, block in blocks.items():
        for successor in block.successors:
            if successor in dominators.get(name, ()):
                latches.setdefault(successor, set()).add(name)
    return [
        Loop(header, _natural(blocks, header, ends), frozenset(ends))
        for header, ends in sorted(latches.items())
    ]


def main(found: list[Loop], weight: Callable[[int], float]) -> list[Loop]:
    """The loops that do the work: with blocks of some weight that are in no loop inside.

    Those with less than half of the most such weight are for what is left over at the end; of those
    that are left, the innermost.
    """
    heavy = [loop for loop in found if any(weight(name) for name in loop.body)]
    own = {}
    for loop in heavy:
        inside = [other.body for other in heavy if other.body < loop.body]
        own[loop] = sum(weight(name) for name in loop.body.difference(*inside))
    most = max(own.values(), default=0)
    kept = [loop for loop in heavy if own[loop] > 0 and own[loop] >= most / 2]
    return [loop for loop in kept if not any(other.body < loop.body for other in kept)]


def steady_path(
    blocks: dict[int, Block], loop: Loop, worth: Callable[[Instruction], tuple[float, ...]]
) -> tuple[Instruction, ...]:
    """The way through one turn that is worth most; `worth` is compared part by part.

    A turn has ways that a long run does not take: the last one, and rows that are not aligned. Loops
    inside are walked once.
    """
    best: dict[int, tuple[tuple[float, ...], tuple[int, ...]] | None] = {}

    def search(
        name: int, above: frozenset[int]
    ) -> tuple[tuple[float, ...], tuple[int, ...]] | None:
        if name in best:
            return best[name]
        own = _total(worth(one) for one in blocks[name].instructions)
        following = [
            result
            for successor in blocks[name].successors
            if successor in loop.body and successor != loop.header and successor not in above
            if (result := search(successor, above | {name})) is not None
        ]
        ways = [(_total([own, value]), (name, *path)) for value, path in following]
        if name in loop.latches:
            ways.append((own, (name,)))
        best[name] = max(ways, default=None)
        return best[name]

    result = search(loop.header, frozenset())
    assert result is not None, f"no way through the loop at {loop.header:#x}"
    return tuple(one for name in result[1] for one in blocks[name].instructions)


def _total(parts: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(sum(column) for column in zip(*parts, strict=True))


def _reachable(blocks: dict[int, Block]) -> list[int]:
    """In reverse postorder from the entry."""
    entry = min(blocks)
    seen, order, stack = {entry}, [], [(entry, iter(blocks[entry].successors))]
    while stack:
        name, successors = stack[-1]
        new = next((s for s in successors if s in blocks and s not in seen), None)
        if new is None:
            order.append(name)
            stack.pop()
        else:
            seen.add(new)
            stack.append((new, iter(blocks[new].successors)))
    return order[::-1]


def _predecessors(blocks: dict[int, Block]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {name: set() for name in blocks}
    for name, block in blocks.items():
        for successor in block.successors:
            if successor in found:
                found[successor].add(name)
    return found


def _dominators(blocks: dict[int, Block]) -> dict[int, set[int]]:
    """The blocks that every way to a block passes, itself among them."""
    if not blocks:
        return {}
    order, before = _reachable(blocks), _predecessors(blocks)
    found = {name: set(order) for name in order}
    found[order[0]] = {order[0]}
    changed = True
    while changed:
        changed = False
        for name in order[1:]:
            above = [found[one] for one in before[name] if one in found]
            new = set.intersection(*above) | {name}
            if new != found[name]:
                found[name], changed = new, True
    return found


def _natural(blocks: dict[int, Block], header: int, latches: set[int]) -> frozenset[int]:
    """The header and all that reaches a latch without passing it."""
    before = _predecessors(blocks)
    body, waiting = {header}, [name for name in latches if name != header]
    while waiting:
        name = waiting.pop()
        if name not in body:
            body.add(name)
            waiting.extend(before[name])
    return frozenset(body)
