"""The program behind the table of docs/performance.md."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.steps import table_benchmark
from benchmarks.steps.table_benchmark import COLUMNS, ROWS, Row

TINY = Row("tiny", "mlp", {"batch": 2, "width": 3, "depth": 1}, "1.00 / 1.10")


def test_a_row_has_every_step_beside_the_plain_one():
    found = json.loads(json.dumps(table_benchmark.measure(TINY, budget=0.01)))
    assert found["times"].keys() == {"A/A", "without", "with"}
    assert all(times["ratio"] > 0 and times["pairs"] >= 4 for times in found["times"].values())
    assert found["plain"] > 0
    assert found["build"] > 0
    cells = table_benchmark.line(TINY, found).strip("| ").split(" | ")
    assert len(cells) == len(COLUMNS)
    assert cells[0] == "tiny"
    assert cells[5] == "1.00 / 1.10"


def test_a_row_whose_package_is_missing_says_so(monkeypatch):
    monkeypatch.setitem(ROWS, "tiny", TINY._replace(package="no_such_package"))
    assert table_benchmark.run_row("tiny", 0.01) == (
        "| tiny | not measured: no_such_package is not installed |"
    )


def test_a_row_that_fails_does_not_stop_the_others(monkeypatch):
    monkeypatch.setattr(sys, "executable", "false")
    assert table_benchmark.run_row("mlp_64", 0.01) == (
        "| MLP, 10 layers of 1000, B=64 | failed, exit code 1 |"
    )


def test_the_table_is_written_row_by_row(monkeypatch, tmp_path, capsys):
    into = tmp_path / "table.md"
    monkeypatch.setattr(table_benchmark, "run_row", lambda name, budget: f"| {name} {budget} |")
    monkeypatch.setattr(table_benchmark.machine, "describe", lambda: "a machine")
    arguments = ["--rows", "mlp_64", "vit", "--budget", "1", "--into", str(into)]
    monkeypatch.setattr(sys, "argv", ["table_benchmark", *arguments])
    table_benchmark.main()
    out = capsys.readouterr().out
    assert into.read_text() == out
    assert out.splitlines()[0] == "a machine"
    assert out.splitlines()[-2:] == ["| mlp_64 1.0 |", "| vit 1.0 |"]


@pytest.mark.parametrize("name", ROWS)
def test_sizes_are_those_of_the_label(name):
    row = ROWS[name]
    for letter, size in (("B", "batch"), ("T", "length")):
        if size in row.sizes:
            assert f"{letter}={row.sizes[size]}" in row.label
