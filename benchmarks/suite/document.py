"""benchmarks/REPORT.md, made from results: every number in it comes from a file of benchmarks/report."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.suite import overview, plots
from benchmarks.suite.exponents import growth_table
from benchmarks.suite.losses import losses, predicted
from benchmarks.suite.readings import (
    OURS,
    Result,
    figures,
    heading,
    label,
    over_plain,
    peer_notes,
    program_of,
    timed,
    title_of,
    unsaid,
)
from benchmarks.suite.tables import figure_table, largest_table, step_table

OPENING = """# Benchmark report

Written by `make bench` (minutes) and `make bench-full` (hours, can be interrupted), peers by
`make bench-peers`; do not edit. Operations and memory of every model of the paper, counted and compared
with what the paper prints, are in [docs/complexity.md](../docs/complexity.md), kernels in
[docs/performance.md](../docs/performance.md).

A comparison is one process. Every step runs between two runs of the plain one (`jax.value_and_grad` of
the same loss) and is divided by their mean; a ratio is the median over so many turns. Below 1 is faster
than training without privacy. The interval is a bootstrap of 95 %; below 6 turns it is the range of all
turns, which is less certain. The row A/A divides the plain step by itself: differences of its size mean
nothing. Methods are bk_jax's implementations of what the paper compares
([methods](../python/bk_jax/planning/methods.py)), so `opacus` is that algorithm, not that library.
All clip; only "with noise" adds noise. Where methods choose alike for every layer of a model they are
the same program, measured once; `a` = `b` says so.

