"""What programs of the day with a GPU print, and scripts in their place."""

from __future__ import annotations

import json
from typing import Any


def program(day: Any, name: str, text: str) -> None:
    """A script in place of a program that `prepare` builds."""
    path = day.log("x").parent / f"{name}.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    built = day.store.load("prepare").get("data", {}).get("programs", {})
    day.store.save("prepare", {"data": {"programs": {**built, name: str(path)}}})


def probed(holds: str) -> str:
    """What the probe of the tensor cores' rounding writes."""
    row = {
        "type": "bf16", "instruction": "HMMA.16816", "rounding": "truncation", "width": 24,
        "step": 8, "small": "kept", "worst": 30.0, "counted": 96, "holds": holds,
    }  # fmt: skip
    return json.dumps({"device": {"name": "x"}, "types": [row]})


def benchmark(name: str, time: float, unit: str = "us", **more: Any) -> dict[str, Any]:
    """A row of Google Benchmark."""
    return {"name": f"{name}/manual_time", "real_time": time, "time_unit": unit, **more}


SWEEP = json.dumps({
    "context": {"cublasLt": "found", "device_name": "NVIDIA A100-SXM4-40GB"},
    "benchmarks": [
        benchmark("ghost_norm/ours/bf16/2x4x6x8", 30.0, flops=2e12, bytes=1e11),
        benchmark("ghost_norm/cublasLt/bf16/2x4x6x8", 0.02, "ms", flops=3e12, bytes=1e11),
        benchmark("ghost_norm/ours/f32/2x4x6x8", 40.0, flops=1e12, bytes=1e11),
        benchmark("ghost_norm/cublasLt-tf32/f32/2x4x6x8", 20000.0, "ns", flops=1e12, bytes=1e11),
        benchmark("weighted_sum/ours/f32/2x4x6x8", 5.0, flops=1e9, bytes=1e12),
        benchmark("direct_norm/cublasLt/f32/2x4x6x8", 0.0, error_occurred=True,
                  error_message="no such operation: no algorithm, or not enough memory"),
    ],
})  # fmt: skip

# As compute-sanitizer 2025 prints them: a finding, what belongs to it, a summary.
MEMCHECK = """\
========= COMPUTE-SANITIZER
[==========] Running 2 tests from 1 test suite.
========= Invalid __global__ read of size 4 bytes
=========     at void bk::cuda::SumKernel<float>(const T1 *, long)+0x2a0
=========     by thread (33,0,0) in block (0,0,0)
=========     Access at 0x7f1c4a000204 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x1b3c] in device_test
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure"
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 2 errors
"""
