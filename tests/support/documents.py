"""The documents and the Python inside them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.md"))
GENERATED = ("reference/", "errors.md")  # pages that the build of the site writes

# Documents whose Python needs another process than that of the tests, and the test that runs it.
RUN_ELSEWHERE = {
    "devices.md": "tests/devices/meshes_test.py::test_the_recipes_of_the_page_run",
    "jax_privacy.md": "tests/peers/jax_privacy_test.py::test_the_lines_of_the_page_run",
    "language_model.md": "tests/examples/documents_test.py::test_the_unit_of_a_topic_runs",
    "keras.md": "tests/peers/keras_test.py::test_the_lines_of_the_page_run",
}


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def code_cells(path: Path) -> list[str]:
    """The code of a text notebook, cell by cell, without the options of cells."""
    found = re.findall(
        r"^```\{code-cell\}[^\n]*\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    return [re.sub(r"\A(?::[^\n]*\n)+\n*", "", cell).strip("\n") for cell in found]


def run_python(path: Path) -> int:
    """Runs the Python of a document as it stands, from top to bottom; how many blocks there were."""
    names = {"__name__": path.stem}
    blocks = python_blocks(path)
    for block in blocks:
        exec(compile(block, str(path), "exec"), names)
    return len(blocks)
