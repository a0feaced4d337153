"""What a benchmark ran on: names, and the two rates that a kernel's rate is judged by.

    print(describe())

The FMA peak of one core and XLA's rate of a large gemm are measured in the same process as everything
else, so that a slow or busy machine shows in them too.
"""

from __future__ import annotations

import ctypes
import datetime
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import _native
from bk_jax.overhead.timing import Clock, Timing, compare
from bk_jax.planning.machine_rates import cpu_name

GEMM_SIZE = 2048


class Gemm(NamedTuple):
    """XLA's gemm of `GEMM_SIZE` compared with itself, and its rate in GF/s."""

    timed: Timing
    rate: float


def fma_peak() -> float:
    """GF/s of one core; 0 where the library was not built, or the CPU has no AVX2."""
    # Beside the program among Bazel's files; or the checkout's last build.
    program, checkout = Path(sys.argv[0]).absolute().parent, Path(__file__).resolve().parents[2]
    for folder in (program.parent, checkout / "bazel-bin/benchmarks"):
        library = folder / "kernels/libfma_peak.so"
        if library.exists():
            measure = ctypes.CDLL(str(library)).BkFmaPeak
            measure.restype = ctypes.c_double
            return max(measure() for _ in range(5)) / 1e9
    return 0.0


def xla_gemm(budget: float = 1.0, clock: Clock = time.perf_counter) -> Gemm:
    """All threads; never zeros, since some clocks rise when nothing toggles."""
    shape = (GEMM_SIZE, GEMM_SIZE)
    x = jnp.asarray(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))
    matmul = jax.jit(jnp.matmul)
    timed = compare(lambda: matmul(x, x), lambda: matmul(x, x), budget=budget, clock=clock)
    return Gemm(timed, 2e-9 * GEMM_SIZE**3 / timed.seconds)


def describe(gemm: Gemm | None = None) -> str:
    """CPU, instruction set, load, versions, date; FMA peak, XLA's gemm, and its A/A ratio."""
    module = _native.library().module
    isa = module.active_isa() if module is not None else "no native library"
    peak = fma_peak()
    gemm = gemm or xla_gemm()
    return (
        f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores, {isa}, load {os.getloadavg()[0]:.1f}, "
        f"jax {jax.__version__}, {datetime.date.today()}\n"
        f"FMA peak {f'{peak:.0f} GF/s per core' if peak else 'unknown'}, "
        f"XLA's gemm of {GEMM_SIZE} {gemm.rate:.0f} GF/s, "
        f"A/A {gemm.timed.ratio:.3f} ({gemm.timed.low:.3f} .. {gemm.timed.high:.3f})"
    )
