"""Step 1: driver, toolkit and device, and what to do if one of them will not do."""

from __future__ import annotations

import csv
import json
import re
import shutil
from typing import Any, NamedTuple

from benchmarks.gpu.day import command
from benchmarks.gpu.day.day import Day
from benchmarks.gpu.day.runner import Outcome

FIELDS = (
    "name", "driver_version", "compute_cap", "memory.total", "memory.free", "clocks.sm",
    "clocks.max.sm", "clocks.mem", "power.limit", "temperature.gpu", "ecc.mode.current",
    "persistence_mode",
)  # fmt: skip
OLDEST_DRIVER = {13: 580, 12: 570}  # by CUDA's major version
OLDEST_TOOLKIT = (12, 8)
OLDEST_CAPABILITY = (8, 0)
FREE_SHARE = 0.9


class Problem(NamedTuple):
    """What is wrong, and what to do about it; some are only worth knowing."""

    what: str
    do: str
    is_fatal: bool


def missing(day: Day) -> str:
    """Why a day cannot begin here, in one line; empty if it can."""
    if shutil.which(day.smi[0]) is None:
        return "no GPU: nvidia-smi was not found"
    ran = command.run([*day.smi, "--list-gpus"], day.log("check"))
    if ran.code != 0 or "GPU 0" not in ran.out:
        return f"no GPU: nvidia-smi says {ran.last_line()!r}"
    if command.run([day.nvcc, "--version"], day.log("check")).code != 0:
        return "no CUDA toolkit (nvcc on PATH, or the folder BK_JAX_CUDA_PATH)"
    return ""


def run(day: Day) -> Outcome:
    query = [*day.smi, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    gpus = parse_smi(command.run(query, day.log("check")).out)
    toolkit = parse_nvcc(command.run([day.nvcc, "--version"], day.log("check")).out)
    report = command.run([day.program("device_report")], day.log("check"))
    device = json.loads(report.out) if report.code == 0 else {"problem": report.last_line()}
    jax = describe_jax(day)
    problems = [*problems_of(gpus[0] if gpus else {}, toolkit), *runtime_problems(device, jax, day)]
    fatal = [problem for problem in problems if problem.is_fatal]
    line = f"{device.get('name', 'no device')}, toolkit {text(toolkit)}"
    if fatal:
        line = f"{fatal[0].what}: {fatal[0].do}"
    data = {
        "gpus": gpus, "toolkit": text(toolkit), "device": device, "jax": jax,
        "problems": [problem._asdict() for problem in problems],
    }  # fmt: skip
    return Outcome(not fatal, line, data)


def parse_smi(output: str) -> list[dict[str, str | None]]:
    """One dictionary for each GPU; what the driver does not know is None.

    >>> line = "A100, 580.65.06, 8.0, 40960, 40442, 1095, 1410, 1215, 400.00, 31, Enabled, [N/A]"
    >>> gpu = parse_smi(line)[0]
    >>> gpu["compute_cap"], gpu["persistence_mode"]
    ('8.0', None)
    """
    rows = csv.reader(output.splitlines(), skipinitialspace=True)
    return [
        {
            name: None if "N/A" in value or not value else value.strip()
            for name, value in zip(FIELDS, row, strict=True)
        }
        for row in rows
        if len(row) == len(FIELDS)
    ]


def parse_nvcc(output: str) -> tuple[int, int] | None:
    """The release of the toolkit.

    >>> parse_nvcc("Cuda compilation tools, release 13.0, V13.0.88")
    (13, 0)
    """
    found = re.search(r"release (\d+)\.(\d+)", output)
    return (int(found[1]), int(found[2])) if found else None


def text(version: tuple[int, int] | None) -> str:
    return "none" if version is None else f"{version[0]}.{version[1]}"


def problems_of(gpu: dict[str, Any], toolkit: tuple[int, int] | None) -> list[Problem]:
    """By what `nvidia-smi` and `nvcc` say."""
    if not gpu:
        return [Problem("nvidia-smi shows no GPU", "install its driver (R580 or newer)", True)]
    found = []
    capability = tuple(int(part) for part in (gpu["compute_cap"] or "0.0").split("."))
    if capability < OLDEST_CAPABILITY:
        what = f"{gpu['name']} has compute capability {gpu['compute_cap']}"
        found.append(Problem(what, "the kernels need 8.0 (A100) or newer", True))
    if toolkit is None or toolkit < OLDEST_TOOLKIT:
        do = "install CUDA 13.0 (or 12.8), or name its folder in BK_JAX_CUDA_PATH"
        found.append(Problem(f"toolkit {text(toolkit)}", do, True))
    found += _driver_problems(gpu, toolkit)
    return found + _state_problems(gpu)


def _driver_problems(gpu: dict[str, Any], toolkit: tuple[int, int] | None) -> list[Problem]:
    driver = int((gpu["driver_version"] or "0").split(".")[0])
    oldest = OLDEST_DRIVER.get(toolkit[0] if toolkit else 13, 580)
    if driver >= oldest:
        return []
    what = f"driver {gpu['driver_version']} is older than R{oldest}"
    do = f"install R{oldest} or newer, or build with a CUDA 12.8 toolkit (R570)"
    return [Problem(what, do, True)]


def _state_problems(gpu: dict[str, Any]) -> list[Problem]:
    """What makes numbers hard to compare."""
    found = []
    free, total = (float(gpu[name] or 0) for name in ("memory.free", "memory.total"))
    if free < FREE_SHARE * total:
        what = f"{free:.0f} of {total:.0f} MiB are free"
        found.append(Problem(what, "stop other processes, or batches come out too small", False))
    if gpu["persistence_mode"] == "Disabled":
        what = "persistence mode is off"
        found.append(Problem(what, "nvidia-smi -pm 1 keeps the clocks steadier", False))
    return found


def describe_jax(day: Day) -> dict[str, Any]:
    """JAX's device, and what `bk_jax.diagnose()` says."""
    code = (
        "import jax, bk_jax, json; d = jax.devices()[0]; bk_jax.diagnose(); "
        "about = {'version': jax.__version__, 'kind': d.device_kind, 'platform': d.platform}; "
        "print(json.dumps(about))"
    )
    ran = command.run([day.python, "-c", code], day.log("check"), environment=day.environment())
    if ran.code != 0:
        return {"problem": ran.last_line()}
    *diagnosis, last = ran.out.splitlines()
    return {**json.loads(last), "diagnosis": diagnosis}


def runtime_problems(device: dict[str, Any], jax: dict[str, Any], day: Day) -> list[Problem]:
    """By what CUDA's runtime and JAX say."""
    found = []
    if "problem" in device:
        found.append(Problem(device["problem"], "see logs/check.txt", True))
    if "problem" in jax:
        do = f"see logs/check.txt; {day.python} has to import jax and find a device"
        found.append(Problem(f"JAX: {jax['problem']}", do, False))
    return found
