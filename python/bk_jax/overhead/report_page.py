"""The report of `tax` for a browser: cards of the step, and a bar for each parameter."""

from __future__ import annotations

from bk_jax.hlo.table import si
from bk_jax.overhead.report import Row, Tax, add_up, shorten
from bk_jax.palette import BLUE, INK, ORANGE, ROUTES
from bk_jax.webpage import Column, Table, bar, chip, text

SHOWN = 60  # parameters; the others are summed
COLUMNS = [Column("parameter"), Column("route"), Column("extra flop", "right")]
COLUMNS += [Column("predicted"), Column("measured"), Column("plain", "right")]
COLUMNS += [Column("private", "right")]


def report_table(report: Tax) -> Table:
    """Bars are percents of the plain step's time, by the largest of all rows."""
    table = Table("What privacy costs this step", COLUMNS, _cards(report), below=[_below(report)])
    table.legend = {"added, in percent of the plain step": BLUE, "saved": ORANGE}
    rows = shorten(report.rows, SHOWN)
    seen = [abs(x) for row in rows for x in (row.predicted, row.measured) if x is not None]
    for row in rows:
        table.add(_cells(row, max(seen, default=0.0)))
    total = add_up("total", list(report.rows))
    table.total = _cells(total, abs(total.measured or total.predicted))
    return table


def _cards(report: Tax) -> dict[str, str]:
    time, without = report.time, report.time_without_noise
    found = {
        "examples": str(report.batch_size),
        "time, private / plain": f"{time.ratio:.3f}  ({time.low:.3f} .. {time.high:.3f})",
        "without noise": f"{without.ratio:.3f}",
        "plain against itself": f"{report.plain_against_itself.ratio:.3f}",
        "predicted": f"{report.predicted_ratio:.3f}",
        "plain step": f"{1000 * report.plain_seconds:.4g} ms",
    }
    if report.temporary_ratio is not None:
        found["temporary memory"] = f"{report.temporary_ratio:.3f}"
    return {**found, "device": report.device, "method": report.method}


def _cells(row: Row, largest: float) -> list[str]:
    def percent(value: float | None) -> str:
        return text("-") if value is None else bar(value, largest, f"{100 * value:+.1f} %")

    route = row.route.split("+")[0]
    return [
        text(row.name or "(the parameter)"),
        chip(row.route, ROUTES.get(route, INK)) if row.route and row.name != "total" else "",
        text(si(row.extra_flops) if row.kind == "parameter" else "-"),
        text("-") if row.kind == "outside" else percent(row.predicted),
        percent(row.measured),
        *(text("-" if s is None else f"{1000 * s:.3g} ms") for s in (row.plain, row.private)),
    ]


def _below(report: Tax) -> str:
    if report.profiled_ratio is None:
        return f"Nothing was measured for each parameter: {report.note}."
    return f"Measured: the mean of {report.profiled_steps} profiled steps of each kind."
