"""Runs the suites that are named and closes with one line: `N passed, N failed`.

    python tools/run_tests.py cpp py oldest [--pytest arguments for pytest]

`cpp`: GoogleTest; `py`: pytest; `oldest`: the transform's tests again, on the oldest JAX; `peers`:
what stands in for functions of other libraries, beside those libraries; `peers-quick`: the part of it
that takes little, left out where its packages cannot be had; `gpu`: small programs compiled
for GPUs that are not there; `gpu-all`: large ones too.
Where there is a CUDA toolkit `cpp` and `py` hold what needs one; `cuda` is that alone.
Every suite runs even if another one fails. A target that does not build counts as a failed test.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import bazel
import gpu_environment
import oldest_jax
import peers

# Tests mostly trace and compile, on one core each: two processes take half the time of one. Each
# costs a start of JAX and its memory, so there are not more than eight.
PARALLEL = ("--numprocesses=auto", "--maxprocesses=8", "--dist=worksteal")
SUITES = ("cpp", "py", "oldest", "peers", "peers-quick", "cuda", "gpu", "gpu-all")
# All about GPUs: kernels, handlers, the module, their tests, emulated and not.
CUDA_TARGETS = (
    "//custom_calls/cuda/...",
    "//tests/cuda_on_cpu/...",
    "//tests/custom_calls/cuda/...",
    "//tests/gpu_day/...",
    "//tests/xla_plugin:cuda_handlers_test",
    "//benchmarks/gpu/...",
)
CUDA_PYTEST = "tests/ops/cuda_lowering_test.py"
GPU_NEEDED = "programs compiled for GPUs, and gates on them"
CUDA_NEEDED = "kernels compiled by nvcc, gates on their code, handlers and lowering for GPUs"


@dataclass(frozen=True)
class Count:
    """How many test cases passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )


def count_cases(log: Path) -> Count:
    """Counts the cases of one JUnit XML file: GoogleTest's, pytest's or Bazel's own."""
    total = Count()
    for case in ElementTree.parse(log).getroot().iter("testcase"):
        not_run = case.get("status") == "notrun" or case.get("result") == "skipped"
        if case.find("failure") is not None or case.find("error") is not None:
            total += Count(failed=1)
        elif not_run or case.find("skipped") is not None:
            total += Count(skipped=1)
        else:
            total += Count(passed=1)
    return total


def run_cpp(config: str | None = None) -> Count:
    """Builds everything and runs every GoogleTest; or, with a configuration, the tests alone."""
    if config is None:
        return _run_bazel(*bazel.cuda_flags(), "//...")
    print(f"C++ tests under {config}:", flush=True)
    # An output folder of its own: the ordinary build stays as it is, and so does bazel-bin.
    flags = [f"--config={config}", f"--platform_suffix={config}", "--symlink_prefix=/"]
    return _run_bazel(*flags, "--build_tests_only", "//...")


def _run_bazel(*arguments: str) -> Count:
    result = bazel.run("test", "--keep_going", *arguments)
    logs = [log for _, log in result.test_logs()]
    total = sum((count_cases(log) for log in logs), Count(failed=len(result.broken())))
    if result.exit_code != 0 and total.failed == 0:
        total += Count(failed=1)  # Bazel stopped early: a BUILD file that does not load
    return total


def run_py(arguments: list[str]) -> Count:
    """Runs pytest, doctests included."""
    total = Count() if bazel.cuda_left_out() else _place_cuda_module()
    command = [sys.executable, "-m", "pytest", f"--ignore={gpu_environment.TESTS}", *arguments]
    return total + _run_pytest(command, dict(os.environ))


def _place_cuda_module() -> Count:
    """Builds `bk_jax._cuda`, without which the tests of lowering for GPUs are skipped."""
    tool = [sys.executable, "tools/build_native.py", "--cuda", "--into", "python/bk_jax"]
    return Count(failed=int(subprocess.run(tool, cwd=bazel.ROOT, check=False).returncode != 0))


