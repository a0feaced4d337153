"""benchmarks/REPORT.md, made from results: every number in it comes from a file of benchmarks/report."""

from __future__ import annotations

import re
from pathlib import Path

import plots
from losses import losses
from readings import (
    OURS,
    Result,
    figures,
    label,
    over_plain,
    timed,
    title_of,
)
from tables import figure_table, largest_table, step_table

OPENING = """# Measured

Written by `make bench` (minutes) and `make bench-full` (hours, can be interrupted), peers by
`make bench-peers`; do not edit. Counted operations of the paper's models are in
[docs/complexity.md](../docs/complexity.md), kernels in [docs/performance.md](../docs/performance.md).

A comparison is one process. Every step runs between two runs of the plain one (`jax.value_and_grad` of
the same loss) and is divided by their mean; a ratio is the median over so many turns, with a bootstrap
interval of 95 %. Below 1 is faster than training without privacy. The row A/A divides the plain step by
itself: differences of its size mean nothing. Methods are bk_jax's implementations of what the paper
compares ([methods](../python/bk_jax/methods.py)), so `opacus` is that algorithm, not that library. All
clip; only "with noise" adds noise.

"temp" is XLA's temporary memory; "peak" adds parameters, batch and gradients; "resident" is the
process's largest resident memory in one step, which also holds what other steps left behind. A step
that needs more than the machine has was compiled and not run. Weights and data are random;
normalisation is over one example.
"""
LOSSES = """Found in the results by a rule ([losses.py](suite/losses.py)): `auto` is slower than the
plain step or than another one by more than the intervals and the A/A comparison leave open, or,
outside the figures, needs at least 2 % more memory at its peak. What it loses against is in brackets.
"""


def anchor(name: str) -> str:
    """A heading's mark that a link can point to."""
    return f'<a id="{re.sub("[^a-z0-9]+", "-", name.lower())}"></a>'


def machines(results: list[Result]) -> list[str]:
    """What the results were measured on, each once."""
    return list(dict.fromkeys(_machine(result) for result in results if "machine" in result))


def _machine(result: Result) -> str:
    first, *rest = result["machine"].splitlines()
    hardware = ", ".join(first.split(", load ")[0:1])
    return f"{hardware}; commit {result['commit']}; flags: {result['flags']}" if rest else first


def machine_section(results: list[Result]) -> list[str]:
    lines = ["## Machine", ""]
    for number, text in enumerate(machines(results), 1):
        lines.append(f"{number}. {text}")
    details = list(dict.fromkeys(r["machine"] for r in results if "machine" in r))
    return [*lines, "", "As each run described it:", "", "```text", *details, "```", ""]


def summary(results: list[Result]) -> list[str]:
    """One line for each timed comparison: ours, and the best of the others."""
    lines = ["## In short", ""]
    for result in results:
        steps = timed(result)
        ours = [name for name in OURS if name in steps]
        others = {n: s for n, s in steps.items() if n not in (*OURS, "plain")}
        if not ours or result["comparison"]["figure"]:
            continue
        parts = [f"{label(name)} **{steps[name]['ratio']:.2f}**" for name in ours]
        if others:
            best = min(others, key=lambda name: others[name]["ratio"])
            parts.append(f"best other {label(best)} {others[best]['ratio']:.2f}")
        memory = over_plain(result, ours[0], "peak")
        parts += [f"memory {memory:.2f}"] if memory else []
        link = re.sub("[^a-z0-9]+", "-", result["comparison"]["name"].lower())
        lines.append(f"- [{title_of(result)}](#{link}): {', '.join(parts)}.")
    return [*lines, "", "Time over the plain step; below 1 is faster.", ""]


def loss_section(results: list[Result]) -> list[str]:
    found = [f"- {line}" for line in losses(results)] or ["- nowhere in these results."]
    return ["## Where bk_jax loses", "", LOSSES, *found, ""]


def step_section(results: list[Result]) -> list[str]:
    lines = ["## Train steps", ""]
    for result in results:
        comparison = result["comparison"]
        if comparison["kind"] == "time" and not comparison["figure"]:
            lines += [anchor(comparison["name"]), "", f"### {title_of(result)}", ""]
            lines += [step_table(result), ""]
    return lines


def figure_section(results: list[Result]) -> list[str]:
    """Pictures, and their numbers."""
    lines = ["## Figures", ""]
    for name, rows in figures(results).items():
        comparison = rows[0]["comparison"]
        fixed = {k: v for k, v in comparison["sizes"].items() if k != comparison["x"]}
        sizes = ", ".join(f"{key} {value}" for key, value in fixed.items())
        what = "Ratio of time to the plain step" if any(map(timed, rows)) else "Peak memory in MB"
        lines += [anchor(name), "", f"### {comparison['title']}", ""]
        lines += [f"![{picture}](report/{picture})" for picture in plots.names(name, rows)]
        lines += ["", f"{what}; {sizes or 'default sizes'}.", "", figure_table(rows), ""]
    return lines


def largest_section(results: list[Result]) -> list[str]:
    found = [r for r in results if r["comparison"]["kind"] == "largest" and "steps" in r]
    if not found:
        return []
    text = (
        "From compiled programs that did not run: the largest batch whose peak is within the limit,"
    )
    text += " to one hundredth."
    return ["## Largest batch", "", text, "", largest_table(found), ""]


def peer_section(results: list[Result]) -> list[str]:
    found = [r for r in results if r["comparison"]["kind"] in ("jax", "torch") and "steps" in r]
    if not found:
        return []
    text = (
        "Each library against its own framework's step without privacy, on the same model and data;"
    )
    text += " all clip, none adds noise."
    lines = ["## Peers", "", text, ""]
    for result in found:
        kind = {"jax": "JAX", "torch": "PyTorch"}[result["comparison"]["kind"]]
        lines += [anchor(result["comparison"]["name"]), "", f"### {kind}: {title_of(result)}", ""]
        lines += [
            step_table(result),
            "",
            f"Versions: {result['versions']}. "
            f"Loss: {', '.join(f'{n} {v:.5f}' for n, v in result['losses'].items())}.",
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
    lines = [OPENING, *machine_section(good), *summary(good), *loss_section(good)]
    lines += [*step_section(good), *largest_section(good), *peer_section(good)]
    lines += [*figure_section(good), *error_section(results)]
    return "\n".join(lines).rstrip() + "\n"


def write(results: list[Result], root: Path) -> Path:
    """Writes REPORT.md and report/*.png below `root`."""
    path = root / "REPORT.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(compose(results))
    for name, rows in figures(results).items():
        plots.draw(name, rows, root / "report")
    return path
