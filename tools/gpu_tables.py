"""Computed, not measured: occupancy of the kernels for GPUs, and the least time their work can take.

    bazel build --config=cuda //custom_calls/cuda/... && python tools/gpu_tables.py

prints the tables of docs/gpu.md from what ptxas said (`bazel-bin/custom_calls/cuda/*.resources.txt`)
and from nominal peak rates.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

LOGS = Path(__file__).resolve().parent.parent / "bazel-bin" / "custom_calls" / "cuda"
REGISTERS, WARPS, SHARED_RESERVED = 65536, 64, 1024  # per multiprocessor; shared memory per block


class Gpu(NamedTuple):
    """A GPU: rates in 1e12 per second (dense), memory in 1e9 bytes per second, shared memory in KB.

    `fp32` is without tensor cores, a multiply-add counted as two.
    """

    name: str
    architecture: str
    shared: int
    bf16: float
    fp32: float
    memory: float


GPUS = (
    Gpu("A100 SXM 80 GB", "sm_80", 164, 312, 19.5, 2039),
    Gpu("H100 SXM", "sm_90a", 228, 989, 66.9, 3350),
    Gpu("B200", "sm_100", 228, 2250, 75.0, 8000),
)
# Part of the names of dense kernels with large tiles and aligned rows; their dynamic shared memory.
LARGE = r"INS_8BFloat16ENS0_6TilingILi2ELi4EEELb1"
STAGES = 3 * 32 * 1024 + 1024
KERNELS = {  # part of the mangled name: (label, threads of a block)
    rf"GramKernel{LARGE}": ("ghost norm, bf16", 256),
    r"GhostKernelIf": ("ghost norm, f32 (tf32 in three products)", 128),
    rf"ProductTilesKernel{LARGE}": ("direct norm, per-sample gradient, bf16", 256),
    r"ProductKernelIf": ("direct norm, per-sample gradient, f32", 128),
    rf"ScaledProductsKernel{LARGE}": ("clipped gemm, bf16, T >= 24", 256),
    r"ScaledRowsKernelIf": ("clipped gemm, f32", 128),
    r"SpreadKernelINS_8BFloat16": ("row norms, bf16", 128),
    r"WeightedSumKernelIf": ("weighted sum, f32", 256),
    r"ConvTileKernelIf": ("convolution: norm, gradient, sum, f32", 256),
    r"ConvDepthwiseKernelIf": ("depthwise convolution, f32", 128),
    r"ColumnsKernelINS_8BFloat16": ("embedding norm, bf16", 128),
    r"ScatterKernelINS_8BFloat16": ("clipped scatter, bf16", 128),
    r"SortTilesKernel.*ExampleKeys": ("sort of tokens: tiles", 256),
    r"MergeRunsKernel": ("sort of tokens: merges", 256),
    r"TilesKernelINS_8BFloat16.*TiedCrossShape": ("tied cross term, bf16", 256),
    r"ClipFactorKernelIf": ("clip factor, f32", 128),
    r"GaussianKernelIf": ("noise, f32", 128),
}


def usage() -> dict[tuple[str, str], tuple[int, int]]:
    """From (kernel, architecture) to registers and bytes of shared memory."""
    entry = re.compile(
        r"Compiling entry function '(\S+)' for '(sm_\d+a?)'.*?Used (\d+) registers([^\n]*)", re.DOTALL
    )
    found = {}
    for log in LOGS.glob("*.resources.txt"):
        for name, architecture, registers, rest in entry.findall(log.read_text()):
            shared = re.search(r"(\d+) bytes smem", rest)
            declared = int(shared.group(1)) if shared else 0
            found[name, architecture] = (int(registers), STAGES if LARGE in name else declared)
    return found


def blocks_per_multiprocessor(gpu: Gpu, threads: int, registers: int, shared: int) -> int:
    """As the occupancy calculator has it: registers come in 256 per warp, warps in fours."""
    warps = threads // 32
    by_registers = REGISTERS // (-(-registers * 32 // 256) * 256) // 4 * 4 // warps
    by_shared = gpu.shared * 1024 // (shared + SHARED_RESERVED)
    return min(by_registers, by_shared, WARPS // warps, 32)


def occupancy_table() -> list[str]:
    rows = [
        "| kernel | " + " | ".join(gpu.name for gpu in GPUS) + " |",
        "|---" * (len(GPUS) + 1) + "|",
    ]
    found = usage()
    for pattern, (label, threads) in KERNELS.items():
        cells = []
        for gpu in GPUS:
            key = next(k for k in found if re.search(pattern, k[0]) and k[1] == gpu.architecture)
            registers, shared = found[key]
            blocks = blocks_per_multiprocessor(gpu, threads, registers, shared)
            warps = blocks * threads // 32
            cells.append(
                f"{registers} registers, {shared / 1024:.0f} KB: {blocks} blocks, {warps / WARPS:.0%}"
            )
        rows.append(f"| {label} | " + " | ".join(cells) + " |")
    return rows


class Work(NamedTuple):
    """Operations and bytes that an operation needs at least, for bf16 operands."""

    label: str
    flops: float
    bytes: float
    tensor_cores: bool = True


def dense_works(b: int, t: int, d: int, p: int) -> list[Work]:
    """One dense layer; B examples of T positions, weight [d, p]."""
    operands = 2.0 * b * t * (d + p)
    tiles = -(-t // 64)
    pairs = tiles * (tiles + 1) // 2
    return [
        Work("ghost norm", 2.0 * b * pairs * 64 * 64 * (d + p), operands),
        Work("direct norm", 2.0 * b * t * d * p, 2 * operands),
        Work("per-sample gradient", 2.0 * b * t * d * p, operands + 4.0 * b * d * p),
        Work("clipped gemm", 2.0 * b * t * d * p, operands + 4.0 * d * p),
        Work("weighted sum of stored gradients", 2.0 * b * d * p, 4.0 * b * d * p),
    ]


def other_works() -> list[Work]:
    """Calls that are not dense layers, at sizes of GPT2 and of a ResNet."""
    b, t, p, rows = 16, 1024, 768, 50257
    g = 2.0 * b * t * p
    pixels, channels = 56 * 56, 64
    x = 2.0 * b * pixels * channels
    product = 2.0 * b * pixels * 9 * channels * channels
    values = 1.0e8
    return [
        Work("embedding norm, B, T, p = 16, 1024, 768", b * t * p * 2.0, g, False),
        Work("clipped scatter into 50257 rows", b * t * p * 2.0, g + 8.0 * rows * p, False),
        Work("tied cross term, T = S = 1024", 2.0 * b * t * t * p, 2 * g, False),
        Work("conv norm, 16 images of 56 x 56, 64 to 64 channels, 3 x 3", product, 2 * x, False),
        # 20 rounds of 48 operations and 16 additions for 16 words; the normals are not counted.
        Work("noise, 1e8 values of f32", values * (20 * 48 + 16) / 16, 8 * values, False),
    ]


def roofline_table(works: list[Work]) -> list[str]:
    head = (
        "| operation | Gflop | MB | "
        + " | ".join(f"{gpu.name}: us, bound by" for gpu in GPUS)
        + " |"
    )
    rows = [head, "|---" * (len(GPUS) + 3) + "|"]
    for work in works:
        cells = []
        for gpu in GPUS:
            rate = gpu.bf16 if work.tensor_cores else gpu.fp32
            arithmetic, memory = work.flops / rate / 1e6, work.bytes / gpu.memory / 1e3
            unit = "tensor cores" if work.tensor_cores else "arithmetic"
            name = unit if arithmetic > memory else "memory"
            cells.append(f"{max(arithmetic, memory):.0f}, {name}")
        rows.append(
            f"| {work.label} | {work.flops / 1e9:.1f} | {work.bytes / 1e6:.0f} | "
            + " | ".join(cells)
            + " |"
        )
    return rows


def main() -> None:
    print("\n".join(occupancy_table()))
    for shape in ((16, 100, 768, 3072), (16, 1024, 768, 3072)):
        print("\nB, T, d, p = {}, {}, {}, {}:\n".format(*shape))
        print("\n".join(roofline_table(dense_works(*shape))))
    print("\nOther calls, bf16 operands, without tensor cores:\n")
    print("\n".join(roofline_table(other_works())))


if __name__ == "__main__":
    main()