def run_cuda() -> Count:
    """All that is about GPUs, and nothing else."""
    if bazel.cuda_left_out():
        return Count(failed=1)  # the line that says why is printed already
    return _run_bazel("--config=cuda", *CUDA_TARGETS) + run_py([CUDA_PYTEST])


def run_oldest() -> Count:
    """Runs the tests of the transform in the environment of the oldest JAX."""
    print("Tests of the transform on the oldest JAX:", flush=True)
    command = oldest_jax.pytest_command(*oldest_jax.TESTS)
    return _run_elsewhere(oldest_jax.make_environment, command, oldest_jax.environment())


def run_peers() -> Count:
    """Runs the tests that need other libraries in their environment."""
    print("Tests beside other libraries:", flush=True)
    make = functools.partial(peers.make, "jax")
    return _run_elsewhere(make, peers.pytest_command(), peers.test_environment())


def run_peers_quick() -> Count:
    """Tests beside other libraries, but for the values of most models."""
    try:
        peers.make("jax")
    except subprocess.CalledProcessError as error:
        print(f"{error}; left out: tests beside other libraries", flush=True)
        return Count(skipped=1)
    print("Tests beside other libraries, those that take little:", flush=True)
    return _run_pytest(peers.pytest_command(*peers.QUICK), peers.test_environment())


def _run_elsewhere(
    make: Callable[[], None], command: list[str], environment: dict[str, str]
) -> Count:
    try:
        make()
    except subprocess.CalledProcessError as error:
        print(f"the environment of these tests could not be made: {error}", flush=True)
        return Count(failed=1)
    return _run_pytest(command, environment)


def run_gpu(*arguments: str) -> Count:
    """Compiles programs for GPUs in an environment of their own, where that can be made."""
    print("Programs compiled for GPUs:", flush=True)
    if reason := gpu_environment.left_out():
        print(f"{reason}; left out: {GPU_NEEDED}", flush=True)
        return Count(skipped=1)
    command = [str(gpu_environment.PYTHON), "-m", "pytest", gpu_environment.TESTS, *arguments]
    return _place_cuda_module() + _run_pytest(command, gpu_environment.environment())


def _run_pytest(command: list[str], environment: dict[str, str]) -> Count:
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "pytest.xml")
        full = [*command, f"--junitxml={log}", *PARALLEL]
        code = subprocess.run(full, cwd=bazel.ROOT, env=environment, check=False).returncode
        total = count_cases(log) if log.exists() else Count()
    if code != 0 and total.failed == 0:
        total += Count(failed=1)  # pytest stopped before it had a result
    return total


def say_what_is_left_out() -> None:
    """One line where there is no CUDA toolkit, or where it is not to be used."""
    if reason := bazel.cuda_left_out():
        print(f"{reason}; left out: {CUDA_NEEDED}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="+", choices=SUITES)
    parser.add_argument("--configs", nargs="+", default=[None], help="of Bazel, for the C++ tests")
    parser.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="pytest arguments")
    arguments = parser.parse_args()
    if arguments.configs == [None] and {"cpp", "py", "cuda"} & set(arguments.suites):
        say_what_is_left_out()
    total = Count()
    if "cuda" in arguments.suites:
        total += run_cuda()
    if "cpp" in arguments.suites:
        total += sum((run_cpp(config) for config in arguments.configs), Count())
    if "py" in arguments.suites:
        total += run_py(arguments.pytest)
    if "oldest" in arguments.suites:
        total += run_oldest()
    if "gpu" in arguments.suites:
        total += run_gpu("-m", "not slow")
    if "gpu-all" in arguments.suites:
        total += run_gpu(*arguments.pytest)
    if "peers" in arguments.suites:
        total += run_peers()
    if "peers-quick" in arguments.suites:
        total += run_peers_quick()
    sys.stderr.flush()
    if total.skipped:
        print(f"{total.skipped} skipped")
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    sys.exit(total.failed > 0 or total.passed == 0)


if __name__ == "__main__":
    main()
