"""Tables and numbers as text."""

from __future__ import annotations

from collections.abc import Sequence

WIDEST = 60  # characters of a cell that may be long
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


def counted(number: int, word: str) -> str:
    """A number of things.

    >>> counted(1, "finding"), counted(0, "finding"), counted(2, "other module")
    ('1 finding', '0 findings', '2 other modules')
    """
    return f"{number} {word}" + ("" if number == 1 else "s")


def cut(text: str, width: int = WIDEST) -> str:
    """A text without its middle where it is too long for a table, such as the shape of a wide tuple.

    >>> cut("(f32[2], f32[3], f32[4], f32[5])", 20)
    '(f32[2], f32[…32[5])'
    """
    if len(text) <= width:
        return text
    end = width // 3
    return f"{text[: width - end - 1]}…{text[-end:]}"


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
