"""docs/architecture.md: its table of modules is the tree."""

from __future__ import annotations

import re

from support.documents import ROOT

PACKAGE = ROOT / "python" / "bk_jax"
ROOMS = ("program", "planning", "summing", "sharding")  # whose modules are listed one by one


def listed() -> list[str]:
    """The names in the first column of the table of modules."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text[text.index("| module | takes | gives |") :].split("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    return [name for row in rows for name in re.findall("`([^`]+)`", row)]


def present() -> set[str]:
    """Modules and packages of the tree, by the names that the table uses."""

    def names(folder):
        inside = [p for p in folder.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()]
        return {p.stem for p in inside if p.stem != "__init__"}

    top = names(PACKAGE) - set(ROOMS)
    return top | {f"{room}/{name}" for room in ROOMS for name in names(PACKAGE / room)}


def test_the_table_is_the_tree():
    assert sorted(listed()) == sorted(present())


def test_the_stops_of_the_tour_exist():
    """Each heading names a file and a function, or a method, of the package."""
    text = (ROOT / "docs" / "tour.md").read_text()
    stops = re.findall(r"^## \d+\. .*?: `([^`]+\.py)`, (?:then )?`([^`]+)`", text, re.MULTILINE)
    assert len(stops) == 10
    for file, function in stops:
        source = (PACKAGE / file).read_text()
        assert re.search(rf"def {function.split('.')[-1]}\b", source), (file, function)
