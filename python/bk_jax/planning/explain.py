"""Explain: a table of what happens to every parameter, why, and what it costs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence

import numpy as np

from bk_jax.ops.numerics import accumulation_dtype
from bk_jax.palette import BLUE, INK, ORANGE, ROUTES
from bk_jax.planning.cost import LayerCost
from bk_jax.planning.equal import calls_text
from bk_jax.planning.explain_table import (
    PAGE,
    STYLES,
    Cells,
    named_cells,
    narrow_table,
    wide_table,
)
from bk_jax.planning.flops import count_flops
from bk_jax.planning.patches import why_for
from bk_jax.planning.plan import Block, Plan
from bk_jax.planning.rates import Rates
from bk_jax.planning.routes import ALLOWED
from bk_jax.planning.seconds import Both, Prediction
from bk_jax.program.batching import Fallback
from bk_jax.program.trace import Leaf, Traced
from bk_jax.webpage import Column, Table, bar, chip, text

EXPENSIVE_LEAF_BYTES = 1 << 18  # a tapped leaf of this size per example is worth a warning


@dataclasses.dataclass(frozen=True)
class Row:
    """One parameter: its uses, its route, and flops and bytes per batch of the alternatives.

    `seconds` is what privacy is predicted to add for it: norm, clipped sum and noise, minus the
    gradient that the plain step computes instead.
    """

    path: str
    shape: tuple[int, ...]
    kind: str
    uses: tuple[str, ...]
    n: int
    t: int
    d: int
    p: int
    route: str
    why: str
    extra_flops: dict[str, int]
    extra_bytes: dict[str, int]
    share: float  # of the step's flops that the chosen route adds
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The table and its totals; prints as text, shows as a table in a notebook.

    Seconds are predictions for a step, by the rates that `rates` names (see `bk_jax.calibrate`).
    """

    batch_size: int
    rows: tuple[Row, ...]
    non_private_flops: int
    extra_flops: int
    extra_bytes: int
    warnings: tuple[str, ...]
    fallbacks: tuple[str, ...] = ()  # equations whose batch is not where the plain step has it
    plain_seconds: float = math.nan
    private_seconds: float = math.nan
    rates: str = ""
    together: str = ""  # layers that have their calls in common, on a GPU

    @property
    def flops_ratio(self) -> float:
        """Flops of the private step divided by those of the ordinary one."""
        return 1 + self.extra_flops / max(self.non_private_flops, 1)

    @property
    def predicted_ratio(self) -> float:
        """Predicted seconds of the private step divided by those of the ordinary one."""
        return self.private_seconds / self.plain_seconds

    def routes(self) -> dict[str, str]:
        """The route of every parameter, by path; joined by + where its parts take several."""
        out: dict[str, str] = {}
        for row in self.rows:
            known = out.get(row.path, "").split("+")
            if row.route not in known:
                out[row.path] = "+".join(filter(None, [*known, row.route]))
        return out

    def to_json(self) -> str:
        """The table as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    def table(self, wide: bool = False) -> str:
        """The table as text in at most 120 columns; `wide`: with sizes, and nothing cut off."""
        return (wide_table if wide else narrow_table)(self._cells(), self._closing())

    def __str__(self) -> str:
        return self.table()

    def _cells(self) -> list[Cells]:
        return [_cells(row) for row in self.rows]

    def _closing(self) -> list[str]:
        total = (
            f"{self.batch_size} examples: {_si(self.non_private_flops)}flop without privacy, "
            f"{_si(self.extra_flops)}flop more with it ({self.flops_ratio:.3f}x), "
            f"{_si(self.extra_bytes)}B more kept"
        )
        seconds = (
            f"predicted: {_milliseconds(self.plain_seconds)} ms without privacy, "
            f"{_milliseconds(self.private_seconds)} ms with it ({self.predicted_ratio:.2f}x); "
            f"rates: {self.rates}"
        )
        moved = f"batched by JAX's own rules, the rest in place: {', '.join(self.fallbacks)}"
        warnings = (f"warning: {text}" for text in self.warnings)
        shared = [self.together] if self.together else []
        return [total, seconds, *shared, *([moved] if self.fallbacks else []), *warnings]

    def html(self) -> str:
        """The table with bars and colours as a page in one file; write it anywhere and open it."""
        return explanation_table(self).page()

    def _repr_html_(self) -> str:
        return explanation_table(self).fragment()


def explanation_table(explanation: Explanation) -> Table:
    """The table for a browser: bars are shares of the largest entry of their column."""
    columns = [Column(name, STYLES.get(name, "")) for name in PAGE]
    ratio = f"{explanation.predicted_ratio:.2f}"
    cards = {
        "examples": str(explanation.batch_size),
        "parameters": str(len(explanation.rows)),
        "flops, private / plain": f"{explanation.flops_ratio:.3f}",
        "time, private / plain (predicted)": ratio if ratio != "nan" else "-",
        "kept beside the plain step": f"{_si(explanation.extra_bytes)}B",
    }
    table = Table("What is done with each parameter", columns, cards, below=explanation._closing())
    table.legend = {"added to the plain step": BLUE, "saved": ORANGE}
    largest = {
        "share": max((row.share for row in explanation.rows), default=0.0),
        "ms": max((abs(row.seconds) for row in explanation.rows), default=0.0),
    }
    for row in explanation.rows:
        cells = {name: text(named_cells(value)) for name, value in _cells(row).items()}
        cells["N, T, d, p"] = text(f"{row.n}, {row.t}, {row.d}, {row.p}")
        cells["route"] = chip(row.route, ROUTES.get(row.route, INK))
        cells["share"] = bar(row.share, largest["share"], _cells(row)["share"])
        cells["ms"] = bar(row.seconds, largest["ms"], _milliseconds(row.seconds))
        table.add([cells[name] for name in PAGE])
    return table


def _cells(row: Row) -> Cells:
    """A row of the table, by column name."""
    return {
        "parameter": row.path,
        "shape": "x".join(map(str, row.shape)) or "scalar",
        "kind": row.kind,
        **{
            name: str(size) for name, size in zip("NTdp", (row.n, row.t, row.d, row.p), strict=True)
        },
        "route": row.route,
        "extra flop": _si(row.extra_flops[row.route]) if row.route in row.extra_flops else "0",
        "share": f"{100 * row.share:.1f}%",
        "ms": _milliseconds(row.seconds),
        "why": row.why,
        "used at": ", ".join(row.uses),
    }


def _si(value: float) -> str:
    """A number with a unit prefix: 1234567 as '1.2 M'."""
    power = max(0, min(int(math.log10(abs(value)) / 3), 5)) if value else 0
    return f"{value / 1000**power:.3g} {'kMGTP'[power - 1] if power else ''}"


def _milliseconds(seconds: float) -> str:
    """Two digits after the point below 10, and three digits in all above."""
    value = 1000 * seconds
    return (
        f"{value:.2f}"
        if abs(value) < 9.995
        else f"{value:.1f}"
        if abs(value) < 100
        else f"{value:.0f}"
    )


def make_explanation(
    traced: Traced,
    plan: Plan,
    batch_size: int,
    prediction: Prediction,
    rates: Rates,
    fallbacks: Sequence[Fallback] = (),
) -> Explanation:
    """Describes a plan; an ordinary step has three times the flops of the traced forward pass."""
    ordinary = 3 * count_flops(traced.jaxpr) * batch_size
    unpriced = _rows(traced.leaves, plan, batch_size, prediction)
    extra = sum(row.extra_flops.get(row.route, 0) for row in unpriced)
    total = max(ordinary + extra, 1)
    rows = tuple(
        dataclasses.replace(row, share=row.extra_flops.get(row.route, 0) / total)
        for row in unpriced
    )
    extra_bytes = sum(row.extra_bytes.get(row.route, 0) for row in rows)
    named = tuple(f"{f.primitive} at {f.source}" for f in dict.fromkeys(fallbacks))
    return Explanation(
        batch_size,
        rows,
        ordinary,
        extra,
        extra_bytes,
        _warnings(rows),
        named,
        prediction.plain,
        prediction.private,
        rates.describe(),
        calls_text(plan),
    )


def _rows(leaves: Sequence[Leaf], plan: Plan, batch_size: int, prediction: Prediction) -> list[Row]:
    """One for each leaf, or for each of its blocks; without their shares."""
    blocks_of: dict[int, list[int]] = {}
    for number, block in enumerate(plan.blocks):
        for index in block.leaves:
            blocks_of.setdefault(index, []).append(number)
    rows = []
    for index, leaf in enumerate(leaves):
        numbers = blocks_of.get(index, [])
        own = [
            dataclasses.replace(
                _block_row(leaves, index, plan.blocks[number], batch_size),
                seconds=_block_seconds(plan.blocks[number], index, prediction.blocks[number]),
            )
            for number in numbers
        ]
        if not numbers:
            row = _leaf_row(leaf, plan.tapped.get(index), batch_size)
            tapped = prediction.tapped.get(index, Both(0.0, 0.0))
            own = [dataclasses.replace(row, seconds=tapped.private - tapped.plain)]
        with_noise = own[0].seconds + prediction.noise[index]
        rows += [dataclasses.replace(own[0], seconds=with_noise), *own[1:]]
    return rows


def _block_seconds(block: Block, index: int, both: Both) -> float:
    """The block's, if the leaf is its first one: the others share them."""
    return both.private - both.plain if block.leaves[0] == index else 0.0


