"""Predict: microseconds of our kernels for the shapes of the sweep on the day with a GPU.

    python -m benchmarks.gpu.cycles predict        # out/gpu-cycles/predicted.json

Rows as `benchmarks/gpu/day/predicted.py` reads them. Operations are those of the sweep that the model
has kernels of, one layer at a time and rows as they are: nothing is padded. Elements are of 16 bits,
those of noise float32.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu.cycles import kernels
from benchmarks.gpu.cycles.architectures import ARCHITECTURES, Architecture
from benchmarks.gpu.cycles.calls import Calls, Dense
from benchmarks.gpu.day.day import ODD_SHAPES, PAPER_SHAPES

FILE = Path(__file__).resolve().parents[3] / "out" / "gpu-cycles" / "predicted.json"
TYPES = ("bf16", "f16")  # the machine code of both has the same instructions
SHORT = 24  # positions: examples with fewer take the older loop, kLongExample in clipped_gemm.cu


def shape_of(name: str) -> Dense:
    """Of a name as the sweep has it.

    >>> shape_of("16x100x768x3072")
    Dense(batch=16, tokens=100, d=768, p=3072, layers=1)
    """
    sizes = name.split("x")
    if len(sizes) != 4 or not all(size.isdigit() for size in sizes):
        raise ValueError(f"a shape is BxTxdxp, as in 16x100x768x3072, got {name!r}.")
    return Dense(*map(int, sizes))


def seconds(calls: Calls, layer: Dense) -> dict[str, float]:
    """Of the operations that the sweep times on a layer."""
    found = {
        "ghost_norm": calls.ghost_norm(layer),
        "direct_norm": calls.direct_norm(layer),
        "per_sample_grad": calls.direct_norm(layer, written=4.0),
        "weighted_sum": calls.weighted_sum(layer),
        "tied_cross": calls.tied_cross(layer._replace(d=layer.p, p=layer.d)),
    }
    if layer.tokens >= SHORT:
        found["clipped_gemm"] = calls.clipped_sum(layer)
    return found


def rows(shapes: tuple[str, ...] = PAPER_SHAPES + ODD_SHAPES) -> list[dict[str, Any]]:
    """All shapes and types on all GPUs."""
    found = []
    for gpu in ARCHITECTURES:
        calls = Calls(kernels.recorded("after", gpu.name), gpu)
        for shape in shapes:
            layer = shape_of(shape)
            times = seconds(calls, layer)
            found += [_row(n, kind, shape, gpu, t) for n, t in times.items() for kind in TYPES]
            found.append(_row("gaussian", "f32", shape, gpu, calls.noise(layer.d * layer.p)))
    return found


def _row(name: str, kind: str, shape: str, gpu: Architecture, seconds: float) -> dict[str, Any]:
    return {"kernel": name, "type": kind, "shape": shape, "device": gpu.name,
            "microseconds": round(1e6 * seconds, 3)}  # fmt: skip


def write(file: Path = FILE) -> Path:
    """The file, and its folder if need be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    note = "computed by benchmarks/gpu/cycles, not measured"
    file.write_text(json.dumps({"note": note, "rows": rows()}, indent=1) + "\n")
    return file
