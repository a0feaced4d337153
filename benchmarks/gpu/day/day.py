"""What a day runs on: a GPU, or the emulated device and stand-ins (a rehearsal).

Steps are the same code for both. All that differs is in this file, as data.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu.day.store import Store

ROOT = Path(__file__).resolve().parents[3]
STAND_INS = Path(__file__).parent / "stand_ins"
REHEARSAL = "rehearsal: no number here is a measurement"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much each step does.

    Attributes:
      name: of this choice.
      shapes: of dense layers, `BxTxdxp`, for the sweep.
      bits_shapes: likewise, for bits.
      types: of elements.
      probes: random chunks of the probe.
      seconds: that Google Benchmark takes for one operation at least.
      test_filter: of GoogleTest, for the tests of kernels.
      pytest: arguments that choose Python tests.
      models: of the tables, by their names in `benchmarks.gpu.printed`.
      methods: of the tables.
      model_sizes: in place of those of the paper.
      batch_limit: of the search for the largest batch; 0: memory is the limit.
      dtypes: of the tables' parameters.
      calibration_seconds: the budget of `bk_jax.calibrate`.
    """

    name: str
    shapes: tuple[str, ...]
    bits_shapes: tuple[str, ...]
    types: tuple[str, ...]
    probes: int
    seconds: float
    test_filter: str
    pytest: tuple[str, ...]
    models: tuple[str, ...]
    methods: tuple[str, ...]
    model_sizes: dict[str, int]
    batch_limit: int
    dtypes: tuple[str, ...]
    calibration_seconds: float


# Layers of GPT2 small, medium and large, their heads, RoBERTa, BEiT, a Llama of 1.2e9; then odd ones.
PAPER_SHAPES = (
    "16x100x768x2304", "16x100x768x3072", "16x100x3072x768", "4x1024x768x3072", "16x100x768x50257",
    "16x100x1024x4096", "16x100x1280x5120", "16x256x1024x4096", "16x197x1024x4096",
    "2x2048x2048x8192",
)  # fmt: skip
ODD_SHAPES = ("64x1x1000x1000", "7x33x65x129", "3x127x769x1001", "5x24x512x2047")

FULL = Sizes(
    name="full",
    shapes=PAPER_SHAPES + ODD_SHAPES,
    bits_shapes=("4x100x768x3072", "3x127x769x1001"),
    types=("bf16", "f32", "f16"),
    probes=2000,
    seconds=0.2,
    test_filter="*",
    pytest=("tests/ops", "tests/transform/devices_test.py", "-m", "not slow"),
    models=("gpt2", "roberta-large", "beit-large", "gpt2-medium", "gpt2-large"),
    methods=("none", "auto", "ghost_clip", "opacus"),
    model_sizes={},
    batch_limit=0,
    dtypes=("float32", "bfloat16"),
    calibration_seconds=30.0,
)
QUICK = dataclasses.replace(
    FULL,
    name="quick",
    shapes=(*PAPER_SHAPES[1:5], *ODD_SHAPES[:2]),
    types=("bf16", "f32"),
    probes=200,
    seconds=0.05,
    models=("gpt2",),
    methods=("none", "auto"),
    calibration_seconds=10.0,
)
TINY = dataclasses.replace(
    FULL,
    name="rehearsal",
    shapes=("2x40x48x64", "2x5x17x33"),
    bits_shapes=("2x33x32x40", "3x5x17x33"),
    probes=4,
    test_filter="EngineTest.*:*WeightedSum*",
    pytest=("tests/ops/clip_factor_test.py",),
    models=("gpt2",),
    methods=("none", "auto", "opacus"),
    model_sizes={"length": 8, "depth": 1, "d": 64, "words": 31},
    batch_limit=2,
    dtypes=("float32",),
    calibration_seconds=0.2,
)


