"""Step 0: the environment with JAX for the device, the module for GPUs, and the programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.gpu.day import command
from benchmarks.gpu.day.day import ROOT, Day
from benchmarks.gpu.day.runner import Outcome

PROGRAMS = ("device_report", "kernels_benchmark", "bits_check", "rounding_probe")
STAND_IN = "//tests/cublas_stand_in:libcublasLt.so.13"
LOCK = ROOT / "requirements.lock"


def run(day: Day) -> Outcome:
    if problem := make_environment(day):
        return Outcome(False, problem, {})
    if not day.is_rehearsal and (problem := place_module(day)):
        return Outcome(False, problem, {})
    built = build(day)
    missing = sorted({*PROGRAMS, "kernel_tests"} - set(built))
    line = f"{len(built)} programs built"
    if missing:
        line = f"not built: {', '.join(missing)} (see logs/prepare.txt)"
    return Outcome(not missing, line, {"programs": built})


def make_environment(day: Day) -> str:
    """What .venv has, and JAX's plugin with CUDA's libraries; nothing where JAX runs as it is."""
    if day.is_rehearsal or _has_jax(day):
        return ""
    venv = day.python.parents[1]
    install = [day.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    lines: list[list[str | Path]] = [
        [sys.executable, "-m", "venv", "--clear", venv],
        [*install, "--no-deps", "--requirement", LOCK],
        [*install, f"jax[cuda{cuda_major(day)}]=={locked_jax(LOCK.read_text())}"],
    ]
    for line in lines:
        ran = command.run(line, day.log("prepare"))
        if ran.code != 0:
            return f"{' '.join(map(str, line[:5]))} ...: {ran.last_line()}"
    return ""


def _has_jax(day: Day) -> bool:
    code = "import jax; jax.devices()"
    ran = command.run([day.python, "-c", code], day.log("prepare"), environment=day.environment())
    return ran.code == 0


def locked_jax(lock: str) -> str:
    r"""The version of JAX that the project is tested with.

    >>> locked_jax("numpy==2.1\njax==0.9.1\njaxlib==0.9.1")
    '0.9.1'
    """
    return re.findall(r"^jax==(\S+)", lock, re.MULTILINE)[0]


def cuda_major(day: Day) -> str:
    """Of the toolkit that builds our module: JAX's plugin has to be for the same."""
    ran = command.run([day.nvcc, "--version"], day.log("prepare"))
    found = re.search(r"release (\d+)\.", ran.out)
    return found[1] if found else "13"


def place_module(day: Day) -> str:
    line = [sys.executable, "tools/build_native.py", "--cuda", "--into", "python/bk_jax"]
    ran = command.run(line, day.log("prepare"))
    return "" if ran.code == 0 else f"bk_jax._cuda was not built: {ran.last_line()}"


def targets(day: Day) -> list[str]:
    programs = [f"//benchmarks/gpu:{name}{day.suffix}" for name in PROGRAMS]
    return [*programs, day.kernel_tests, *([STAND_IN] if day.is_rehearsal else [])]


def build(day: Day) -> dict[str, str]:
    """Paths of programs by their names, as Bazel's build events have them."""
    events = day.folder / "events.json"
    line = ["bazel", "build", "--config=cuda", "--keep_going", "--noshow_progress"]
    line += [f"--build_event_json_file={events}", f"--repo_env=BK_JAX_PYTHON={sys.executable}"]
    command.run([*line, *targets(day)], day.log("prepare"))
    lines = events.read_text().splitlines() if events.exists() else []
    return named(day, _outputs(lines))


def _outputs(events: Iterable[str]) -> Iterable[Path]:
    for line in events:
        for file in json.loads(line).get("namedSetOfFiles", {}).get("files", []):
            yield Path(file["uri"].removeprefix("file://"))


def named(day: Day, outputs: Iterable[Path]) -> dict[str, str]:
    """Those that steps ask for, and the tests of kernels under one name."""
    wanted = {name + day.suffix: name for name in PROGRAMS}
    wanted[day.kernel_tests.split(":")[1]] = "kernel_tests"
    return {wanted[path.name]: str(path) for path in outputs if path.name in wanted}
