"""The overview: no two marks of a row can hide each other, and labels say a size once."""

import itertools

from benchmarks.suite import overview
from benchmarks.suite.overview import label_of, lanes, rows_of


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
    images = {"title": "ResNet18, images of 64", "sizes": {"batch": 8, "size": 64}}
    assert label_of({"comparison": images}) == "ResNet18\nimages of 64\nB=8"


def result(name, **sizes):
    comparison = {"name": name, "kind": "time", "figure": "", "title": name, "model": name}
    steps = {step: {"ratio": 1.0, "peak": 1.0} for step in ("plain", "auto", "noise")}
    return {"comparison": {**comparison, "sizes": {"batch": 4, **sizes}}, "steps": steps}


def test_many_rows_are_those_of_whole_models():
    cut = [result(f"cut{i}", depth=2) for i in range(overview.MOST)]
    whole = [result("whole"), result("other")]
    assert rows_of([*cut[:6], *whole]) == [*cut[:6], *whole]
    assert rows_of([*cut, *whole]) == whole
    assert rows_of([*cut, result("deep", depth=1)]) == [*cut, result("deep", depth=1)]


def test_the_legend_says_that_noise_is_auto_with_noise(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(overview.plt.Figure, "savefig", lambda self, *a, **k: said.append(self))
    overview.draw([result("model")], tmp_path / "a.png")
    (legend,) = said[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["auto", "auto, with noise"]
