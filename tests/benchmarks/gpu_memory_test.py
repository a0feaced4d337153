"""The predicted tables of memory: how the largest batch is found, and that the document has them."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu import memory_document, memory_table
from benchmarks.gpu.printed import PRINTED

ROOT = Path(__file__).parents[2]
FOUND = json.loads((ROOT / memory_document.DATA).read_text())


def search(memory, limit, first):
    known = {0: memory(0), first: memory(first)}
    return memory_table.largest_batch(memory, known, limit), known


@pytest.mark.parametrize("first", [1, 60, 127, 500])
def test_a_line_is_followed_to_the_limit(first):
    batch, known = search(lambda b: 100 + 7 * b, 1000, first)
    assert 0.98 * 128 <= batch <= 128
    assert known[batch] <= 1000
    assert len(known) <= 4


def test_a_bend_is_no_obstacle():
    """Memory that grows faster beyond some batch, as XLA's placement may have it."""
    batch, known = search(lambda b: 100 * b if b < 70 else 140 * b, 10000, 20)
    assert batch in (70, 71)
    assert known[batch] <= 10000


def test_nothing_fits():
    assert search(lambda b: 1000 + b, 10, 5)[0] == 0


def test_the_document_has_the_tables_of_the_file():
    document = (ROOT / memory_document.DOCUMENT).read_text()
    assert memory_document.filled(document, FOUND) == document


def test_every_answer_was_compiled_and_fits():
    for model in PRINTED:
        for method, one in FOUND.get(model, {}).items():
            for limit, batch in one["largest"].items():
                nbytes = one["bytes"][str(batch)]
                assert nbytes <= memory_table.LIMITS[limit], (model, method, limit)


@pytest.mark.parametrize("model", [model for model in PRINTED if "auto" in FOUND.get(model, {})])
def test_the_claim_of_the_paper_holds_for_the_compiled_programs(model):
    """As many examples fit as without privacy, and half as many or fewer with every gradient."""
    largest = {method: one["largest"]["40"] for method, one in FOUND[model].items()}
    assert largest["auto"] >= 0.9 * largest["none"]
    assert largest.get("opacus", 0) < 0.5 * largest["none"]
