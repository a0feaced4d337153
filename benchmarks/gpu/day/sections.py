"""Sections of the report: Markdown from the data of each step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Data = dict[str, Any]


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Lines of Markdown.

    >>> table(["a", "b"], [(1, None)])
    ['| a | b |', '|---|---|', '| 1 | - |', '']
    """
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return [*lines, ""]


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text.replace("|", "/").replace("\n", " ")


def check(data: Data) -> list[str]:
    jax = data.get("jax", {})
    lines = table(["of the driver", ""], (data.get("gpus") or [{}])[0].items())
    device = {**data.get("device", {}), "toolkit": data.get("toolkit")}
    lines += table(["of CUDA's runtime", ""], device.items())
    lines += table(["of JAX", ""], [(k, v) for k, v in jax.items() if k != "diagnosis"])
    lines += ["```text", *jax.get("diagnosis", []), "```", ""]
    problems = data.get("problems", [])
    if problems:
        lines += table(["worth knowing", "what to do"], [(p["what"], p["do"]) for p in problems])
    return lines


def device_tests(data: Data) -> list[str]:
    head = ["tests", "well", "passed", "failed", "skipped", "s", "names, or the last line"]
    return table(head, [
        (r["name"], r["ok"], r["passed"], r["failed"], r["skipped"], r["seconds"],
         ", ".join(r["names"][:5]) or r["note"])
        for r in data.get("rows", [])
    ])  # fmt: skip


def sanitizer(data: Data) -> list[str]:
    head = ["tool", "well", "errors", "warnings", "s", "findings"]
    return table(head, [
        (r["tool"], r["ok"], r["errors"], r["warnings"], r["seconds"],
         "; ".join(f"{n} x {kind}" for kind, n in list(r["kinds"].items())[:3]) or r["problem"])
        for r in data.get("rows", [])
    ])  # fmt: skip


def probe(data: Data) -> list[str]:
    head = ["elements", "instruction", "the sum is rounded by", "bits that terms keep",
            "terms of a step", "products below 2^-126", "worst error", "counted",
            "assumption holds"]  # fmt: skip
    lines = table(head, [_probe_row(row) for row in data.get("types", [])])
    lines += [
        "Errors are in roundings (2^-24) of the sum of absolute values of a chunk. The assumption of "
        "docs/numerics.md: steps of at least 4 terms, terms aligned to at least 24 bits, no error "
        "above the counted one.", "",
    ]  # fmt: skip
    if "broken" in data:
        lines += [
            "A tensor core with twice the assumed error, of which the probe has to say no:",
            "",
        ]
        lines += table(head, [_probe_row(row) for row in data["broken"]])
    return lines


def _probe_row(row: Data) -> tuple[Any, ...]:
    return (
        row["type"], row["instruction"], row["rounding"], row["width"], row["step"], row["small"],
        row["worst"], row["counted"], row["holds"],
    )  # fmt: skip


def sweep(data: Data) -> list[str]:
    """`data` has "predicted" in its ratios and "who" by then."""
    head = ["kernel", "type", "B x T x d x p", "us", "Tflop/s", "GB/s", "cublasLt, us", "ratio",
            "TF32, us", "ratio", f"predicted ({data.get('who')}), us"]  # fmt: skip
    return table(head, [
        (r["kernel"], r["type"], r["shape"], r["microseconds"], _scaled(r["flops"], 1e-12),
         _scaled(r["bytes"], 1e-9), r["cublasLt"], r["over_cublasLt"], r["tf32"], r["over_tf32"],
         r.get("predicted"))
        for r in data.get("ratios", [])
    ])  # fmt: skip


def _scaled(value: float | str | None, factor: float) -> float | str | None:
    return value * factor if isinstance(value, float | int) else value


def bits(data: Data) -> list[str]:
    rows = data.get("kernels", {}).get("rows", [])
    head = ["operation", "by", "type", "shape", "equal", "different, or a problem"]
    lines = table(head, [
        (r["kernel"], r["maker"], r["type"], r["shape"], f"{r['equal']} of {r['cases']}",
         r["problem"] or r["different"])
        for r in rows
    ])  # fmt: skip
    steps = [
        (r["name"], ", ".join(dict.fromkeys(r["hashes"])), r["error"])
        for r in data.get("steps", [])
    ]
    return lines + table(["private step of GPT2", "hashes of its results", "error"], steps)


def calibration(data: Data) -> list[str]:
    rates = data.get("rates", {})
    where = "a scratch file" if data.get("is_scratch") else f"`{data.get('file')}`"
    lines = [f"Stored in {where}. `bk_jax.diagnose()` says: `rates  {data.get('diagnosis')}`.", ""]
    if not isinstance(rates, dict):
        return [*lines, f"Rates: {rates}.", ""]
    rows = [(k, v) for k, v in rates.items() if isinstance(v, float)]
    rows += [(f"{k} at {size}", rate) for k, v in rates.items() if isinstance(v, list)
             for size, rate in v]  # fmt: skip
    return lines + table(["rate", "per second"], rows)


def tables(data: Data) -> list[str]:
    head = ["model", "method", "elements", "largest batch", "examples / s", "over plain",
            "peak, MB", "paper: batch", "examples / s", "over plain", "error"]  # fmt: skip
    lines = table(head, [
        (r["model"], r["method"], r["dtype"], r["batch"], r["throughput"], r["slower"],
         _scaled(r["peak_bytes"], 1e-6), r["paper_batch"], r["paper_throughput"],
         r["paper_slower"], r["error"])
        for r in data.get("rows", [])
    ])  # fmt: skip
    return [*lines, "Products of float32 have the precision of float32 in every step.", ""]


def prepare(data: Data) -> list[str]:
    return [f"Programs: {', '.join(data.get('programs', {}))}.", ""]


SECTIONS = {
    "prepare": prepare, "check": check, "device_tests": device_tests, "sanitizer": sanitizer,
    "probe": probe, "sweep": sweep, "bits": bits, "calibration": calibration, "tables": tables,
}  # fmt: skip
