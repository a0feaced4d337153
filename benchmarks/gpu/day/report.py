"""Step 9: one Markdown file of all that there is, with pictures; steps that are missing say so."""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.day import plots, predicted, sections
from benchmarks.gpu.day.day import REHEARSAL, ROOT, Day
from benchmarks.gpu.day.runner import Step

TIMES = frozenset({
    "microseconds", "flops", "bytes", "cublasLt", "tf32", "over_cublasLt", "over_tf32", "predicted",
    "throughput", "slower", "peak_bytes", "rates",
})  # fmt: skip
PREDICTIONS = ROOT / "out" / "gpu-cycles" / "predicted.json"  # of benchmarks/gpu/cycles


def write(day: Day, steps: Sequence[Step], predictions: Path | None = PREDICTIONS) -> Path:
    results = {step.name: day.store.load(step.name) for step in steps}
    add_predictions(results, predictions)
    pictures = draw(day, results)
    if day.is_rehearsal:
        results = without_times(results)
    lines = [*head(day, results), *overview(steps, results)]
    for step in steps:
        lines += section(day, step, results[step.name], pictures.get(step.name, []))
    path = day.folder / "REPORT.md"
    path.write_text("\n".join(lines))
    return path


def without_times(value: Any) -> Any:
    """The same with a word in place of everything that a clock has to do with.

    >>> without_times({"rows": [{"batch": 2, "throughput": 5.0, "slower": None}]})
    {'rows': [{'batch': 2, 'throughput': 'REHEARSAL', 'slower': None}]}
    """
    if isinstance(value, list):
        return [without_times(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: "REHEARSAL" if name in TIMES and one is not None else without_times(one)
        for name, one in value.items()
    }


def add_predictions(results: dict[str, dict[str, Any]], file: Path | None) -> None:
    """Puts what was predicted beside what was measured."""
    data = results.get("sweep", {}).get("data", {})
    if "ratios" in data:
        device = data["context"].get("device_name", "")
        data["who"], data["ratios"] = predicted.beside(data["ratios"], file, device)


def draw(day: Day, results: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Names of pictures by step; none where there is nothing to draw."""
    stamp = {"is_rehearsal": day.is_rehearsal}
    data = {name: result.get("data", {}) for name, result in results.items()}
    ratios = data.get("sweep", {}).get("ratios", [])
    who = data.get("sweep", {}).get("who", "")
    folder = day.folder
    drawn = {
        "probe": [("probe.png", plots.draw_probe(
            data.get("probe", {}).get("types", []), folder / "probe.png", **stamp))],
        "sweep": [
            ("ratios.png", plots.draw_ratios(ratios, folder / "ratios.png", **stamp)),
            ("predicted.png",
             plots.draw_predicted(ratios, who, folder / "predicted.png", **stamp)),
        ],
        "tables": [("tables.png", plots.draw_tables(
            data.get("tables", {}).get("rows", []), folder / "tables.png", **stamp))],
    }  # fmt: skip
    return {name: [file for file, there in files if there] for name, files in drawn.items()}


def head(day: Day, results: dict[str, dict[str, Any]]) -> list[str]:
    device = (
        results.get("check", {}).get("data", {}).get("device", {}).get("name", "unknown device")
    )
    when = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [f"# The day with a GPU: {device}", ""]
    if day.is_rehearsal:
        lines += [
            f"> **{REHEARSAL}.** The emulated device and stand-ins ran; times are theirs.",
            "",
        ]
    return [*lines, f"{when}, commit {commit()}, sizes `{day.sizes.name}`.", ""]


def commit() -> str:
    line = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    ran = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.strip() or "unknown"


def overview(steps: Sequence[Step], results: dict[str, dict[str, Any]]) -> list[str]:
    rows = [
        (step.title, found.get("status", "not run"), found.get("seconds"), found.get("line"))
        for step in steps
        for found in [results[step.name]]
    ]
    return sections.table(["step", "result", "s", ""], rows)


def section(day: Day, step: Step, result: dict[str, Any], pictures: list[str]) -> list[str]:
    lines = [f"## {step.title}", ""]
    if day.is_rehearsal:
        lines += [f"*{REHEARSAL}*", ""]
    if not result:
        return [*lines, f'Not run. `make gpu-day GPU_DAY="--only {step.name}"` runs it.', ""]
    if result["status"] != "passed":
        log = f"`logs/{step.name}.txt` has more."
        lines += [f"**{result['status']}**: {result['line']}. {log}", ""]
    if result.get("key") != day.key():
        lines += [f"From another kind of day: {result.get('key')}.", ""]
    lines += sections.SECTIONS[step.name](result["data"]) if result["data"] else []
    return [*lines, *(f"![{name}]({name})\n" for name in pictures)]
