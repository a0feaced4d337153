"""Tables and numbers as text."""

from __future__ import annotations

from collections.abc import Sequence

PREFIXES = ("", "k", "M", "G", "T", "P")


def si(value: float, unit: str = "") -> str:
    """A number with a prefix.

    >>> si(1234567, "B"), si(999), si(0, "flop")
    ('1.23 MB', '999', '0 flop')
    """
    power = 0
    while abs(value) >= 999.5 and power < len(PREFIXES) - 1:
        value /= 1000
        power += 1
    return f"{value:.3g} {PREFIXES[power]}{unit}".strip()


def table(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Columns of equal width; nothing when there is no row."""
    if not rows:
        return ""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    out = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    out.insert(1, "-" * max(map(len, out)))
    return "\n".join(indent + line for line in out)
