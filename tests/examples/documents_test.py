"""The documents: their Python runs as it stands, and their links lead somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_blocks(path):
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_runs_as_it_stands(path):
    names = {"__name__": path.stem}
    for block in python_blocks(path):
        exec(compile(block, str(path), "exec"), names)


def test_the_first_lines_of_the_readme_need_only_the_package():
    first, *others = python_blocks(ROOT / "README.md")
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(ast.parse(first))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported == {"jax", "bk_jax"}
    assert others


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(path):
    targets = re.findall(r"\]\((?!https?://)([^)#]+)", path.read_text())
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert not missing


def anchors(path):
    """Headings as GitHub turns them into targets of links."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_headings(path):
    links = re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", path.read_text())
    missing = [
        f"{file}#{name}"
        for file, name in links
        if name not in anchors(path.parent / file if file else path)
    ]
    assert not missing


def lines_of_code(block):
    return [line for line in block.splitlines() if line.strip()]


def test_privacy_takes_ten_more_lines_in_the_tutorial():
    blocks = python_blocks(ROOT / "docs" / "tutorial.md")
    plain = next(block for block in blocks if "jax.value_and_grad(" in block)
    private = next(block for block in blocks if "open_ledger(" in block)
    assert len(lines_of_code(private)) - len(lines_of_code(plain)) <= 10


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_tables_have_as_many_cells_in_every_row(path):
    for table in re.findall(r"(?:^\|.*\n)+", path.read_text(), flags=re.MULTILINE):
        rows = [len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()]
        assert len(set(rows)) == 1, table
