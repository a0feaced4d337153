"""Step 2: every test that needs the device: kernels by Bazel, handlers, and Python tests on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.gpu.day import command
from benchmarks.gpu.day.day import Day
from benchmarks.gpu.day.runner import Outcome


def run(day: Day) -> Outcome:
    rows = [kernel_tests(day), *(bazel_test(day, target) for target in day.other_tests)]
    rows.append(python_tests(day))
    failed = [row["name"] for row in rows if not row["ok"]]
    passed = sum(row["passed"] for row in rows)
    line = f"{passed} passed"
    if failed:
        line += f"; failed: {', '.join(failed)}"
    return Outcome(not failed, line, {"rows": rows})


def kernel_tests(day: Day) -> dict[str, Any]:
    """The program itself, not through Bazel: that would show the result of an earlier day."""
    log = day.folder / "kernel_tests.xml"
    line = [day.program("kernel_tests"), f"--gtest_filter={day.sizes.test_filter}"]
    return _counted(day, day.kernel_tests, [*line, f"--gtest_output=xml:{log}"], log)


def bazel_test(day: Day, target: str) -> dict[str, Any]:
    """A target that runs on the CPU wherever it is: here with this toolkit's headers."""
    line = ["bazel", "test", "--config=cuda", "--noshow_progress", "--test_output=errors"]
    line += [f"--repo_env=BK_JAX_PYTHON={sys.executable}", target]
    ran = command.run(line, day.log("device_tests"))
    return _row(target, ran, {"passed": int(ran.code == 0), "failed": int(ran.code != 0)})


def python_tests(day: Day) -> dict[str, Any]:
    log = day.folder / "pytest.xml"
    line = [day.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={log}"]
    return _counted(day, "pytest", [*line, *day.sizes.pytest], log)


def _counted(day: Day, name: str, line: list[Any], log: Path) -> dict[str, Any]:
    log.unlink(missing_ok=True)
    # XLA's default on a GPU is TF32, which no tolerance of a test is meant for.
    environment = day.environment(JAX_DEFAULT_MATMUL_PRECISION="float32")
    ran = command.run(line, day.log("device_tests"), environment=environment)
    counts = count_cases(log.read_text()) if log.exists() else {}
    return _row(name, ran, counts)


def _row(name: str, ran: command.Ran, counts: dict[str, Any]) -> dict[str, Any]:
    """All is well if something passed and nothing failed: a test that skipped has shown nothing."""
    full: dict[str, Any] = {"passed": 0, "failed": 0, "skipped": 0, "names": [], **counts}
    ok = ran.code == 0 and full["passed"] > 0 and full["failed"] == 0
    note = "" if ok else ran.last_line()
    return {"name": name, "ok": ok, "seconds": ran.seconds, "note": note, **full}


def count_cases(xml: str) -> dict[str, Any]:
    """Of one JUnit file, GoogleTest's or pytest's, with the names of what failed."""
    counts: dict[str, Any] = {"passed": 0, "failed": 0, "skipped": 0, "names": []}
    for case in ElementTree.fromstring(xml).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
            counts["names"].append(f"{case.get('classname')}.{case.get('name')}")
        elif case.get("result") == "skipped" or case.find("skipped") is not None:
            counts["skipped"] += 1
        elif case.get("status") != "notrun":
            counts["passed"] += 1
    return counts
