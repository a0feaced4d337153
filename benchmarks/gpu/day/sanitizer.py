"""Step 3: compute-sanitizer over the tests of kernels, each of its tools in turn."""

from __future__ import annotations

import collections
import re
from typing import Any

from benchmarks.gpu.day import command
from benchmarks.gpu.day.day import Day
from benchmarks.gpu.day.runner import Outcome

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
TIMEOUT = 3600.0
MARK = "========="
SUMMARY = re.compile(
    r"========= (?:ERROR SUMMARY: (\d+) errors?"
    r"|RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, (\d+) warnings?\))"
)
# The first line of a finding is indented by one blank, what belongs to it by more.
FINDING = re.compile(r"^========= (?!COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK|LEAK|Target)(\S.*)")
# So that findings of one kind count together.
PLACE = re.compile(r"0x[0-9a-f]+|\+0x\S+|\(\d+,\d+,\d+\)")


def run(day: Day) -> Outcome:
    rows = [day.part(f"sanitizer-{tool}", lambda tool=tool: check(day, tool)) for tool in TOOLS]
    bad = [f"{row['tool']}: {row['problem']}" for row in rows if not row["ok"]]
    return Outcome(not bad, "; ".join(bad) or f"{', '.join(TOOLS)}: 0 errors", {"rows": rows})


def check(day: Day, tool: str) -> dict[str, Any]:
    line = [*day.sanitizer, "--tool", tool, "--error-exitcode", "99", "--print-limit", "20"]
    tests = [day.program("kernel_tests"), f"--gtest_filter={day.sizes.test_filter}"]
    ran = command.run([*line, *tests], day.log("sanitizer"), timeout=TIMEOUT)
    found = parse(ran.out + ran.err)
    problem = problem_of(found, ran)
    return {"tool": tool, "ok": not problem, "problem": problem, "seconds": ran.seconds, **found}


def parse(output: str) -> dict[str, Any]:
    r"""Errors, warnings and kinds of findings; None where there is no summary.

    >>> parse("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors")["errors"]
    0
    """
    errors: int | None = None
    warnings = 0
    kinds: collections.Counter[str] = collections.Counter()
    for line in output.splitlines():
        if summary := SUMMARY.match(line):
            errors = (errors or 0) + int(summary[1] or summary[3] or 0)
            warnings += int(summary[4] or 0)
        elif finding := FINDING.match(line):
            kinds[PLACE.sub("...", finding[1]).strip()] += 1
    return {"errors": errors, "warnings": warnings, "kinds": dict(kinds.most_common())}


def problem_of(found: dict[str, Any], ran: command.Ran) -> str:
    """Empty if the tool finished, found nothing, and the tests passed under it."""
    if found["errors"] is None:
        return f"it did not finish ({ran.last_line()})"
    if found["errors"]:
        first = next(iter(found["kinds"]), "see logs/sanitizer.txt")
        return f"{found['errors']} errors, first: {first}"
    return "" if ran.code == 0 else f"the tests failed under it, exit code {ran.code}"
