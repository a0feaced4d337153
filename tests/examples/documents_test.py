"""The documents: their Python runs as it stands, and their links lead somewhere."""

from __future__ import annotations

import ast
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.documents import (
    DOCUMENTS,
    GENERATED,
    NOTEBOOKS,
    ROOT,
    RUN_ELSEWHERE,
    python_blocks,
    run_python,
)

import bk_jax
from bk_jax import privacy, sampling


@pytest.mark.parametrize(
    "path", [d for d in DOCUMENTS if d.name not in RUN_ELSEWHERE], ids=lambda path: path.name
)
def test_python_runs_as_it_stands(path):
    run_python(path)


@pytest.mark.parametrize("name", RUN_ELSEWHERE)
def test_what_runs_elsewhere_has_a_test_there(name):
    """It needs eight devices, or another library: it has Python, and the named test runs it."""
    (document,) = [d for d in DOCUMENTS if d.name == name]
    assert python_blocks(document)
    file, test = RUN_ELSEWHERE[name].split("::")
    functions = {
        node.name: ast.unparse(node)
        for node in ast.parse((ROOT / file).read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert f"'{name}'" in functions[test]
    assert "mark.slow" not in functions[test]  # CI leaves out slow tests beside other libraries


def test_the_unit_of_a_topic_runs():
    """The lines are of the example's program; here a bigram model of 68 small topics is its gpt."""
    (page,) = [d for d in DOCUMENTS if d.name == "language_model.md"]
    rows = np.arange(68 * 3 * 5).reshape(68 * 3, 5) % 7

    def losses_fn(params, rows, heads):
        logits = params[rows[:, :-1]]
        found = jnp.take_along_axis(jax.nn.log_softmax(logits), rows[:, 1:, None], axis=2)
        return -jnp.mean(found, axis=(1, 2))

    learned = types.SimpleNamespace(rows=rows, topics=np.repeat(np.arange(68), 3))
    names = {
        "bk_jax": bk_jax,
        "privacy": privacy,
        "sampling": sampling,
        "learned": learned,
        "gpt": types.SimpleNamespace(losses_fn=losses_fn),
        "heads": 1,
    }
    (block,) = python_blocks(page)
    exec(compile(block, str(page), "exec"), names)
    units = names["units"]
    params = jnp.zeros((7, 7))
    value, grads = names["grad_fn"](params, units, key=bk_jax.random.key(0))
    assert np.isclose(value, np.log(7))
    assert grads.shape == params.shape
    assert names["topics"] == 68


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


def is_generated(target):
    return target.removeprefix("../").startswith(GENERATED)


@pytest.mark.parametrize("path", [*DOCUMENTS, *NOTEBOOKS], ids=lambda path: path.name)
def test_links_lead_to_files(path):
    targets = re.findall(r"\]\((?!https?://)([^)#]+)", path.read_text())
    missing = [
        target
        for target in targets
        if not is_generated(target) and not (path.parent / target).exists()
    ]
    assert not missing


def anchors(path):
    """Headings as GitHub turns them into targets of links, and targets written as such."""
    text = path.read_text()
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return set(re.findall(r'<a id="([^"]+)"></a>', text)) | {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("path", [*DOCUMENTS, *NOTEBOOKS], ids=lambda path: path.name)
def test_links_lead_to_headings(path):
    links = re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", path.read_text())
    missing = [
        f"{file}#{name}"
        for file, name in links
        if not is_generated(file) and name not in anchors(path.parent / file if file else path)
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
