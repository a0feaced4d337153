"""The overview: no two marks of a row can hide each other, and labels say a size once."""

import itertools

from benchmarks.suite.overview import label_of, lanes


def test_lanes_are_apart_and_inside_their_row():
    heights = list(lanes([f"step{i}" for i in range(10)]).values())
    assert heights == sorted(heights, reverse=True)
    assert min(a - b for a, b in itertools.pairwise(heights)) > 0.08
    assert max(map(abs, heights)) <= 0.45
    assert lanes(["one"]) == {"one": 0.4}


def test_a_label_leaves_out_what_the_title_says():
    sizes = {"batch": 4, "length": 100, "depth": 1}
    result = {
        "comparison": {"title": "GPT2-small, 1 of 12 blocks", "model": "gpt2", "sizes": sizes}
    }
    assert label_of(result) == "GPT2-small\n1 of 12 blocks\nB=4, T=100"