def _block_row(leaves: Sequence[Leaf], index: int, block: Block, batch_size: int) -> Row:
    leaf = leaves[index]
    first = block.leaves[0] == index  # the others share its cost
    routes = [*ALLOWED[block.kind], "leaf"] if first else []
    cost = block.cost
    why = why_for(cost, block.why, batch_size)
    return Row(
        path=leaf.path,
        shape=leaf.shape,
        kind=block.kind,
        uses=tuple(dict.fromkeys(site.source for site in block.sites)),
        n=cost.n,
        t=cost.t,
        d=cost.d,
        p=cost.p,
        route=block.route,
        why=why if first else f"one weight with {leaves[block.leaves[0]].path}",
        extra_flops={r: batch_size * cost.extra_flops(r) for r in routes},
        extra_bytes={r: batch_size * cost.extra_bytes(r) for r in routes},
        share=0.0,
    )


def _leaf_row(leaf: Leaf, why_tapped: str | None, batch_size: int) -> Row:
    size = math.prod(leaf.shape)
    itemsize = np.dtype(accumulation_dtype(leaf.dtype)).itemsize
    cost = LayerCost(1, 1, 1, size, itemsize, itemsize)
    unused = why_tapped is None
    return Row(
        path=leaf.path,
        shape=leaf.shape,
        kind="unused" if unused else "leaf",
        uses=(),
        n=1,
        t=1,
        d=1,
        p=size,
        route="none" if unused else "leaf",
        why=why_tapped or "the loss does not depend on it",
        extra_flops={} if unused else {"leaf": batch_size * cost.extra_flops("leaf")},
        extra_bytes={} if unused else {"leaf": batch_size * cost.extra_bytes("leaf")},
        share=0.0,
    )


def _warnings(rows: Sequence[Row]) -> tuple[str, ...]:
    out = []
    for row in rows:
        if row.route == "leaf" and row.p * 4 >= EXPENSIVE_LEAF_BYTES:
            out.append(
                f"{row.path or 'the parameter'} ({'x'.join(map(str, row.shape))}) is tapped whole, "
                f"which keeps {_si(row.extra_bytes['leaf'])}B per batch: {row.why}"
            )
    return tuple(out)
