"""The benchmark of predictions, at the smallest size: what it prints, not how long it takes."""

from __future__ import annotations

import pytest

from benchmarks.steps import prediction_benchmark as benchmark
from benchmarks.steps import step_models

TINY = {"mlp": {"batch": 2, "width": 4, "depth": 1}}


def test_a_row_for_each_private_step():
    rows = list(benchmark.measure("mlp", TINY["mlp"], budget=0.01))
    assert [(row.model, row.step) for row in rows] == [("mlp", "auto"), ("mlp", "noise")]
    without, noise = rows
    assert without.predicted.batch_size == 2
    assert noise.predicted.private_seconds > without.predicted.private_seconds
    for row in rows:
        assert row.measured.seconds > 0
        assert row.error == row.predicted.predicted_ratio / row.measured.ratio - 1


def test_the_table(monkeypatch, capsys):
    monkeypatch.setattr(benchmark.machine, "describe", lambda: "a machine")
    benchmark.main(["--models", "mlp", "--budget", "0.01"], TINY)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["a machine", benchmark.HEADER]
    assert {line.count("|") for line in lines[1:]} == {8}
    assert [line.split(" | ")[1] for line in lines[3:]] == ["without noise", "with noise"]


def test_every_model_can_be_made():
    for model, sizes in benchmark.SIZES.items():
        assert step_models.make(model, abstract=True, **sizes).params


def test_another_model_is_refused(capsys):
    with pytest.raises(SystemExit):
        benchmark.parse(["--models", "lenet"])
    assert "invalid choice: 'lenet'" in capsys.readouterr().err