"temp" is XLA's temporary memory; "peak" adds parameters, batch and gradients; "resident" is the
process's largest resident memory in one step, which also holds what other steps left behind. A step
that needs more than the machine has, or a night, was compiled and not run. Weights and data are random;
normalisation is over one example.
"""
LOSSES = """Found in the results by a rule ([losses.py](suite/losses.py)): slower by more than the
intervals and the A/A comparison leave open; outside the figures also 2 % more memory, a largest batch
that is 2 % smaller, twice the time to trace and compile, or 1.5 times the time to trace. In brackets the
other's number, then ours.
"""
ELSEWHERE = """What other benchmarks found (MLPs, a small CNN, ViT with noise, time to build, kernels)
is listed under [losses](../docs/performance.md#losses) of docs/performance.md.
"""
GPUS = """On GPUs nothing was measured; these are predictions ([gpu_model.md](../docs/gpu_model.md)) of
time over that of the plain step:
"""
GROWTH = "It grows with this power of {x}, fitted to all sizes and to the last two:"
OVERVIEW = "overview.png"
ASIDE = "Sizes have bands, in which marks stand side by side; the dashed lines are the plain step."


def mark(name: str) -> str:
    """What a link to a comparison is called; it does not change with titles and sizes."""
    return re.sub("[^a-z0-9]+", "-", name.lower())


def anchor(name: str) -> str:
    """A place that a link can point to."""
    return f'<a id="{mark(name)}"></a>'


class Runs:
    """Results that one command measured one after the other, by number."""

    def __init__(self, results: list[Result]) -> None:
        self.found: dict[tuple[str, ...], list[Result]] = {}
        for result in results:
            self.found.setdefault(self._key(result), []).append(result)

    @staticmethod
    def _key(result: Result) -> tuple[str, ...]:
        return tuple(result.get(name, "") for name in ("machine", "memory", "commit", "flags"))

    def number(self, result: Result) -> str:
        """For a comparison's text; nothing if all are of one run."""
        number = list(self.found).index(self._key(result)) + 1
        return f"Run {number}." if len(self.found) > 1 else ""

    def section(self) -> list[str]:
        lines = ["## Machine", ""]
        for number, ((machine, memory, commit, flags), results) in enumerate(self.found.items(), 1):
            minutes = sum(result.get("took", 0.0) for result in results) / 60
            text = "; ".join([*machine.splitlines(), memory])
            lines.append(
                f"{number}. {text}; commit {commit}; flags: {flags}. "
                f"{len(results)} comparisons in {minutes:.1f} minutes."
            )
        return [*lines, "", '"load" is that of the machine before the run began.', ""]


def summary(results: list[Result]) -> list[str]:
    """One line for each timed comparison: ours, and the best of the others."""
    lines = ["## In short", "", "Time over the plain step; below 1 is faster.", ""]
    shown = [r for r in results if not r["comparison"]["figure"] and set(OURS) & timed(r).keys()]
    for result in shown:
        steps = timed(result)
        ours = [name for name in OURS if name in steps]
        parts = [f"{label(name)} **{steps[name]['ratio']:.2f}**" for name in ours]
        best = best_other(result)
        parts += [f"best other {label(best)} {steps[best]['ratio']:.2f}"] if best else []
        memory = over_plain(result, ours[0], "peak")
        parts += [f"memory {memory:.2f}"] if memory else []
        name = result["comparison"]["name"]
        lines.append(
            f"- {anchor('short ' + name)}[{title_of(result)}](#{mark(name)}): {', '.join(parts)}."
        )
    if overview.rows_of(results):
        lines += ["", f"![{OVERVIEW}](report/{OVERVIEW})"]
    return [*lines, ""]


def best_other(result: Result) -> str | None:
    """The fastest step that is another program than ours."""
    steps = timed(result)
    ours = {program_of(result, name) for name in OURS if name in steps}
    others = [n for n in steps if n != "plain" and program_of(result, n) not in ours]
    return min(others, key=lambda name: steps[name]["ratio"], default=None)


def loss_section(results: list[Result]) -> list[str]:
    found = [f"- {line}" for line in losses(results)] or ["- nowhere in these results."]
    expected = [f"- {line}" for line in predicted()]
    return ["## Where bk_jax loses", "", LOSSES, *found, "", ELSEWHERE, GPUS, *expected, ""]


def step_section(results: list[Result], runs: Runs) -> list[str]:
    lines = ["## Train steps", ""]
    for result in results:
        comparison = result["comparison"]
        if comparison["kind"] == "time" and not comparison["figure"]:
            lines += [anchor(comparison["name"]), "", f"### {title_of(result)}", ""]
            notes = " ".join(filter(None, (runs.number(result), stopped(result))))
            lines += [step_table(result), "", *with_space(notes)]
    return lines if lines[2:] else []


def stopped(result: Result) -> str:
    """Says so of a comparison that took too long."""
    return f"Stopped {result['stopped']}." if "stopped" in result else ""


def with_space(text: str) -> list[str]:
    """A paragraph, if there is one."""
    return [text, ""] if text else []


def figure_section(results: list[Result], runs: Runs) -> list[str]:
    """Pictures, and their numbers."""
    lines = ["## Figures", "", ASIDE, ""]
    for name, rows in figures(results).items():
        fixed = {k: v for k, v in unsaid(rows[0]).items() if k != rows[0]["comparison"]["x"]}
        sizes = ", ".join(f"{key} {value}" for key, value in fixed.items())
        what = "Ratio of time to the plain step" if any(map(timed, rows)) else "Peak memory in MB"
        drawn = " and ".join(plots.WHAT[kind] for kind in plots.kinds(rows))
        lines += [anchor(name), "", f"### {heading(rows[0], drawn)}", ""]
        lines += [f"![{picture}](report/{picture})" for picture in plots.names(name, rows)]
        which = " ".join(dict.fromkeys(filter(None, map(runs.number, rows))))
        lines += ["", f"{what}; {sizes or 'sizes as in the title'}. {which}".strip(), ""]
        lines += [figure_table(rows), ""]
        if len(rows) > 1:
            x = rows[0]["comparison"]["x"]
            lines += [GROWTH.format(x=x), "", growth_table(rows), ""]
    return lines if lines[4:] else []


def largest_section(results: list[Result], runs: Runs) -> list[str]:
    found = [r for r in results if r["comparison"]["kind"] == "largest" and "steps" in r]
    if not found:
        return []
    which = " ".join(dict.fromkeys(filter(None, map(runs.number, found))))
    text = (
        "From compiled programs that did not run: the largest batch whose peak is within the limit,"
    )
    text += f" too small by at most one hundredth. {which}".rstrip()
    return ["## Largest batch", "", text, "", largest_table(found), ""]


def peer_section(results: list[Result], runs: Runs) -> list[str]:
    found = [r for r in results if r["comparison"]["kind"] in ("jax", "torch") and "steps" in r]
    if not found:
        text = "Not measured here: `make bench-peers` adds jax_privacy, optax and Opacus."
        return ["## Peers", "", text, ""]
    text = (
        "Each library against its own framework's step without privacy, on the same model and data;"
    )
    text += " all clip, none adds noise. XLA's memory is known in JAX only."
    lines = ["## Peers", "", text, ""]
    for result in found:
        kind = {"jax": "JAX", "torch": "PyTorch"}[result["comparison"]["kind"]]
        lines += [anchor(result["comparison"]["name"]), "", f"### {kind}: {title_of(result)}", ""]
        lines += [
            step_table(result),
            "",
            peer_notes(result) + f" {runs.number(result)}".rstrip(),
            "",
        ]
    return lines


def error_section(results: list[Result]) -> list[str]:
    failed = [r for r in results if "error" in r]
    if not failed:
        return []
    lines = [f"- {title_of(r)}: {r['error'][:200]}" for r in failed]
    return ["## Failed", "", *lines, ""]


def compose(results: list[Result]) -> str:
    """The text."""
    good = [result for result in results if "steps" in result]
    runs = Runs(good)
    lines = [OPENING, *summary(good), *loss_section(good), *runs.section()]
    for section in (step_section, largest_section, peer_section, figure_section):
        lines += section(good, runs)
    return "\n".join([*lines, *error_section(results)]).rstrip() + "\n"


def write(results: list[Result], root: Path) -> Path:
    """Writes REPORT.md and report/*.png below `root`."""
    path, folder = root / "REPORT.md", root / "report"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(compose(results))
    if overview.rows_of(results):
        overview.draw(results, folder / OVERVIEW)
    for name, rows in figures(results).items():
        plots.draw(name, rows, folder)
    return path
