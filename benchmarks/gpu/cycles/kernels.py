"""Kernels: our own, their names in the machine code, and their tiles; read and kept as numbers.

`docs/gpu_kernels.json` has what was read of the code before and after the dense kernels got their
main loop, so that tables can be made where there is no toolkit.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu.cycles import architectures, compiled, gates, limits, noise, opcodes
from benchmarks.gpu.cycles.compiled import Shape
from benchmarks.gpu.cycles.counts import Counts
from benchmarks.gpu.cycles.model import Kernel
from benchmarks.gpu.cycles.sass import Function

RECORD = Path(__file__).resolve().parents[3] / "docs" / "gpu_kernels.json"
LARGE, SMALL = 3 * 2 * 128 * 128, 3 * 2 * 64 * 128  # bytes of three stages


# The same source in both states, read once: as `after`.
UNCHANGED = ("noise",)


class Entry(NamedTuple):
    """A kernel by a part of its mangled name."""

    key: str
    pattern: str
    shape: Shape


def _tiled(key: str, name: str, beside: int = 0) -> list[Entry]:
    """A kernel on the main loop: large and small tiles, aligned rows and others.

    `beside` are bytes of shared memory for each row of a tile.
    """
    entries = []
    for size, warps, tile, stages in (("", "2ELi4", 128, LARGE), (", small", "1ELi2", 64, SMALL)):
        for aligned, flag in (("", 1), (", odd rows", 0)):
            shape = Shape(f"{key}{size}{aligned}", (tile, tile), tile // 16 if tile == 128 else 2,
                          shared=stages + beside * tile)  # fmt: skip
            pattern = rf"{name}INS_8BFloat16ENS\d?_6TilingILi{warps}EEELb{flag}E"
            entries.append(Entry(shape.label, pattern, shape))
    return entries


def _square(key: str, pattern: str, products: int = 1, warps: int = 4) -> Entry:
    return Entry(key, pattern, Shape(key, (64, 64), warps, products=products))


ENTRIES = (
    _square("ghost norm", r"GhostKernelINS_8BFloat16"),
    _square("product", r"ProductKernelINS_8BFloat16"),
    _square("clipped sum", r"ScaledProductsKernelINS_8BFloat16ENS\d?_12TensorEngine"),
    *_tiled("ghost norm", "GramKernel"),
    *_tiled("product", "ProductTilesKernel"),
    *_tiled("clipped sum", "ScaledProductsKernel"),
    _square("ghost norm, f32", r"GhostKernelIf", 3),
    _square("product, f32", r"ProductKernelIf", 3),
    _square("clipped sum, f32", r"ScaledRowsKernelIf", 3),
    _square("tied cross term", r"TilesKernelINS_8BFloat16.*TiedCrossShape", warps=8),
    *_tiled("tied cross term", "TiedTilesKernel", beside=12),
    _square("tied cross term, f32", r"11TilesKernelIf", warps=8),
    _square("convolution", r"ConvTileKernelINS_8BFloat16", warps=8),
    Entry("noise", r"14GaussianKernelIf", Shape("noise", (128, 16), 4)),  # threads, values of each
)


def read(folder: Path) -> dict[str, dict[str, Kernel]]:
    """From GPU and key to the kernels in the archives of a folder."""
    found: dict[str, dict[str, Kernel]] = {gpu.name: {} for gpu in architectures.ARCHITECTURES}
    for path in sorted(folder.glob("lib*_device.a")):
        for gpu in architectures.ARCHITECTURES:
            used = compiled.usage(path, "-arch", gpu.target)
            for function in compiled.functions(path, "-arch", gpu.target):
                for entry in ENTRIES:
                    if re.search(entry.pattern, function.name):
                        reader = noise if entry.key == "noise" else compiled
                        kernel = reader.read_kernel(function, entry.shape, used[function.name])
                        found[gpu.name][entry.key] = kernel
    return found


def read_loops(functions: Iterable[Function]) -> dict[str, dict[str, list[float]]]:
    """Instructions for each of a tensor core in the main loops of all dense kernels, by target."""
    table: dict[str, dict[str, list[float]]] = {}
    for function in functions:
        if not any(opcodes.is_tensor(one) for one in function.instructions):
            continue
        ratios = [round(gates.per_product(loop), 3) for loop in gates.tensor_loops(function)]
        row = table.setdefault(limits.name_of(function), {})
        row[function.architecture] = max(ratios, row.get(function.architecture, ratios))
    return table


def to_json(kernel: Kernel) -> dict[str, Any]:
    """Numbers alone."""
    values = dataclasses.asdict(kernel)
    turn = values["turn"]
    turn["tensor"] = [[*kind, number] for kind, number in kernel.turn.tensor.items()]
    turn["opcodes"] = {name: count for name, count in turn["opcodes"].items() if "LDGSTS" in name}
    return values


def from_json(values: dict[str, Any]) -> Kernel:
    """The inverse, but for names of instructions that nothing asks for."""
    turn = dict(values["turn"])
    turn["tensor"] = {(elements, group): number for elements, group, number in turn["tensor"]}
    rest = {name: value for name, value in values.items() if name not in ("turn", "tile")}
    return Kernel(turn=Counts(**turn), tile=tuple(values["tile"]), **rest)


def record(label: str, folder: Path) -> None:
    """Puts what a folder has into the file, as `before` or `after`."""
    whole = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    whole[label] = {
        gpu: {key: to_json(kernel) for key, kernel in sorted(kernels.items())}
        for gpu, kernels in read(folder).items()
    }
    if label == "after":
        whole["loops"] = read_loops(compiled.in_folder(folder))
    RECORD.write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n")


def recorded_loops() -> dict[str, dict[str, list[float]]]:
    """What `read_loops` found in the code as it is."""
    found: dict[str, dict[str, list[float]]] = json.loads(RECORD.read_text())["loops"]
    return found


def labels() -> tuple[str, ...]:
    """Of what was recorded: `before`, and `after` once there is a new state."""
    whole = json.loads(RECORD.read_text())
    return tuple(label for label in ("before", "after") if any(whole.get(label, {}).values()))


def recorded(label: str, gpu: str) -> dict[str, Kernel]:
    """The kernels of `before` or `after` for a GPU, by key."""
    whole = json.loads(RECORD.read_text())
    same = {key: whole["after"][gpu][key] for key in UNCHANGED if key in whole["after"][gpu]}
    return {key: from_json(values) for key, values in {**same, **whole[label][gpu]}.items()}
