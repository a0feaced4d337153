"""The predicted tables of memory: how the largest batch is found, and that the document has them."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu import memory_document, memory_peak, memory_table
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


def test_the_first_guess_keeps_to_the_ratio_of_the_paper():
    printed = PRINTED["gpt2"]
    assert memory_table.first_guess("gpt2", "none", {}) == round(1.8 * printed["none"].batch)
    ratio = printed["opacus"].batch / printed["none"].batch
    assert memory_table.first_guess("gpt2", "opacus", {"largest": {"40": 300}}) == round(
        300 * ratio
    )


def test_a_line_begins_at_what_is_left_without_examples():
    known = {0: 100, 10: 170, 20: 240}
    assert memory_table.line_near(known) == (100, 7)
    assert memory_table.line_near({0: 0, 1: 1, 2: 4}).slope == 9 / 5


@pytest.mark.parametrize("method", ["none", "auto"])
def test_where_80_gb_were_compiled_the_line_is_right_within_four_percent(method):
    one = FOUND["gpt2"][method]
    compiled = one["largest"]["80"]
    assert memory_table.estimate("gpt2", "80", one) == pytest.approx(compiled, rel=0.04)


def test_an_estimate_is_called_one():
    found = {"gpt2": {"none": {"largest": {"40": 286}, "by line": {"80": 587}}}}
    (row,) = memory_document.batches(found)[memory_document.HEADER :]
    assert row.endswith("| about 587 |")
    found["gpt2"]["none"]["largest"]["80"] = 589
    (row,) = memory_document.batches(found)[memory_document.HEADER :]
    assert row.endswith("| 589 |")


ASSIGNMENT = """BufferAssignment:
allocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {}:
 value: <1 first @0> (size=8,offset=0): f32[2]{0}
allocation 1: size 200, preallocated-temp:
 value: <2 both{} @0> (size=16,offset=96): (f32[3,4]{1,0}, f32[3,4]{1,0})
 value: <3 both{0} @0> (size=48,offset=0): f32[3,4]{1,0}
 value: <4 both{1} @0> (size=48,offset=48): f32[3,4]{1,0}
 value: <5 updated @0> (size=48,offset=0): f32[3,4]{1,0}
 value: <6 later @0> (size=80,offset=0): f32[20]{0}
"""
RANGES = """HloLiveRange (max 4):
  BufferLiveRange:
    first{}:0-4
    both{}:1-2
    both{0}:1-2
    both{1}:1-2
    updated{}:2-3
    later{}:4-4
"""


def test_what_is_alive_at_the_peak_is_counted_by_shape():
    """An array that is updated in place is one, and a table of pointers none."""
    arrays = memory_peak.planned_arrays(ASSIGNMENT, RANGES)
    assert len(arrays) == 5
    found = memory_peak.by_shape(memory_peak.fullest_moment(arrays))
    assert found == [("f32[3,4]", 2, 96), ("f32[2]", 1, 8)]


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
