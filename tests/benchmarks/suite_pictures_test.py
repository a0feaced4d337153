"""Figures of the report: titles that say what is drawn, and no mark that another hides."""

import itertools

import pytest
from support.results import PLAIN, made_up

from benchmarks.suite import document, plots
from benchmarks.suite.readings import heading, title_of


def figure_of(title, x, **sizes):
    one = made_up(figure="f", plain=PLAIN, auto=PLAIN)
    one["comparison"] |= {"title": title, "x": x, "sizes": sizes}
    return one


def drawn(rows, monkeypatch, tmp_path):
    """The axes of each picture."""
    found = []
    monkeypatch.setattr(plots.plt.Figure, "savefig", lambda self, *a, **k: found.append(self))
    plots.draw("f", rows, tmp_path)
    return [figure.axes[0] for figure in found]


@pytest.mark.parametrize(
    ("title", "x", "wanted"),
    [
        ("GPT2, one block: throughput against T", "length", "GPT2, one block: peak memory against T"),
        ("MLP of width 5: depth", "depth", "MLP of width 5: peak memory against depth"),
        ("VGG: 3 x 3: memory", "size", "VGG: 3 x 3: peak memory against size of images"),
        ("MLP: width, scaled by 2", "width", "MLP, scaled by 2: peak memory against width"),
        ("MLP", "batch", "MLP: peak memory against batch"),
    ],
)  # fmt: skip
def test_a_picture_of_memory_says_so(title, x, wanted):
    assert heading(figure_of(title, x, **{x: 2}), "peak memory") == wanted


def test_each_picture_and_the_section_have_titles_of_their_own(monkeypatch, tmp_path):
    rows = [figure_of("MLP: throughput against batch", "batch", batch=b) for b in (1, 2)]
    titles = [axes.get_title() for axes in drawn(rows, monkeypatch, tmp_path)]
    assert titles == ["MLP: throughput against batch", "MLP: peak memory against batch"]
    assert "### MLP: throughput and peak memory against batch\n" in document.compose(rows)


@pytest.mark.parametrize(
    ("title", "sizes", "wanted"),
    [
        ("GPT2, 1 of 12 blocks", {"batch": 1, "depth": 1}, "GPT2, 1 of 12 blocks, B=1"),
        ("GPT2, one block, 9 words", {"depth": 1, "words": 9}, "GPT2, one block, 9 words"),
        ("GPT2, 2 of 12 blocks", {"depth": 12}, "GPT2, 2 of 12 blocks, depth=12"),
        ("ResNet, images of 64", {"batch": 8, "size": 64}, "ResNet, images of 64, B=8"),
        ("ViT, 224", {"size": 224}, "ViT, 224"),
        ("ViT", {"size": 224}, "ViT, image=224"),
        ("GPT2, T = 100", {"length": 100}, "GPT2, T = 100"),
        ("GPT2, T = 1000", {"length": 100}, "GPT2, T = 1000, T=100"),
        ("MLP of 10 layers", {"depth": 10}, "MLP of 10 layers"),
        ("MLP, 10 layers of 1000", {"depth": 10, "width": 1000}, "MLP, 10 layers of 1000"),
    ],
)
def test_a_size_is_said_once(title, sizes, wanted):
    one = made_up(plain=PLAIN)
    one["comparison"] |= {"title": title, "sizes": sizes}
    assert title_of(one) == wanted


def test_what_a_figure_varies_is_always_said():
    one = figure_of("MLP of 3 layers: depth", "depth", width=4, depth=3)
    assert title_of(one) == "MLP of 3 layers, width=4, depth=3"


def test_equal_steps_of_a_figure_are_all_seen(monkeypatch, tmp_path):
    steps = {name: (1.0, 1.0, 1.0, 100 + number) for number, name in enumerate(plots.STYLE)}
    rows = [made_up(str(b), "f", **steps) for b in (1, 2)]
    for b, row in enumerate(rows, 1):
        row["comparison"]["sizes"]["batch"] = b
    memory = drawn(rows, monkeypatch, tmp_path)[1]
    marks = [line for line in memory.get_lines() if line.get_marker() != "None"]
    assert len(marks) == len(plots.STYLE) - 1
    first = sorted(line.get_xdata()[0] for line in marks)
    assert min(b - a for a, b in itertools.pairwise(first)) > 0.07
    assert -0.5 < first[0] < first[-1] < 0.5
    (levels,) = memory.collections
    assert levels.get_label() == "not private"
    assert [segment[0][1] for segment in levels.get_segments()] == [1e-4, 1e-4]


def test_two_steps_never_look_alike():
    looks = [
        (color, marker, plots.inside(name)) for name, (color, _, marker) in plots.STYLE.items()
    ]
    assert len(set(looks)) == len(looks)
    assert plots.inside("mix_ghost_clip") == plots.inside("noise") == "white"
