"""Tables and numbers as text."""

from __future__ import annotations

from collections.abc import Sequence

WIDEST = 60  # characters in a cell that may be long
WIDEST_CELL = 200  # in any cell: a row is as wide as its widest
PREFIXES = ("", "k", "M", "G", "T", "P")


def printable(text: str) -> str:
    r"""A text on one line that a terminal shows and does not obey.

    Names in a dump come from whoever made it: escape sequences, line ends and characters without
    width are escaped.

    >>> printable("naïve/\x1b[31mred\n"), printable("\u202e")
    ('naïve/\\x1b[31mred\\n', '\\u202e')
    """
    if text.isprintable():
        return text
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(escaped)


def si(value: float, unit: str = "") -> str:
    """A number with a prefix.

    >>> si(1234567, "B"), si(999), si(0, "flop"), si(10**400, "flop")
    ('1.23 MB', '999', '0 flop', 'more than 10^30 flop')
    """
    if abs(value) > 10**30:
        return f"more than 10^30 {unit}".strip()
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
    """A text with its middle cut out if it is too long for a table, such as a wide tuple's shape.

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
    lines = [list(header), *([cut(cell, WIDEST_CELL) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    out = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    out.insert(1, "-" * max(map(len, out)))
    return "\n".join(indent + line for line in out)
