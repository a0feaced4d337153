"""The day with a GPU: steps that fail, a day that was stopped, and the report of what there is."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from benchmarks.gpu.day import command, report, run, runner
from benchmarks.gpu.day.day import FULL, QUICK, REHEARSAL, ROOT, TINY, on_gpu, rehearsal
from benchmarks.gpu.day.runner import Outcome, Step


@pytest.fixture
def day(tmp_path):
    return rehearsal(tmp_path / "day")


def step(name, ok=True, seen=None, **data):
    def body(day):
        if seen is not None:
            seen.append(name)
        return Outcome(ok, f"{name} ran", data)

    return Step(name, name.title(), body)


def shown(lines):
    return lambda step, result: lines.append((step.name, result["status"], result["kept"]))


def test_a_step_that_fails_or_raises_does_not_stop_the_rest(day):
    def raises(day):
        raise ZeroDivisionError("nothing is left\nof it")

    lines = []
    steps = [step("one", ok=False), Step("two", "Two", raises), step("three", size=3)]
    assert not runner.run_all(day, steps, shown(lines))
    assert lines == [("one", "failed", False), ("two", "error", False), ("three", "passed", False)]
    assert day.store.load("two")["line"] == "ZeroDivisionError: nothing is left"
    assert "ZeroDivisionError" in day.log("two").read_text()
    assert day.store.load("three")["data"] == {"size": 3}


def test_what_has_passed_is_not_repeated_and_what_failed_is(day):
    seen, lines = [], []
    runner.run_all(day, [step("one", seen=seen), step("two", ok=False, seen=seen)], shown([]))
    steps = [step("one", seen=seen), step("two", seen=seen)]
    assert runner.run_all(day, steps, shown(lines))
    assert seen == ["one", "two", "two"]
    assert lines == [("one", "passed", True), ("two", "passed", False)]


def test_results_of_another_kind_of_day_are_not_taken_over(day):
    seen = []
    runner.run_all(day, [step("one", seen=seen)], shown([]))
    real = dataclasses.replace(day, is_rehearsal=False)
    runner.run_all(real, [step("one", seen=seen)], shown([]))
    runner.run_all(dataclasses.replace(real, sizes=QUICK), [step("one", seen=seen)], shown([]))
    assert seen == ["one"] * 3


def test_parts_are_computed_once_until_their_step_is_forgotten(day):
    calls = []

    def compute():
        calls.append(1)
        return {"n": len(calls)}

    assert day.part("sweep-a", compute) == day.part("sweep-a", compute) == {"n": 1}
    day.store.forget("sweep")
    assert day.part("sweep-a", compute) == {"n": 2}


@pytest.mark.parametrize("bad", [{"error": "no memory"}, {"ok": False}])
def test_parts_that_went_wrong_are_tried_again(bad, day):
    assert day.part("sweep-a", lambda: bad) == bad
    assert day.part("sweep-a", lambda: {"n": 1}) == {"n": 1}


def test_a_day_that_was_killed_goes_on_where_it_was(tmp_path):
    """Within a step: the part that was done is kept, the one that was running is not."""
    code = f"""
        import os, signal, sys
        from pathlib import Path
        from benchmarks.gpu.day import runner
        from benchmarks.gpu.day.day import rehearsal
        day = rehearsal(Path({str(tmp_path)!r}))
        def work(day):
            first = day.part("long-1", lambda: {{"by": os.getpid()}})
            if len(sys.argv) > 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return runner.Outcome(True, str(first["by"]), first)
        quick = runner.Step("quick", "Quick", lambda day: runner.Outcome(True, str(os.getpid()), {{}}))
        steps = [quick, runner.Step("long", "Long", work)]
        runner.run_all(day, steps, lambda step, result: print(step.name, result["line"]))
    """
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'python'}"}
    line = [sys.executable, "-c", textwrap.dedent(code)]
    ran = [
        subprocess.run([*line, *more], env=environment, capture_output=True, text=True, check=False)
        for more in (["kill"], [])
    ]
    assert ran[0].returncode == -signal.SIGKILL
    assert ran[1].returncode == 0, ran[1].stderr
    killed = json.loads((tmp_path / "quick.json").read_text())["line"]
    assert ran[1].stdout.split() == ["quick", killed, "long", killed]


def test_half_a_file_counts_as_none(day):
    day.store.save("one", {"status": "passed"})
    day.store.path("one").write_text('{"status": "pas')
    assert day.store.load("one") == {}


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (["no-such-program"], 127, "no-such-program was not found"),
        ([sys.executable, "-c", "import time; time.sleep(9)"], 124, "took more than 0 s"),
        ([sys.executable, "-c", "print('out'); raise SystemExit('bad')"], 1, "bad"),
        ([sys.executable, "-c", "raise SystemExit(3)"], 3, "exit code 3, nothing printed"),
    ],
)
def test_commands_fail_with_a_code_and_a_line(line, code, said, tmp_path):
    ran = command.run(line, tmp_path / "log.txt", timeout=0.4 if code == 124 else 60.0)
    assert ran.code == code
    assert said in ran.last_line()
    assert f"exit code {code}" in (tmp_path / "log.txt").read_text()


# --- the command line ---


def test_without_a_gpu_one_line_says_what_is_missing(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run.main(["--folder", str(tmp_path / "day")]) == 1
    assert capsys.readouterr().out == (
        "gpu-day: no GPU: nvidia-smi was not found; rehearse it without one: "
        "make gpu-day REHEARSE=1\n"
    )


def test_a_driver_without_a_device_is_told_apart(monkeypatch, capsys, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert run.main(["--folder", str(tmp_path / "day")]) == 1
    assert "no GPU: nvidia-smi says 'No devices were found'" in capsys.readouterr().out


def test_a_gpu_without_a_toolkit_is_told_apart(monkeypatch, capsys, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA A100 (UUID: GPU-0)'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setenv("BK_JAX_CUDA_PATH", str(tmp_path))
    assert run.main(["--folder", str(tmp_path / "day")]) == 1
    assert "no CUDA toolkit (nvcc on PATH" in capsys.readouterr().out


def test_chosen_steps_run_and_the_report_names_the_others(monkeypatch, capsys, tmp_path):
    seen = []
    monkeypatch.setattr(run, "STEPS", tuple(step(name, seen=seen) for name in run.NAMES))
    folder = str(tmp_path)
    assert run.main(["--rehearse", "--folder", folder, "--only", "probe", "sweep"]) == 0
    assert seen == ["probe", "sweep"]
    assert "no number here is a measurement" in capsys.readouterr().out
    text = (tmp_path / "REPORT.md").read_text()
    assert text.count("Not run.") == len(run.NAMES) - 2
    assert run.main(["--rehearse", "--folder", folder, "--only", "probe", "--again", "probe"]) == 0
    assert seen == ["probe", "sweep", "probe"]


def test_a_failed_step_makes_the_exit_code(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "STEPS", (step("check", ok=False), step("probe")))
    assert run.main(["--rehearse", "--folder", str(tmp_path)]) == 2
    text = (tmp_path / "REPORT.md").read_text()
    assert "| Check | failed |" in text
    assert "**failed**: check ran. `logs/check.txt` has more." in text


# --- kinds of days ---


def test_a_rehearsal_differs_from_a_day_by_its_data_alone(tmp_path):
    real, rehearsed = on_gpu(tmp_path, FULL), rehearsal(tmp_path)
    assert real.kernel_tests.endswith(":device_test")
    assert rehearsed.kernel_tests.endswith(":emulated_test")
    assert real.environment()["JAX_PLATFORMS"] == "cuda"
    assert real.cache == "" != rehearsed.cache
    assert set(TINY.types) == set(FULL.types)


# --- the report ---


def test_a_report_of_nothing_says_so(day):
    day.folder.mkdir()
    text = report.write(day, run.STEPS, None).read_text()
    assert f"**{REHEARSAL}.**" in text
    assert text.count("| not run |") == len(run.STEPS)
    assert "![" not in text


def test_a_real_day_has_no_banner(tmp_path):
    text = report.write(on_gpu(tmp_path, FULL), run.STEPS, None).read_text()
    assert "rehearsal" not in text
