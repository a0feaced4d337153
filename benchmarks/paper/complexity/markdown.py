"""Compared cells as Markdown: printed / computed, with a dagger where they are known to differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.paper.complexity import printed
from benchmarks.paper.complexity.printed import Cell


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; numbers stand on the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number_like(text: str, value: float) -> str:
    """A value in the unit of a printed number, with one digit more where that one is rounded."""
    match = printed.NUMBER.fullmatch(text)
    assert match is not None
    _, decimals, exponent, unit = match.groups()
    scale = 10 ** (int(exponent or 0) + (6 if unit == "M" else 0))
    digits = len(decimals) + 1 if decimals else int(bool(exponent or unit))
    return f"{value / scale:.{digits}f}" + (f"e{exponent}" if exponent else unit or "")


def pair(cell: Cell) -> str:
    """Printed and computed; the computed one in the unit of what should have been printed."""
    known = printed.known().get(cell.key)
    unit = known.right if known and known.right else cell.printed
    return f"{cell.printed} / {number_like(unit, cell.computed)}{' †' if known else ''}"


def notes(cells: Iterable[Cell]) -> str:
    """What the daggers of these cells mean."""
    known = printed.known()
    found = {id(known[c.key]): known[c.key] for c in cells if c.key in known}
    lines = []
    for item in found.values():
        right = f", should be {item.right}" if item.right else ""
        where = f"{', '.join(item.rows)}: {', '.join(item.columns)}"
        lines.append(f"- † {where} ({item.kind}{right}): {item.why}.")
    return "\n" + "\n".join(lines) + "\n" if lines else ""


def by_row(cells: Iterable[Cell]) -> dict[str, dict[str, Cell]]:
    """Cells by row and column."""
    rows: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        rows.setdefault(cell.row, {})[cell.column] = cell
    return rows


def of_model(cells: Iterable[Cell], model: str | None) -> list[Cell]:
    """The cells of one model, or all."""
    return [cell for cell in cells if model in (None, cell.row.split(" ")[0])]
