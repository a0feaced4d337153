"""Notebooks outside of the site: the cell that installs, the button, and the files that Colab opens."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
from support.documents import NOTEBOOKS, code_cells

from docsite import colab

ADDRESS = "https://github.com/OWNER/NAME"


def stored_cells(path):
    stored = json.loads(colab.with_address(path.with_suffix(".ipynb").read_text(), ""))
    return [cell for cell in stored["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_for_colab_is_the_text_notebook(path):
    """`python tools/docs.py --notebooks` writes them anew."""
    cells = stored_cells(path)
    assert ["".join(cell["source"]) for cell in cells] == code_cells(path)
    assert not any(cell.get("outputs") for cell in cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_first_cell_installs_and_is_hidden_in_the_site(path):
    assert code_cells(path)[0] == colab.INSTALL
    assert colab.CELL in path.read_text()
    assert stored_cells(path)[0]["metadata"]["tags"] == ["remove-cell"]


def pip_calls(monkeypatch, cell):
    called = []
    monkeypatch.setattr(
        subprocess, "run", lambda command, **options: called.append((command, options))
    )
    exec(compile(cell, "cell", "exec"), {})
    return called


def test_nothing_is_installed_where_bk_jax_is(monkeypatch):
    assert pip_calls(monkeypatch, colab.with_address(colab.INSTALL, ADDRESS)) == []


def test_the_repository_is_installed_where_bk_jax_is_not(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    ((command, options),) = pip_calls(monkeypatch, colab.with_address(colab.INSTALL, ADDRESS))
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert f"bk_jax[hlo,train] @ git+{ADDRESS}" in command
    assert options["env"]["BK_JAX_NO_NATIVE"] == "1"  # there is no Bazel on Colab


def test_without_an_address_the_cell_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="Write its repository's address into REPOSITORY"):
        pip_calls(monkeypatch, colab.INSTALL)


def test_without_an_address_there_is_no_button_for_colab(monkeypatch):
    monkeypatch.delenv("BK_JAX_REPOSITORY", raising=False)
    page = colab.with_buttons(NOTEBOOKS[0])
    assert "colab.research" not in page
    assert f'href="../_static/notebooks/{NOTEBOOKS[0].stem}.ipynb" download' in page


def test_a_button_opens_a_notebook_that_knows_the_address(monkeypatch, tmp_path):
    monkeypatch.setenv("BK_JAX_REPOSITORY", ADDRESS)
    page = tmp_path / "notebooks" / "a.md"
    page.parent.mkdir()
    page.write_text("# A\n\ntext\n")
    stored = page.with_suffix(".ipynb")
    stored.write_text('"REPOSITORY = \\"\\"  # such as"')
    with pytest.raises(SystemExit, match="would install nothing on Colab"):
        colab.with_buttons(page)
    stored.write_text(colab.with_address(stored.read_text(), ADDRESS))
    assert f"/github/OWNER/NAME/blob/main/docs/notebooks/{stored.name}" in colab.with_buttons(page)