@dataclasses.dataclass(frozen=True)
class Day:
    """A run of all steps.

    Attributes:
      folder: where results go.
      is_rehearsal: no number is a measurement.
      python: the interpreter whose JAX runs on the device.
      platform: JAX's name of it.
      suffix: of the programs in `benchmarks/gpu/BUILD`.
      kernel_tests: the Bazel target of the tests of kernels, which has a program of the same name.
      other_tests: further targets.
      smi: the command `nvidia-smi`.
      nvcc: the compiler of the toolkit.
      sanitizer: the command `compute-sanitizer`.
      cublas: the folder of libcublasLt, or an empty text.
      cache: in place of the user's, for the calibration; empty: the user's.
      sizes: how much is done.
    """

    folder: Path
    is_rehearsal: bool
    python: Path
    platform: str
    suffix: str
    kernel_tests: str
    other_tests: tuple[str, ...]
    smi: tuple[str, ...]
    nvcc: str
    sanitizer: tuple[str, ...]
    cublas: str
    cache: str
    sizes: Sizes

    @property
    def store(self) -> Store:
        return Store(self.folder)

    def key(self) -> dict[str, Any]:
        """What a result belongs to: results of another kind of day are not taken over."""
        return {"rehearsal": self.is_rehearsal, "sizes": self.sizes.name}

    def log(self, name: str) -> Path:
        path = self.folder / "logs" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def program(self, name: str) -> Path:
        """A program that `prepare` has built."""
        built = self.store.load("prepare").get("data", {}).get("programs", {})
        path = Path(built.get(name, name))
        if not path.exists():
            raise FileNotFoundError(f"{name} is not built: type it again with --again prepare")
        return path

    def environment(self, **more: str) -> dict[str, str]:
        """Variables for Python processes on the device."""
        paths = os.pathsep.join([str(ROOT), str(ROOT / "python")])
        return {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": self.platform, **more}

    def part(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A part of a step: computed once, so that a day that was stopped goes on within it.

        What went wrong (an "error", or not "ok") is not kept.
        """
        stored = self.store.load(f"parts/{name}")
        if stored.get("key") == self.key():
            return stored["data"]
        data = compute()
        if data.get("error") or not data.get("ok", True):
            return data
        self.store.save(f"parts/{name}", {"key": self.key(), "data": data})
        return data


def on_gpu(folder: Path, sizes: Sizes) -> Day:
    """A day with a GPU; `prepare` makes the environment that it names."""
    venv = ROOT / ".venv-gpu-day"
    libraries = "lib/python{}.{}/site-packages/nvidia/cu13/lib".format(*sys.version_info[:2])
    return Day(
        folder=folder,
        is_rehearsal=False,
        python=venv / "bin" / "python",
        platform="cuda",
        suffix="",
        kernel_tests="//tests/custom_calls/cuda:device_test",
        other_tests=("//tests/xla_plugin:cuda_handlers_test", "//tests/xla_plugin:cublas_test"),
        smi=("nvidia-smi",),
        nvcc=_toolkit_program("nvcc"),
        sanitizer=(_toolkit_program("compute-sanitizer"),),
        cublas=str(venv / libraries),
        cache="",
        sizes=sizes,
    )


def rehearsal(folder: Path, sizes: Sizes = TINY) -> Day:
    """The same day on the emulated device, with the interpreter that runs this."""
    return Day(
        folder=folder,
        is_rehearsal=True,
        python=Path(sys.executable),
        platform="cpu",
        suffix="_emulated",
        kernel_tests="//tests/custom_calls/cuda:emulated_test",
        other_tests=("//tests/xla_plugin:cublas_test",),
        smi=(sys.executable, str(STAND_INS / "nvidia_smi.py")),
        nvcc=_toolkit_program("nvcc"),
        sanitizer=(sys.executable, str(STAND_INS / "compute_sanitizer.py")),
        cublas=str(ROOT / "bazel-bin/tests/cublas_stand_in"),
        cache=str(folder / "cache"),
        sizes=sizes,
    )


def _toolkit_program(name: str) -> str:
    """In the toolkit that BK_JAX_CUDA_PATH names, on PATH, or beside nvcc; else its bare name."""
    folder = os.environ.get("BK_JAX_CUDA_PATH")
    found = shutil.which(name, path=f"{folder}/bin" if folder else None)
    nvcc = shutil.which("nvcc")
    if not found and nvcc:
        found = shutil.which(name, path=str(Path(nvcc).resolve().parent))
    return found or name
