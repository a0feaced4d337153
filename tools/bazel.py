"""Runs Bazel for the other tools, and reads what a run produced from its build events.

Build events are Bazel's own machine-readable account of one invocation, so nothing here guesses
where `bazel-bin` points or mistakes the log of a deleted test for a result.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

ROOT = Path(__file__).resolve().parent.parent

MISSING = """\
bk_jax: error: Bazel is not installed, and the native module is built with it.
  On Debian 12:          tools/setup.sh --system-only
  Without native code:   set BK_JAX_NO_NATIVE=1 and install again (works, but slower)."""


@dataclass
class Run:
    """What one Bazel invocation did."""

    exit_code: int
    events: list[dict[str, Any]] = field(repr=False)

    def outputs(self) -> Iterator[Path]:
        """Files that the requested targets produced."""
        for event in self.events:
            for file in event.get("namedSetOfFiles", {}).get("files", []):
                yield _local_path(file["uri"])

    def test_logs(self) -> Iterator[tuple[str, Path]]:
        """The label and the `test.xml` of every test that ran or whose result was cached."""
        for event in self.events:
            label = event["id"].get("testResult", {}).get("label")
            for output in event.get("testResult", {}).get("testActionOutput", []):
                if output["name"] == "test.xml":
                    yield label, _local_path(output["uri"])

    def broken(self) -> list[str]:
        """Labels of targets that could not be built; not those that are not for this platform."""
        return [
            event["id"]["targetCompleted"]["label"]
            for event in self.events
            if "targetCompleted" in event["id"]
            and not event.get("completed", {}).get("success")
            and event.get("aborted", {}).get("reason") != "SKIPPED"
        ]


def _local_path(uri: str) -> Path:
    return Path(unquote(urlparse(uri).path))


def repo_env() -> list[str]:
    """Flags that make Bazel build for the Python that runs this tool."""
    return [f"--repo_env=BK_JAX_PYTHON={sys.executable}"]


def cache() -> Path | None:
    """Where what was built and checked is kept for other checkouts too: BK_JAX_CACHE, if it is set."""
    folder = os.environ.get("BK_JAX_CACHE")
    return Path(folder).resolve() if folder else None


def cache_flags(command: str) -> list[str]:
    """Bazel takes from there what another checkout compiled from the same input; tests run again."""
    folder = cache()
    flags = [f"--disk_cache={folder / 'bazel'}"] if folder else []
    return [*flags, "--nocache_test_results"] if folder and command == "test" else flags


def nvcc() -> Path | None:
    """The compiler of the CUDA toolkit that third_party/cuda.bzl finds, if there is one."""
    folder = os.environ.get("BK_JAX_CUDA_PATH")
    found = shutil.which("nvcc", path=f"{folder}/bin" if folder else None)
    return Path(found) if found else None


def cuda_left_out() -> str:
    """Why what needs a CUDA toolkit is not built and not tested; empty if it is."""
    if os.environ.get("BK_JAX_TEST_CUDA") == "0":
        return "BK_JAX_TEST_CUDA=0"
    if nvcc() is None:
        return "no CUDA toolkit (nvcc on PATH, or the folder BK_JAX_CUDA_PATH)"
    return ""


def cuda_flags() -> list[str]:
    """The configuration that builds kernels for GPUs too, where there is a toolkit."""
    return [] if cuda_left_out() else ["--config=cuda"]


def run(command: str, *arguments: str, startup: Sequence[str] = (), quiet: bool = False) -> Run:
    """Runs `bazel command arguments` in this workspace for the running Python."""
    if shutil.which("bazel") is None:
        sys.exit(MISSING)
    with tempfile.TemporaryDirectory() as scratch:
        events = Path(scratch, "events.json")
        line = ["bazel", *startup, command, f"--build_event_json_file={events}", *repo_env()]
        line += cache_flags(command)
        if not sys.stderr.isatty():
            line.append("--noshow_progress")
        if quiet:
            line.append("--ui_event_filters=-info,-stdout,-stderr")
        process = subprocess.run([*line, *arguments], cwd=ROOT, check=False)
        lines = events.read_text().splitlines() if events.exists() else []
    return Run(process.returncode, [json.loads(text) for text in lines])


def capture(command: str, *arguments: str) -> str:
    """The standard output of a Bazel query."""
    line = ["bazel", command, *repo_env(), "--noshow_progress", "--ui_event_filters=-info"]
    return subprocess.run(
        [*line, *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
