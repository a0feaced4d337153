"""Step 5: our kernels beside cublasLt's product of as many flops, by Google Benchmark."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.gpu.day import command
from benchmarks.gpu.day.day import Day
from benchmarks.gpu.day.runner import Outcome

MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def run(day: Day) -> Outcome:
    parts = [
        day.part(f"sweep-{shape}", lambda shape=shape: measure(day, shape))
        for shape in day.sizes.shapes
    ]
    context = next((part["context"] for part in parts if part["context"]), {})
    rows = [row for part in parts for row in part["rows"]]
    errors = [f"{row['name']}: {row['error']}" for row in rows if _matters(row)]
    errors += [part["error"] for part in parts if part.get("error")]
    data = {"context": context, "rows": rows, "ratios": ratios(rows), "errors": errors}
    library = context.get("cublasLt", "")
    line = f"{len(rows)} operations of {len(parts)} shapes; cublasLt {library}"
    if errors:
        line += f"; {len(errors)} failed, first: {errors[0]}"
    return Outcome(not errors and library == "found", line, data)


def _matters(row: dict[str, Any]) -> bool:
    """A product that the library does not take, or a gradient that does not fit, is not an error."""
    return bool(row["error"]) and not row["error"].startswith("no such operation")


def measure(day: Day, shape: str) -> dict[str, Any]:
    out = day.folder / f"sweep_{shape}.json"
    line = [
        day.program("kernels_benchmark"), f"--shapes={shape}", f"--types={','.join(day.sizes.types)}",
        f"--cublas={day.cublas}", f"--benchmark_out={out}", "--benchmark_out_format=json",
        f"--benchmark_min_time={day.sizes.seconds}", "--repeats=1",
    ]  # fmt: skip
    ran = command.run(line, day.log("sweep"))
    if ran.code != 0:
        return {"context": {}, "rows": [], "error": f"{shape}: {ran.last_line()}"}
    return parse(out.read_text())


def parse(text: str) -> dict[str, Any]:
    """Rows from the JSON of Google Benchmark; names are kernel/maker/type/shape."""
    found = json.loads(text)
    rows = []
    for one in found["benchmarks"]:
        kernel, maker, kind, shape = one["name"].split("/")[:4]
        failed = one.get("error_occurred", False)
        rows.append({
            "name": one["name"], "kernel": kernel, "maker": maker, "type": kind, "shape": shape,
            "error": one.get("error_message", "") if failed else "",
            "microseconds": None if failed else one["real_time"] * MICROSECONDS[one["time_unit"]],
            "flops": one.get("flops"), "bytes": one.get("bytes"),
        })  # fmt: skip
    return {"context": found["context"], "rows": rows}


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Our time over that of each product of cublasLt for the same kernel, type and shape."""
    times = {(r["kernel"], r["type"], r["shape"], r["maker"]): r["microseconds"] for r in rows}
    found = []
    for row in rows:
        if row["maker"] != "ours" or not row["microseconds"]:
            continue
        place = (row["kernel"], row["type"], row["shape"])
        library, tf32 = times.get((*place, "cublasLt")), times.get((*place, "cublasLt-tf32"))
        found.append({
            "kernel": place[0], "type": place[1], "shape": place[2],
            "microseconds": row["microseconds"], "flops": row["flops"], "bytes": row["bytes"],
            "cublasLt": library, "tf32": tf32,
            "over_cublasLt": row["microseconds"] / library if library else None,
            "over_tf32": row["microseconds"] / tf32 if tf32 else None,
        })  # fmt: skip
    return found
