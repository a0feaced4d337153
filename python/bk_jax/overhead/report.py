"""The report: what privacy costs a step, as numbers, text, JSON and a picture."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from bk_jax.hlo.table import si, table
from bk_jax.overhead.steps import StepMemory
from bk_jax.overhead.timing import Timing

OUTSIDE = "outside of operations"
PRINTED = 40  # rows of a printed table; the others are added up in one


@dataclasses.dataclass(frozen=True)
class Row:
    """A parameter, or work that serves several; fractions are of the plain step's time.

    `predicted` and `measured` are what privacy adds (negative: saves); seconds are those of profiled
    steps, None where the profiler saw no operations. `extra_flops` is what `explain` says.
    """

    name: str
    kind: str  # "parameter", "shared" or "outside"
    route: str
    extra_flops: int
    predicted: float
    plain: float | None
    private: float | None
    measured: float | None


@dataclasses.dataclass(frozen=True)
class Tax:
    """What `bk_jax.tax` found out. Ratios are private to plain: 1.0 means that privacy is free."""

    method: str
    batch_size: int
    device: str
    noise_multiplier: float
    plain_seconds: float
    time: Timing
    time_without_noise: Timing
    plain_against_itself: Timing
    plain_memory: StepMemory | None
    private_memory: StepMemory | None
    flops_ratio: float  # by `explain`
    predicted_ratio: float
    rows: tuple[Row, ...]
    profiled_steps: int  # of each; the rows are their mean
    note: str  # why nothing was measured for each parameter, if so

    @property
    def ratio(self) -> float:
        """Time of the private step, noise included, over that of the plain one."""
        return self.time.ratio

    @property
    def temporary_ratio(self) -> float | None:
        """Temporary memory of the private step over that of the plain one."""
        return self._memory_ratio("temporary")

    @property
    def total_ratio(self) -> float | None:
        """The same of all memory: temporaries, arguments and results."""
        return self._memory_ratio("total")

    @property
    def profiled_ratio(self) -> float | None:
        """As `ratio`, of the profiled steps: the profiler makes both of them slower."""
        total = add_up("", list(self.rows))
        return total.private / total.plain if total.private and total.plain else None

    def _memory_ratio(self, name: str) -> float | None:
        plain, private = (
            memory and getattr(memory, name) for memory in (self.plain_memory, self.private_memory)
        )
        return private / plain if plain and private is not None else None

    def grouped(self, depth: int = 1) -> Tax:
        """The report with parameters added up that share the first `depth` parts of their path."""
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}.")
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            parts = row.name.split("/")[:depth] if row.kind == "parameter" else [row.name]
            groups.setdefault((row.kind, "/".join(parts)), []).append(row)
        rows = tuple(add_up(name, found) for (_, name), found in groups.items())
        return dataclasses.replace(self, rows=rows)

    def to_json(self) -> str:
        """Everything as JSON."""
        names = ("ratio", "temporary_ratio", "total_ratio", "profiled_ratio")
        ratios = {name: getattr(self, name) for name in names}
        return json.dumps({**ratios, **dataclasses.asdict(self)}, indent=1)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """A matplotlib figure of the report; saved to `path` if one is given."""
        from bk_jax.overhead.plot import draw

        figure = draw(self)
        if path is not None:
            figure.savefig(path)
        return figure

    def __str__(self) -> str:
        return "\n".join([_steps_text(self), _rows_text(self), _closing(self)])


def add_up(name: str, rows: list[Row]) -> Row:
    """Several rows as one."""
    routes = dict.fromkeys(r for row in rows for r in row.route.split("+") if r)
    return Row(
        name=name,
        kind=rows[0].kind,
        route="+".join(routes),
        extra_flops=sum(row.extra_flops for row in rows),
        predicted=sum(row.predicted for row in rows),
        plain=_sum([row.plain for row in rows]),
        private=_sum([row.private for row in rows]),
        measured=_sum([row.measured for row in rows]),
    )


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def weight(row: Row) -> float:
    """How much a row matters."""
    return max(abs(row.measured or 0.0), abs(row.predicted))


def shorten(rows: tuple[Row, ...], most: int) -> list[Row]:
    """At most `most` parameters, those that matter most; the others are added up."""
    parameters = sorted((row for row in rows if row.kind == "parameter"), key=weight, reverse=True)
    shown, others = parameters[:most], parameters[most:]
    kept = [row for row in rows if row.kind != "parameter" or row in shown]
    if not others:
        return kept
    first = next(i for i, row in enumerate([*kept, None]) if not row or row.kind != "parameter")
    return [*kept[:first], add_up(f"{len(others)} other parameters", others), *kept[first:]]


def _steps_text(report: Tax) -> str:
    plain, private = report.plain_memory, report.private_memory
    lines = [
        ["plain", f"{1000 * report.plain_seconds:.4g} ms", "1", "", *_memory_cells(plain, plain)],
        ["plain again (A/A)", *_timing_cells(report.plain_against_itself), "", "", "", ""],
        ["private", *_timing_cells(report.time), *_memory_cells(private, plain)],
    ]
    if report.noise_multiplier:
        without = _timing_cells(report.time_without_noise)
        lines.insert(2, ["private, no noise", *without, "", "", "", ""])
    header = ["step", "time", "ratio", "95 % interval", "temporary", "ratio", "total", "ratio"]
    head = (
        f"DP tax: {report.batch_size} examples, method {report.method}, "
        f"noise multiplier {report.noise_multiplier:g}, {report.device}"
    )
    return "\n".join([head, table(header, lines, "  ")])


def _timing_cells(timing: Timing) -> list[str]:
    interval = f"{timing.low:.3f} .. {timing.high:.3f}"
    return [f"{1000 * timing.seconds:.4g} ms", f"{timing.ratio:.3f}", interval]


def _memory_cells(memory: StepMemory | None, plain: StepMemory | None) -> list[str]:
    cells = []
    for name in ("temporary", "total"):
        value, base = (getattr(m, name) if m else None for m in (memory, plain))
        cells += [
            "-" if value is None else si(value, "B"),
            f"{value / base:.3f}" if value is not None and base else "-",
        ]
    return cells


def _rows_text(report: Tax) -> str:
    shown = shorten(report.rows, PRINTED)
    lines = [_row_cells(row) for row in (*shown, add_up("total", list(report.rows)))]
    lines[-1][1] = ""
    header = ["parameter", "route", "extra flop", "predicted", "measured", "plain", "private"]
    return f"what privacy adds, in percent of the plain step:\n{table(header, lines, '  ')}"


def _closing(report: Tax) -> str:
    if report.profiled_ratio is None:
        return f"measured: nothing for each parameter ({report.note}); predicted: by flops alone"
    return (
        f"measured: mean of {report.profiled_steps} profiled steps of each, "
        f"ratio {report.profiled_ratio:.3f}; by flops alone explain says {report.flops_ratio:.3f}"
    )


def _row_cells(row: Row) -> list[str]:
    is_parameter = row.kind == "parameter"
    return [
        row.name or "(the parameter)",
        row.route or "-",
        si(row.extra_flops) if is_parameter else "-",
        "-" if row.kind == "outside" else _percent(row.predicted),
        _percent(row.measured),
        *("-" if s is None else f"{1000 * s:.3g} ms" for s in (row.plain, row.private)),
    ]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"
