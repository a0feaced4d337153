"""The report: what privacy costs a step, as numbers, text, JSON and a picture."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from bk_jax._extras import require
from bk_jax.hlo.table import si, table
from bk_jax.overhead.timing import Timing
from bk_jax.palette import INK, LINE, PRIVATE

OUTSIDE = "outside of operations"
PRINTED, DRAWN = 40, 24  # parameters in a table and in a picture; the others are summed in one row
COLOUR = PRIVATE


@dataclasses.dataclass(frozen=True)
class StepMemory:
    """Bytes of a step as XLA reports them; `total` is arguments, results and temporaries.

    XLA's peak is not used: on the CPU it leaves temporaries out.

    >>> StepMemory(temporary=1 << 20, total=3 << 20).total - (1 << 20)
    2097152
    """

    temporary: int
    total: int


@dataclasses.dataclass(frozen=True)
class Row:
    """A parameter, or work that serves several; fractions are of the plain step's time.

    `predicted` and `measured` are what privacy adds (negative: saves). Seconds are those of
    profiled steps, None where the profiler saw no operations. `extra_flops` is what `explain` says.

    >>> row = Row("kernel", "parameter", "ghost", 1000, 0.02, 0.010, 0.011, 0.1)
    >>> f"{row.name} takes {row.private / row.plain:.2f} times as long"
    'kernel takes 1.10 times as long'
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
    """What `bk_jax.tax` found. Ratios are private over plain: 1.0 means that privacy is free.

    >>> from bk_jax.overhead import Timing
    >>> same, slower = Timing(0.1, 1.0, 0.99, 1.01, 9), Timing(0.11, 1.1, 1.09, 1.11, 9)
    >>> rows = (Row("a/kernel", "parameter", "ghost", 1000, 0.05, 0.05, 0.06, 0.1),)
    >>> report = Tax(
    ...     "auto", 8, "cpu", 1.0, 0.1, slower, slower, same, None, None, 1.1, 1.05, rows, 3, "")
    >>> report.ratio, report.grouped().rows[0].name
    (1.1, 'a')
    """

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
    note: str  # why nothing was measured per parameter, if so

    @property
    def ratio(self) -> float:
        """Time of the private step, including noise, over that of the plain one."""
        return self.time.ratio

    @property
    def temporary_ratio(self) -> float | None:
        """Temporary memory of the private step over that of the plain one."""
        return self._memory_ratio("temporary")

    @property
    def total_ratio(self) -> float | None:
        """The same for all memory: temporaries, arguments and results."""
        return self._memory_ratio("total")

    @property
    def profiled_ratio(self) -> float | None:
        """As `ratio`, for the profiled steps: the profiler slows both of them down."""
        total = add_up("", list(self.rows))
        return total.private / total.plain if total.private and total.plain else None

    def _memory_ratio(self, name: str) -> float | None:
        plain, private = (
            memory and getattr(memory, name) for memory in (self.plain_memory, self.private_memory)
        )
        return private / plain if plain and private is not None else None

    def grouped(self, depth: int = 1) -> Tax:
        """The report with parameters summed that share the first `depth` parts of their path."""
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

    def html(self) -> str:
        """The report with bars and colours as a page in one file."""
        from bk_jax.overhead.report_page import report_table

        return report_table(self).page()

    def _repr_html_(self) -> str:
        from bk_jax.overhead.report_page import report_table

        return report_table(self).fragment()

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """A matplotlib figure of the report; saved to `path` if given."""
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
    """At most `most` parameters, those that matter most; the others are summed."""
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


def draw(report: Tax) -> Any:
    """Ratios with their intervals, and bars of measured overhead with marks for the predicted."""
    figures = require("matplotlib.figure", "matplotlib")
    rows = shorten(report.rows, DRAWN)
    heights = [1.5, 0.5 + 0.22 * len(rows)]
    figure = figures.Figure(figsize=(7.2, 1.2 + sum(heights)), dpi=110, layout="constrained")
    steps, parameters = figure.subplots(2, 1, height_ratios=heights)
    _draw_steps(steps, report)
    _draw_rows(parameters, rows)
    figure.suptitle(
        f"DP tax: {report.ratio:.2f} of the plain step's time, predicted "
        f"{report.predicted_ratio:.2f}  ({report.batch_size} examples, method {report.method})",
        color=INK, fontsize=10,
    )  # fmt: skip
    return figure


def _draw_steps(axes: Any, report: Tax) -> None:
    timings = {"plain again (A/A)": report.plain_against_itself}
    if report.noise_multiplier:
        timings["time without noise"] = report.time_without_noise
    timings["time"] = report.time
    memory = {"temporary memory": report.temporary_ratio, "total memory": report.total_ratio}
    known = {name: ratio for name, ratio in memory.items() if ratio is not None}
    for place, timing in enumerate(timings.values()):
        axes.plot([timing.low, timing.high], [place, place], color=COLOUR, linewidth=2)
        axes.plot([timing.ratio], [place], "o", color=COLOUR)
    for place, ratio in enumerate(known.values(), start=len(timings)):
        axes.plot([ratio], [place], "s", color=COLOUR)
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_yticks(range(len(timings) + len(known)), [*timings, *known])
    axes.set_xlabel("ratio to the plain step", color=INK)
    _quiet(axes)


def _draw_rows(axes: Any, rows: Any) -> None:
    places = range(len(rows))
    measured = [row.measured for row in rows]
    if None not in measured:
        widths = [100 * value for value in measured]
        axes.barh(places, widths, color=COLOUR, height=0.6, label="measured")
    predicted = [(i, 100 * row.predicted) for i, row in enumerate(rows) if row.kind != "outside"]
    axes.plot(
        [value for _, value in predicted], [i for i, _ in predicted], "D", markersize=4,
        markerfacecolor="white", markeredgecolor=INK, linestyle="none", label="predicted",
    )  # fmt: skip
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(places, [_label(row) for row in rows])
    axes.set_xlabel("added by privacy, percent of the plain step", color=INK)
    axes.legend(frameon=False, labelcolor=INK, loc="best")
    _quiet(axes)


def _label(row: Any) -> str:
    name = row.name or "(the parameter)"
    return f"{name}  [{row.route}]" if row.route else name


def _quiet(axes: Any) -> None:
    """Removes everything that carries no meaning."""
    axes.invert_yaxis()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0, labelsize=10)
