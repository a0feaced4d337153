"""Tables: the model's numbers as Markdown, for people and for the pages of docs. All are computed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.gpu.cycles import (
    architectures,
    compiled,
    counts,
    gates,
    kernels,
    limits,
    model,
    noise,
)
from benchmarks.gpu.cycles.architectures import ARCHITECTURES, Architecture
from benchmarks.gpu.cycles.calls import Calls, Dense, occupancy
from benchmarks.gpu.cycles.model import Kernel
from benchmarks.gpu.cycles.opcodes import LANES

LABELS = kernels.labels()
SHAPES = ((16, 100, 768, 3072), (16, 1024, 768, 3072))


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table."""
    cells = list(head)
    lines = [cells, ["---"] * len(cells), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def caps() -> str:
    """Instructions for a product and shares of the peak, before and after."""
    found = {
        (label, gpu.name): kernels.recorded(label, gpu.name)
        for label in LABELS
        for gpu in ARCHITECTURES
    }
    keys = sorted({key for table in found.values() for key in table} - {"noise"})
    head = [
        "kernel",
        "instructions per product, A100",
        *(f"cap, {gpu.name}" for gpu in ARCHITECTURES),
    ]
    rows = []
    for key in keys:
        pair = [found[label, "A100"].get(key) for label in LABELS]
        cells = [_arrow(kernel and f"{kernel.turn.per_product:.1f}" for kernel in pair)]
        for gpu in ARCHITECTURES:
            cells.append(_arrow(_cap(found[label, gpu.name].get(key), gpu) for label in LABELS))
        rows.append([key, *cells])
    return markdown(head, rows)


def _cap(kernel: Kernel | None, gpu: Architecture) -> str | None:
    if kernel is None:
        return None
    return f"{model.cap(kernel, gpu):.0%} ({model.bound(kernel, gpu).limit})"


def _arrow(parts: Iterable[str | None]) -> str:
    """Before and after; one of them where the other is not there or the same."""
    texts = [part or "-" for part in parts]
    return texts[0] if len(set(texts)) == 1 else " → ".join(texts)


def main_loops() -> str:
    """Instructions for each of a tensor core, by target, and the limits of `limits`."""
    found = kernels.recorded_loops()
    targets = ("sm_80", "sm_90a", "sm_100", "sm_120")
    rows = []
    for name in sorted(found):
        cells = []
        for target in targets:
            ratios = " and ".join(f"{ratio:.1f}" for ratio in found[name].get(target, []))
            most = limits.MOST.get(name, {}).get(target, gates.MOST_INSTRUCTIONS)
            cells.append(f"{ratios} (at most {most:g})")
        rows.append([name, *cells])
    return markdown(["kernel, worst of its types", *targets], rows)


def noises() -> str:
    """What a value of noise takes, in float32."""
    rows = []
    for gpu in ARCHITECTURES:
        calls = Calls(kernels.recorded("after", gpu.name), gpu)
        kernel = calls.kernels["noise"]
        each = noise.values(kernel) / kernel.warps / LANES
        million = 1e6 * (calls.noise(10**8, 0) / 100)
        rows.append([
            gpu.name, f"{kernel.turn.issued:.0f}", f"{kernel.turn.issued / each:.0f}",
            f"{kernel.turn.pipes['alu'] / each:.0f}", model.bound(kernel, gpu).limit,
            f"{million:.1f}", f"{1e6 * calls.memory(8e6):.1f}",
        ])  # fmt: skip
    head = ["GPU", "instructions of a block of 16 words", "of a value", "of it ALU", "bound by",
            "us for a million values", "by memory alone"]  # fmt: skip
    return markdown(head, rows)


def occupancies() -> str:
    """Registers, shared memory and blocks of a multiprocessor, of the code as it is."""
    found = {gpu.name: kernels.recorded(LABELS[-1], gpu.name) for gpu in ARCHITECTURES}
    rows = [
        [key, *(occupancy(found[gpu.name][key], gpu) for gpu in ARCHITECTURES)]
        for key in sorted(found["A100"])
    ]
    return markdown(["kernel", *(gpu.name for gpu in ARCHITECTURES)], rows)


def shapes(sizes: Iterable[tuple[int, int, int, int]] = SHAPES) -> str:
    """Microseconds of our operations on dense layers."""
    rows = []
    for size in sizes:
        for name in ("ghost_norm", "direct_norm", "clipped_sum"):
            cells = []
            for gpu in ARCHITECTURES:
                times = [
                    getattr(Calls(kernels.recorded(label, gpu.name), gpu), name)(Dense(*size))
                    for label in LABELS
                ]
                cells.append(_arrow(f"{1e6 * time:.0f}" for time in times))
            rows.append([", ".join(map(str, size)), name.replace("_", " "), *cells])
    return markdown(
        ["B, T, d, p", "operation", *(f"{gpu.name}, us" for gpu in ARCHITECTURES)], rows
    )


def machine_code(path: Path) -> str:
    """Main loops of all kernels of a file, and what the gates say."""
    rows = []
    for function in compiled.functions(path):
        for way in counts.main_loops(function):
            turn = counts.count(way)
            problems = "; ".join(text for text in gates.problems(function).values() if text)
            rows.append([
                function.architecture, function.name[:80], f"{turn.issued:.0f}",
                f"{turn.tensor_instructions:.0f}", f"{turn.per_product:.2f}",
                f"{turn.wavefronts:.0f}", f"{turn.loaded:.0f}", problems or "-",
            ])  # fmt: skip
    head = [
        "target",
        "kernel",
        "instructions",
        "tensor",
        "per product",
        "wavefronts",
        "bytes",
        "gates",
    ]
    return markdown(head, rows)


def sources() -> str:
    """What the table of GPUs says of them."""
    rows = [
        [gpu.name, str(gpu.multiprocessors), f"{gpu.clock / 1e9:.2f}", f"{gpu.sustained:.2f}",
         f"{gpu.peak_flops / 1e12:.0f}", f"{gpu.hmma / gpu.peak:.0%}", f"{gpu.l2_rate:.0f}",
         f"{gpu.memory / 1e12:.2f}"]
        for gpu in architectures.ARCHITECTURES
    ]  # fmt: skip
    head = ["GPU", "multiprocessors", "GHz", "of it under load", "TF/s", "by HMMA",
            "bytes of L2 a cycle", "TB/s"]  # fmt: skip
    return markdown(head, rows)
