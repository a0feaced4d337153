"""Tables for a browser: cells with bars and colours, in a notebook or as a page that works offline.

>>> table = Table("Costs", [Column("parameter"), Column("ms", "right")])
>>> table.add([text("w"), bar(0.5, 1.0, "0.50", "#0072b2")])
>>> "0.50" in table.fragment() and table.page().startswith("<!doctype html>")
True
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Sequence

from bk_jax.palette import BLUE, ORANGE

_STYLE = """
.bk { --paper: #ffffff; --ground: #f4f5f7; --ink: #1c2733; --faint: #5b6673; --line: #dde2e8;
  color: var(--ink); background: var(--paper); font: 14px/1.45 system-ui, sans-serif; padding: 10px 12px;
  border: 1px solid var(--line); border-radius: 8px; overflow-x: auto; }
@media (prefers-color-scheme: dark) { .bk { --paper: #1b2129; --ground: #12161c; --ink: #e4e9ef;
  --faint: #a3aebb; --line: #303945; } }
html[data-theme=light] .bk { --paper: #ffffff; --ground: #f4f5f7; --ink: #1c2733; --faint: #5b6673;
  --line: #dde2e8; }
html[data-theme=dark] .bk { --paper: #1b2129; --ground: #12161c; --ink: #e4e9ef; --faint: #a3aebb;
  --line: #303945; }
.bk h1 { font-size: 18px; margin: 0 0 8px; color: var(--ink); }
.bk dl { display: flex; flex-wrap: wrap; gap: 8px; margin: 0 0 10px; }
.bk dl div { background: var(--ground); border: 1px solid var(--line); border-radius: 6px;
  padding: 4px 12px; }
.bk dt { color: var(--faint); font-size: 12px; font-weight: 400; margin: 0; }
.bk dd { margin: 0; font-weight: 600; font-variant-numeric: tabular-nums; }
.bk table { border-collapse: collapse; font-size: 13px; margin: 0 0 8px; color: inherit; }
.bk th { text-align: left; color: var(--faint); font-weight: 500; border-bottom: 1px solid var(--line); }
.bk th, .bk td { padding: 4px 8px; white-space: nowrap; background: none; }
.bk th:first-child, .bk td:first-child { position: sticky; left: -12px; z-index: 1;
  background: var(--paper); }
.bk .right { text-align: right; font-variant-numeric: tabular-nums; }
.bk tbody tr { border-bottom: 1px solid var(--line); }
.bk tr.total { font-weight: 600; border-top: 2px solid var(--faint); }
.bk .why { white-space: normal; min-width: 13em; color: var(--faint); overflow-wrap: anywhere; }
.bk .chip { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px; }
.bk .track { display: inline-block; position: relative; width: 80px; height: 11px; margin-right: 8px;
  vertical-align: -1px; background: var(--ground); border-radius: 3px; overflow: hidden; }
.bk .track i { position: absolute; top: 0; bottom: 0; border-radius: 2px; }
.bk p { margin: 2px 0; color: var(--faint); }
.bk p.legend > span { margin-right: 16px; }
.bk p.warning { color: var(--ink); border-left: 4px solid #d55e00; padding-left: 8px; }
"""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>:root {{ color-scheme: light dark; }} body {{ margin: 16px; }}</style></head>
<body>{body}</body></html>
"""


@dataclasses.dataclass(frozen=True)
class Column:
    """A column: its name, and a class of the style (`right`, `why`) or nothing."""

    name: str
    style: str = ""


@dataclasses.dataclass
class Table:
    """A table with a title, cards of numbers above it, a legend and lines below."""

    title: str
    columns: Sequence[Column]
    cards: dict[str, str] = dataclasses.field(default_factory=dict)
    rows: list[Sequence[str]] = dataclasses.field(default_factory=list)
    below: Sequence[str] = ()
    legend: dict[str, str] = dataclasses.field(default_factory=dict)  # what a bar's colour says
    total: Sequence[str] = ()  # the last row

    def add(self, cells: Sequence[str]) -> None:
        """One more row, of cells as the functions below make them."""
        self.rows.append(cells)

    def fragment(self) -> str:
        """For a notebook."""
        head = "".join(f"<th{_class(c.style)}>{html.escape(c.name)}</th>" for c in self.columns)
        body = "".join(f"<tr>{self._row(row)}</tr>" for row in self.rows)
        body += f'<tr class="total">{self._row(self.total)}</tr>' if self.total else ""
        spots = "".join(
            f"<span>{chip(word, colour)}</span>" for word, colour in self.legend.items()
        )
        legend = f'<p class="legend">{spots}</p>' if spots else ""
        cards = "".join(
            f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>"
            for name, value in self.cards.items()
        )
        return (
            f'<div class="bk"><style>{_STYLE}</style><h1>{html.escape(self.title)}</h1><dl>{cards}</dl>'
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"{legend}{''.join(map(_line, self.below))}</div>"
        )

    def _row(self, cells: Sequence[str]) -> str:
        pairs = zip(self.columns, cells, strict=True)
        return "".join(f"<td{_class(column.style)}>{cell}</td>" for column, cell in pairs)

    def page(self) -> str:
        """A whole page in one file; nothing is fetched."""
        return _PAGE.format(title=html.escape(self.title), body=self.fragment())


def _class(style: str) -> str:
    return f' class="{style}"' if style else ""


def _line(line: str) -> str:
    return f"<p{_class('warning' if line.startswith('warning') else '')}>{html.escape(line)}</p>"


def text(value: str) -> str:
    """A cell of text."""
    return html.escape(value)


def chip(value: str, colour: str) -> str:
    """Text behind a spot of colour."""
    return f'<span class="chip" style="background:{colour}"></span>{html.escape(value)}'


def bar(value: float, largest: float, label: str, colour: str = BLUE, saved: str = ORANGE) -> str:
    """A number with a bar of its share of the largest; less than nothing has another colour.

    >>> bar(-1.0, 2.0, "-1 ms").count("width:50%")
    1
    """
    share = min(abs(value) / largest, 1.0) if largest > 0 and not math.isnan(value) else 0.0
    shown = colour if value >= 0 else saved
    inside = f'<i style="left:0;width:{100 * share:.3g}%;background:{shown}"></i>'
    return f'<span class="track">{inside}</span>{html.escape(label)}'
