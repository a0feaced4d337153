"""One comparison: the process that measures it, and the file that keeps its result."""

import dataclasses
import subprocess
import sys

import pytest
from support.results import TINY

from benchmarks.suite import child, worker
from benchmarks.suite.store import Store


@pytest.fixture(scope="module")
def timed_result():
    one = dataclasses.replace(TINY, steps=("auto", "noise"), budget=0.0, least=1)
    return {"comparison": one.as_dict(), **worker.measure_time(one)}


def test_a_timed_comparison_says_what_a_step_needs(timed_result):
    assert list(timed_result["steps"]) == ["plain", "auto", "noise"]
    for step in timed_result["steps"].values():
        assert {"seconds", "ratio", "low", "high", "turns", "trace", "compile"} < step.keys()
        parameters = 4 * (4 * 4 + 4 + 4 * 10 + 10)
        assert step["peak"] >= 2 * parameters + step["temporary"]


class FakeTraced:
    """Stands for a traced step; steps of one `program` are the same."""

    def __init__(self, program, peak):
        self.program, self.peak = program, peak

    def fingerprint(self):
        return self.program

    def compile(self):
        return worker.Compiled(lambda: 0, 0.0, 0.0, 0, self.peak)


def test_what_does_not_fit_into_memory_is_not_run(monkeypatch):
    one = dataclasses.replace(TINY, steps=("opacus",), budget=0.0, least=1)
    peaks = {"plain": 1, "opacus": 10**15}
    monkeypatch.setattr(worker, "trace_step", lambda task, name: FakeTraced(name, peaks[name]))
    steps = worker.measure_time(one)["steps"]
    assert steps["opacus"]["skipped"] == "needs 1000000.0 GB"
    assert "ratio" not in steps["opacus"]
    assert "ratio" in steps["plain"]


def test_steps_that_are_the_same_program_are_measured_once(monkeypatch):
    asked = []

    def trace_step(task, name):
        traced = FakeTraced({"auto": "bk"}.get(name, name), len(name))
        traced.compile = lambda: asked.append(name) or FakeTraced.compile(traced)
        return traced

    monkeypatch.setattr(worker, "trace_step", trace_step)
    one = dataclasses.replace(TINY, steps=("bk", "auto", "opacus"), budget=0.0, least=1)
    steps = worker.measure_time(one)["steps"]
    assert asked == ["plain", "bk", "opacus"]
    assert list(steps) == ["plain", "bk", "auto", "opacus"]
    assert steps["auto"] == {**steps["bk"], "same_as": "bk"}
    assert "same_as" not in steps["opacus"]


def test_methods_that_choose_alike_are_the_same_program():
    one = dataclasses.replace(TINY, steps=("bk", "bk_mix_opt", "opacus"), kind="memory")
    steps = worker.measure_memory(one)["steps"]
    assert {name: step.get("same_as") for name, step in steps.items()} == {
        "plain": None, "bk": None, "bk_mix_opt": "bk", "opacus": None,
    }  # fmt: skip


def test_the_largest_batch_of_a_step_comes_from_its_peak(monkeypatch):
    def trace_step(task, name):
        batch = task.batch[0].shape[0]
        factor = {"plain": 1, "opacus": 10, "auto": 10}[name]
        return FakeTraced((factor, batch), 100 + batch * factor)

    monkeypatch.setattr(worker, "trace_step", trace_step)
    one = dataclasses.replace(TINY, steps=("opacus", "auto"), limit=600.0)
    batches = {name: step["batch"] for name, step in worker.measure_largest(one)["steps"].items()}
    assert list(batches) == ["plain", "opacus", "auto"]
    assert 495 <= batches["plain"] <= 500
    assert 49 <= batches["opacus"] == batches["auto"] <= 50


def test_a_comparison_runs_in_a_process_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = child.run(dataclasses.replace(TINY, kind="memory"), tmp_path)
    assert list(result["steps"]) == ["plain", "auto"]


def test_programs_of_other_frameworks_find_what_they_share(tmp_path):
    environment = child.environment(dataclasses.replace(TINY, kind="torch"))
    shared = "import benchmarks.ops.resident, benchmarks.suite.comparisons, bk_jax.overhead.timing"
    subprocess.run([sys.executable, "-c", shared], env=environment, cwd=tmp_path, check=True)


def test_a_process_that_fails_is_a_result_with_its_last_words(monkeypatch, tmp_path):
    monkeypatch.setattr(
        child, "command", lambda *_: [sys.executable, "-c", "raise SystemExit('no')"]
    )
    assert child.run(TINY, tmp_path) == {"error": "exit code 1: no"}


def test_a_missing_environment_says_what_to_run(tmp_path):
    one = dataclasses.replace(TINY, kind="torch")
    assert child.run(one, tmp_path)["error"].endswith("is not there; run tools/peers.py")


def test_only_whole_results_of_the_same_comparison_are_done(tmp_path):
    store = Store(tmp_path)
    assert not store.done(TINY)
    store.save(TINY, {"error": "killed"})
    assert not store.done(TINY)
    store.save(TINY, {"steps": {}})
    assert store.done(TINY)
    assert not store.done(dataclasses.replace(TINY, sizes={"batch": 3}))
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.json"]
