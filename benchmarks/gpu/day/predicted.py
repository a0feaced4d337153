"""What was predicted for the sweep.

By the static model of kernels (`benchmarks/gpu/cycles`), if its JSON is there, and otherwise by the
roofline of the planner's device table.

The file is a list, or has one under "rows", of `{"kernel", "type", "shape", "microseconds"}`, with the
names of the sweep; `device` in a row restricts it to GPUs whose name contains that text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bk_jax.planning.devices import Device, find_device

ELEMENT_BYTES = {"bf16": 2, "f16": 2, "f32": 4}
MODEL, ROOFLINE = "static model", "roofline"


def beside(
    ratios: list[dict[str, Any]], file: Path | None, device: str
) -> tuple[str, list[dict[str, Any]]]:
    """Who predicted, and the rows with "predicted" microseconds, None where there is no prediction."""
    rows = _rows(file)
    if rows:
        times = {(r["kernel"], r["type"], r["shape"]): r["microseconds"] for r in rows
                 if r.get("device", "") in device}  # fmt: skip
        return MODEL, [
            {**r, "predicted": times.get((r["kernel"], r["type"], r["shape"]))} for r in ratios
        ]
    known = find_device(device)
    return ROOFLINE, [{**r, "predicted": roofline(r, known) if known else None} for r in ratios]


def _rows(file: Path | None) -> list[dict[str, Any]]:
    """Empty if there is no file, or none of that form."""
    if file is None or not file.exists():
        return []
    found = json.loads(file.read_text())
    rows = found.get("rows", []) if isinstance(found, dict) else found
    wanted = {"kernel", "type", "shape", "microseconds"}
    return [row for row in rows if isinstance(row, dict) and wanted <= set(row)]


def roofline(row: dict[str, Any], device: Device) -> float | None:
    """The least that flops and bytes take at the peaks of the data sheet, in microseconds."""
    if not row.get("flops") or not row.get("bytes") or not row.get("microseconds"):
        return None
    flops, moved = (row[name] * row["microseconds"] * 1e-6 for name in ("flops", "bytes"))
    peak = device.flops(ELEMENT_BYTES[row["type"]])
    return 1e6 * max(flops / peak, moved / device.memory)
