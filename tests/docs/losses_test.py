"""docs/performance.md lists every loss of its tables of steps, and the report sends readers there."""

import re

import pytest
from support.documents import ROOT

from benchmarks.suite import document

PAGE = (ROOT / "docs" / "performance.md").read_text()
INTERVAL = re.compile(r"(\d+\.\d+) \((\d+\.\d+) \.\. ")
LIMIT = 1.1  # of memory and time to build


def section(title: str) -> str:
    """The text below a heading, without the next one of its level or above."""
    mark, text = re.search(rf"^(##+) {re.escape(title)}\n(.*)", PAGE, re.M | re.S).groups()
    return re.split(rf"^#{{2,{len(mark)}}} ", text, flags=re.M)[0]


def table(title: str) -> list[list[str]]:
    """The first table of a section, without its header."""
    lines = iter(section(title).splitlines())
    for line in lines:
        if line.startswith("|--"):
            break
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def slower(title: str, columns: slice) -> list[str]:
    """Ratios whose interval is above 1."""
    cells = [INTERVAL.match(cell) for row in table(title) for cell in row[columns]]
    return [found[1] for found in cells if float(found[2]) > 1]


@pytest.mark.parametrize(
    ("title", "columns", "least"),
    [
        ("Train steps", slice(3, 5), 9),
        ("Whole train steps", slice(2, 5), 9),
        ("Predictions", slice(3, 4), 7),
    ],
)
def test_every_slower_step_is_among_the_losses(title, columns, least):
    found = slower(title, columns)
    assert len(found) >= least
    assert not [ratio for ratio in found if ratio not in section("Losses")]


def test_memory_and_building_are_among_the_losses():
    found = [cell for row in table("Train steps") for cell in row[6:8] if float(cell) >= LIMIT]
    assert {"1.27", "1.37", "1.30"} <= set(found)
    assert not [ratio for ratio in found if ratio not in section("Losses")]


def test_the_report_sends_readers_to_the_losses():
    assert "(../docs/performance.md#losses)" in document.ELSEWHERE
    assert document.ELSEWHERE in "\n".join(document.loss_section([]))
