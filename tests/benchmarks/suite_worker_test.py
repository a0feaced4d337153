"""One comparison: the process that measures it, and the file that keeps its result."""

import dataclasses
import json
import subprocess
import sys

import pytest
from support.results import TINY

from benchmarks.steps import step_models
from benchmarks.steps.compiled import trace_step
from benchmarks.suite import child, estimate, worker
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

    def compile(self, *, to_run=True):
        return worker.Compiled(lambda: 0, 0.0, 0.0, 0, self.peak)


def test_what_does_not_fit_into_memory_is_not_run(monkeypatch):
    one = dataclasses.replace(TINY, steps=("opacus",), budget=0.0, least=1)
    peaks = {"plain": 1, "opacus": 10**15}
    monkeypatch.setattr(worker, "trace_step", lambda task, name: FakeTraced(name, peaks[name]))
    steps = worker.measure_time(one)["steps"]
    assert steps["opacus"]["skipped"] == "needs 1000000.0 GB more"
    assert "ratio" not in steps["opacus"]
    assert "ratio" in steps["plain"]


def test_arguments_are_there_already(monkeypatch):
    """What is free has to hold temporaries and results alone."""
    monkeypatch.setattr(worker, "available", lambda: 1000)
    runs = {
        name: worker.Compiled(lambda: 0, 0.0, 0.0, 0, peak=5000, given=given)
        for name, given in {"plain": 5000, "large": 4000}.items()
    }
    steps = {name: {} for name in runs}
    one = dataclasses.replace(TINY, budget=0.0, least=1)
    assert list(worker.time_all(one, runs, steps)) == ["plain"]
    assert steps["large"] == {"skipped": "needs 0.0 GB more"}


def test_a_step_may_be_compiled_alone(monkeypatch):
    """`bk` is to be compiled alone, but is the program of `auto`, which is to run."""
    programs = {"bk": "auto"}
    monkeypatch.setattr(
        worker, "trace_step", lambda task, name: FakeTraced(programs.get(name, name), len(name))
    )
    names = {"steps": ("tf_privacy", "bk", "auto"), "compiled": ("tf_privacy", "bk")}
    one = dataclasses.replace(TINY, budget=0.0, least=1, **names)
    steps = worker.measure_time(one)["steps"]
    assert (steps["tf_privacy"]["skipped"], steps["tf_privacy"]["peak"]) == ("compiled only", 10)
    assert "ratio" not in steps["tf_privacy"]
    assert steps["auto"]["ratio"] == steps["bk"]["ratio"] > 0


def test_steps_that_are_the_same_program_are_measured_once(monkeypatch):
    asked = []

    def trace_step(task, name):
        traced = FakeTraced({"auto": "bk"}.get(name, name), len(name))
        traced.compile = lambda to_run: asked.append(name) or FakeTraced.compile(traced)
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
    one = dataclasses.replace(TINY, steps=("opacus", "auto"), limits=(600.0, 1100.0))
    batches = {name: step["batches"] for name, step in worker.measure_largest(one)["steps"].items()}
    assert list(batches) == ["plain", "opacus", "auto"]
    assert 495 <= batches["plain"][0] <= 500
    assert 990 <= batches["plain"][1] <= 1000
    assert 49 <= batches["opacus"][0] <= 50
    assert batches["opacus"] == batches["auto"]


def test_a_comparison_runs_in_a_process_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = child.run(dataclasses.replace(TINY, kind="memory"), tmp_path)
    assert list(result["steps"]) == ["plain", "auto"]


def test_programs_of_other_frameworks_find_what_they_share(tmp_path):
    environment = child.environment("torch")
    shared = "import benchmarks.ops.resident, benchmarks.suite.comparisons, bk_jax.overhead.timing"
    subprocess.run([sys.executable, "-c", shared], env=environment, cwd=tmp_path, check=True)


def test_a_process_that_fails_is_a_result_with_its_last_words(monkeypatch, tmp_path):
    monkeypatch.setattr(
        child, "command", lambda *_: [sys.executable, "-c", "raise SystemExit('no')"]
    )
    assert child.run(TINY, tmp_path) == {"error": "exit code 1: no"}


SLOW = """
import json, time
print(json.dumps({"steps": {"plain": {"peak": 1}}}), flush=True)
print('{"steps": {"pla', end="", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (SLOW, {"steps": {"plain": {"peak": 1}}}),
        ("import time; time.sleep(600)", {"error": "nothing was found in time"}),
    ],
    ids=["half a line", "nothing"],
)
def test_a_comparison_that_takes_too_long_is_stopped(program, found, monkeypatch, tmp_path):
    monkeypatch.setattr(child, "command", lambda *_: [sys.executable, "-c", program])
    one = dataclasses.replace(TINY, minutes=0.05)
    result = child.run(one, tmp_path)
    assert result == {**found, "stopped": "after 0.05 minutes"}
    store = Store(tmp_path)
    store.save(one, result)
    assert store.done(one)  # it would be stopped again
    assert not store.done(dataclasses.replace(one, minutes=60.0))


KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (SLOW.replace("import json, time", "import json, os").replace("time.sleep(600)", KILLED),
         {"steps": {"plain": {"peak": 1}}}),
        (KILLED, {"error": "memory ended before anything was found"}),
    ],
    ids=["half a line", "nothing"],
)  # fmt: skip
def test_what_the_system_kills_keeps_what_it_found(program, found, monkeypatch, tmp_path):
    monkeypatch.setattr(child, "command", lambda *_: [sys.executable, "-c", program])
    assert child.run(TINY, tmp_path) == {**found, "stopped": "by the system"}


def test_whoever_stops_a_worker_has_what_it_found(monkeypatch, capsys):
    monkeypatch.setattr(worker, "trace_step", lambda task, name: FakeTraced(name, len(name)))
    one = dataclasses.replace(TINY, steps=("bk", "auto"), budget=0.0, least=1)
    worker.measure_time(one)
    lines = [json.loads(line)["steps"] for line in capsys.readouterr().out.splitlines()]
    assert [list(line) for line in lines] == [["plain"], ["plain", "bk"], ["plain", "bk", "auto"]]
    assert lines[-1]["auto"]["skipped"] == "no time left"


def test_a_run_says_how_long_it_may_take(tmp_path):
    store = Store(tmp_path)
    known = dataclasses.replace(TINY, name="known")
    store.save(known, {"steps": {}, "took": 1150.0})
    todo = [dataclasses.replace(TINY, budget=20.0), known]
    text = estimate.describe(todo, store)
    assert text.startswith("2 comparisons, roughly 20 minutes (")
    assert "1 of them were timed before), at most 2.0 hours" in text


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


@pytest.mark.parametrize("name", ["plain", "opacus", "auto"])
def test_programs_that_do_not_run_are_compiled_faster_and_need_the_same_bytes(name):
    task = step_models.make("resnet18", batch=2, size=32, abstract=True)
    traced = trace_step(task, name)
    whole, quick = traced.compile(), traced.compile(to_run=False)
    assert (quick.temporary, quick.peak) == (whole.temporary, whole.peak)
    assert quick.compile is None
    assert "compile" not in worker.describe_compiled(quick)
