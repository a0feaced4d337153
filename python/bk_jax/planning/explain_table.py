"""The table of an explanation: narrow for a terminal, wide with everything, and for a notebook.

A row is a dictionary from column names to text. The narrow table omits the sizes, which the reason
repeats where they matter, shows only the user's own file and line, and cuts what does not fit; the
wide one has it all.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

WIDTH = 120
WIDE = ["parameter", "shape", "kind", "N", "T", "d", "p", "route", "extra flop", "share", "ms"]
WIDE += ["why", "used at"]
PAGE = ["parameter", "shape", "route", "ms", "share", "why", "used at"]  # in a browser: sizes last
PAGE += ["kind", "N, T, d, p", "extra flop"]
STYLES = {"why": "why", "used at": "why", "extra flop": "right", "N, T, d, p": "right"}
NARROW = [name for name in WIDE if name not in ("N", "T", "d", "p")]
HINT = "more columns, and every line in full: .table(wide=True)"

_CELL = re.compile(r"[^\s()]*\bipykernel_\d+/\d+\.py:(\d+)")
_LONGEST = {"parameter": 30, "shape": 12}  # of the narrow table
_PLACES = 24  # minimum room for where something is used
_LIBRARY = re.compile(r" > \S+:\d+")
_FOLDERS = re.compile(r"[^\s()]*/(?=[^/\s()]+:\d+)")
_OUTER_FUNCTIONS = re.compile(r"[^\s()]*<locals>\.")
_REASON_AND_PLACE = re.compile(r"(used by .*?) at (\S+:\d+ .*)")

Cells = dict[str, str]


def named_cells(text: str) -> str:
    """The same with a notebook's cells called that; their files have names that nobody knows.

    >>> named_cells("used by add at .../ipykernel_66/1471.py:10 (predict)")
    'used by add at cell line 10 (predict)'
    """
    return _CELL.sub(r"cell line \1", text)


def wide_table(rows: Sequence[Cells], closing: Sequence[str]) -> str:
    """Everything, in lines of any length."""
    return "\n".join([*_lines(WIDE, rows), *closing])


def narrow_table(rows: Sequence[Cells], closing: Sequence[str]) -> str:
    """What fits in `WIDTH` columns."""
    short = [_narrow(row) for row in rows]
    others = [name for name in NARROW if name not in ("why", "used at")]
    room = WIDTH - 2 - sum(_longest(name, short) + 2 for name in others)
    where = min(_longest("used at", short), max(_PLACES, room - _longest("why", short)))
    for row in short:
        row["why"], row["used at"] = _cut(row["why"], room - where), _cut(row["used at"], where)
    below = [textwrap.fill(text, WIDTH, subsequent_indent="  ") for text in closing]
    return "\n".join([*_lines(NARROW, short), *below, HINT])


def _header() -> Cells:
    return {name: name for name in WIDE}


def _longest(column: str, rows: Sequence[Cells]) -> int:
    return max(len(row[column]) for row in (_header(), *rows))


def _lines(columns: Sequence[str], rows: Sequence[Cells]) -> list[str]:
    table = [[row[name] for name in columns] for row in (_header(), *rows)]
    widths = [_longest(name, rows) for name in columns]
    lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in table]
    lines.insert(1, "-" * len(lines[0]))
    return [line.rstrip() for line in lines]


def _narrow(row: Cells) -> Cells:
    why, where = _own_lines(row["why"]), _own_lines(row["used at"])
    if not where and (said := _REASON_AND_PLACE.fullmatch(why)):
        why, where = said.groups()
    cut = {name: _cut(row[name], longest, end=True) for name, longest in _LONGEST.items()}
    return {**row, **cut, "why": why, "used at": where}


def _own_lines(text: str) -> str:
    """`model.py:31 (f)` of `folder/model.py:31 (outer.<locals>.f) > library/linear.py:422`."""
    for left_out in (_LIBRARY, _FOLDERS, _OUTER_FUNCTIONS):
        text = left_out.sub("", text)
    return text


def _cut(text: str, longest: int, end: bool = False) -> str:
    """At most `longest` characters: the first ones, or those at the end."""
    if len(text) <= longest:
        return text
    return "…" + text[len(text) - longest + 1 :] if end else text[: longest - 1] + "…"
