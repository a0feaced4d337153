"""Steps of the day with a GPU: what they read from the output of tools and programs."""

import dataclasses
import json
import sys

import pytest

from benchmarks.gpu.day import (
    bits,
    check,
    command,
    device_tests,
    plots,
    predicted,
    prepare,
    probe,
    report,
    run,
    sanitizer,
    sections,
    sweep,
    tables,
)  # fmt: skip
from benchmarks.gpu.day.day import FULL, rehearsal
from bk_jax.planning.devices import find_device


@pytest.fixture
def day(tmp_path):
    return rehearsal(tmp_path / "day")


def program(day, name, text):
    """A script in place of a program that `prepare` builds."""
    path = day.log("x").parent / f"{name}.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    built = day.store.load("prepare").get("data", {}).get("programs", {})
    day.store.save("prepare", {"data": {"programs": {**built, name: str(path)}}})


# --- check ---

A100 = {
    "name": "NVIDIA A100-SXM4-40GB", "driver_version": "580.65.06", "compute_cap": "8.0",
    "memory.total": "40960", "memory.free": "40442", "clocks.sm": "1095", "clocks.max.sm": "1410",
    "clocks.mem": "1215", "power.limit": "400.00", "temperature.gpu": "31",
    "ecc.mode.current": "Enabled", "persistence_mode": None,
}  # fmt: skip


def test_what_nvidia_smi_prints():
    line = ", ".join(value or "[N/A]" for value in A100.values())
    assert check.parse_smi(f"{line}\n{line}\n") == [A100, A100]
    assert check.parse_smi("Failed to initialize NVML: Driver/library version mismatch") == []


@pytest.mark.parametrize(
    ("changes", "toolkit", "what", "is_fatal"),
    [
        ({}, (13, 0), None, False),
        ({"compute_cap": "7.5"}, (13, 0), "compute capability 7.5", True),
        ({"driver_version": "570.12"}, (13, 0), "driver 570.12 is older than R580", True),
        ({"driver_version": "570.12"}, (12, 8), None, False),
        ({}, (12, 4), "toolkit 12.4", True),
        ({}, None, "toolkit none", True),
        ({"memory.free": "20000"}, (13, 0), "20000 of 40960 MiB are free", False),
        ({"persistence_mode": "Disabled"}, (13, 0), "persistence mode is off", False),
    ],
)
def test_what_is_too_old_or_in_the_way(changes, toolkit, what, is_fatal):
    found = check.problems_of({**A100, **changes}, toolkit)
    if what is None:
        assert found == []
        return
    (problem,) = found
    assert what in problem.what
    assert problem.is_fatal == is_fatal
    assert problem.do


def test_no_gpu_is_a_problem():
    assert check.problems_of({}, (13, 0))[0].is_fatal


# --- tests on the device ---


def test_cases_are_counted_in_the_forms_of_both_runners():
    google = """<testsuites><testsuite>
        <testcase name="A" classname="S" status="run" result="completed"/>
        <testcase name="B" classname="S" status="run" result="completed"><failure/></testcase>
        <testcase name="C" classname="S" status="run" result="skipped"><skipped/></testcase>
        <testcase name="D" classname="S" status="notrun" result="suppressed"/>
        </testsuite></testsuites>"""
    pytests = '<testsuites><testsuite><testcase classname="m" name="t"/></testsuite></testsuites>'
    counts = device_tests.count_cases(google)
    assert counts == {"passed": 1, "failed": 1, "skipped": 1, "names": ["S.B"]}
    assert device_tests.count_cases(pytests)["passed"] == 1


def test_tests_that_all_skip_have_shown_nothing(day):
    xml = '<testsuites><testcase name="A" result="skipped"/></testsuites>'
    program(day, "kernel_tests", f"echo '{xml}' > {day.folder}/kernel_tests.xml")
    row = device_tests.kernel_tests(day)
    assert (row["ok"], row["passed"], row["skipped"]) == (False, 0, 1)


# --- compute-sanitizer ---

# As compute-sanitizer 2025 prints them: a finding, what belongs to it, a summary.
MEMCHECK = """\
========= COMPUTE-SANITIZER
[==========] Running 2 tests from 1 test suite.
========= Invalid __global__ read of size 4 bytes
=========     at void bk::cuda::SumKernel<float>(const T1 *, long)+0x2a0
=========     by thread (33,0,0) in block (0,0,0)
=========     Access at 0x7f1c4a000204 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x1b3c] in device_test
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure"
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at void Kernel()+0x90
=========     and Read access at void Kernel()+0xd0 [120 hazards]
=========
========= Warning: Race reported between Write access at void Kernel()+0x10
=========     and Write access at void Kernel()+0x20 [4 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""


def test_findings_of_memcheck():
    found = sanitizer.parse(MEMCHECK)
    assert found["errors"] == 2
    assert list(found["kinds"]) == [
        "Invalid __global__ read of size 4 bytes",
        'Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure"',
    ]


def test_hazards_of_racecheck():
    found = sanitizer.parse(RACECHECK)
    assert (found["errors"], found["warnings"]) == (1, 1)
    assert (
        next(iter(found["kinds"]))
        == "Error: Race reported between Write access at void Kernel()..."
    )


def test_one_error_and_none():
    assert sanitizer.parse("========= ERROR SUMMARY: 1 error")["errors"] == 1
    assert sanitizer.parse("========= ERROR SUMMARY: 0 errors")["errors"] == 0


def test_a_tool_without_a_summary_did_not_finish(day):
    found = sanitizer.parse("========= COMPUTE-SANITIZER\nSegmentation fault")
    assert found["errors"] is None
    ran = command.Ran(139, "", "Segmentation fault", 1.0)
    assert sanitizer.problem_of(found, ran) == "it did not finish (Segmentation fault)"


def test_tests_that_fail_under_a_tool_are_a_problem():
    ran = command.Ran(1, "", "", 1.0)
    assert "exit code 1" in sanitizer.problem_of(sanitizer.parse(MEMCHECK[:28] + "========= ERROR "
                                                                 "SUMMARY: 0 errors"), ran)  # fmt: skip


@pytest.mark.parametrize("report", [None, MEMCHECK, RACECHECK])
def test_the_stand_in_speaks_as_the_tool_does(report, day, monkeypatch, tmp_path):
    program(day, "kernel_tests", "echo ran with $1")
    if report is not None:
        (tmp_path / "report.txt").write_text(report)
        monkeypatch.setenv("BK_STAND_IN_REPORT", str(tmp_path / "report.txt"))
    outcome = sanitizer.run(day)
    assert outcome.ok == (report is None)
    assert [row["tool"] for row in outcome.data["rows"]] == list(sanitizer.TOOLS)
    assert "ran with --gtest_filter=" in day.log("sanitizer").read_text()


# --- the probe ---


def probed(holds):
    row = {
        "type": "bf16", "instruction": "HMMA.16816", "rounding": "truncation", "width": 24,
        "step": 8, "small": "kept", "worst": 30.0, "counted": 96, "holds": holds,
    }  # fmt: skip
    return json.dumps({"device": {"name": "x"}, "types": [row]})


def answers(day, usual, broken):
    for name, text in (("usual", usual), ("broken", broken)):
        (day.log(name).parent / name).write_text(text)
    logs = day.log("x").parent
    choice = 'case "$*" in *tensor_core_error*) f=broken;; *) f=usual;; esac'
    script = f'{choice}\ncp {logs}/$f "${{1#--out=}}"'
    program(day, "rounding_probe", script)


@pytest.mark.parametrize(
    ("usual", "broken", "ok", "line"),
    [
        ("yes", "no", True, "the assumption of the bounds holds"),
        ("no", "no", False, "the assumption is NOT SHOWN for bf16 (no)"),
        ("unclear", "no", False, "the assumption is NOT SHOWN for bf16 (unclear)"),
        ("yes", "yes", False, "the probe does not see a tensor core that errs too much"),
    ],
)
def test_the_probe_decides(usual, broken, ok, line, day):
    answers(day, probed(usual), probed(broken))
    outcome = probe.run(day)
    assert outcome.ok == ok
    assert line in outcome.line


def test_a_probe_that_fails_says_why(day):
    program(day, "rounding_probe", "echo no CUDA device >&2; exit 1")
    with pytest.raises(RuntimeError, match="rounding_probe: no CUDA device"):
        probe.run(day)


# --- the sweep ---


def benchmark(name, time, unit="us", **more):
    return {"name": f"{name}/manual_time", "real_time": time, "time_unit": unit, **more}


SWEEP = json.dumps({
    "context": {"cublasLt": "found", "device_name": "NVIDIA A100-SXM4-40GB"},
    "benchmarks": [
        benchmark("ghost_norm/ours/bf16/2x4x6x8", 30.0, flops=2e12, bytes=1e11),
        benchmark("ghost_norm/cublasLt/bf16/2x4x6x8", 0.02, "ms", flops=3e12, bytes=1e11),
        benchmark("ghost_norm/ours/f32/2x4x6x8", 40.0, flops=1e12, bytes=1e11),
        benchmark("ghost_norm/cublasLt-tf32/f32/2x4x6x8", 20000.0, "ns", flops=1e12, bytes=1e11),
        benchmark("weighted_sum/ours/f32/2x4x6x8", 5.0, flops=1e9, bytes=1e12),
        benchmark("direct_norm/cublasLt/f32/2x4x6x8", 0.0, error_occurred=True,
                  error_message="no such operation: no algorithm, or not enough memory"),
    ],
})  # fmt: skip


def test_ratios_of_a_sweep():
    parsed = sweep.parse(SWEEP)
    found = sweep.ratios(parsed["rows"])
    assert [(r["kernel"], r["type"], r["over_cublasLt"], r["over_tf32"]) for r in found] == [
        ("ghost_norm", "bf16", 1.5, None),
        ("ghost_norm", "f32", None, 2.0),
        ("weighted_sum", "f32", None, None),
    ]


@pytest.mark.parametrize(
    ("text", "ok", "line"),
    [
        (SWEEP, True, "cublasLt found"),
        (
            SWEEP.replace("no such operation", "launch failed"),
            False,
            "1 failed, first: direct_norm",
        ),
        (SWEEP.replace('"found"', '"libcublasLt.so.13 was not found"'), False, "was not found"),
    ],
    ids=["well", "a kernel fails", "no library"],
)
def test_a_sweep_is_well_if_everything_ran_beside_the_library(text, ok, line, day):
    small = dataclasses.replace(day, sizes=dataclasses.replace(day.sizes, shapes=("2x4x6x8",)))
    (small.log("x").parent / "sweep").write_text(text)
    copy = f'cp {small.folder}/logs/sweep "${{a#*=}}"'
    script = f'for a; do case "$a" in --benchmark_out=*) {copy};; esac; done'
    program(small, "kernels_benchmark", script)
    outcome = sweep.run(small)
    assert outcome.ok == ok
    assert line in outcome.line


def test_a_shape_that_does_not_run_leaves_the_others(day):
    two = dataclasses.replace(day, sizes=dataclasses.replace(day.sizes, shapes=("bad", "2x4x6x8")))
    (two.log("x").parent / "sweep").write_text(SWEEP)
    copy = f'cp {two.folder}/logs/sweep "${{a#*=}}"'
    script = 'for a; do case "$a" in --shapes=bad) echo out of memory >&2; exit 1;; '
    program(two, "kernels_benchmark", f"{script}--benchmark_out=*) {copy};; esac; done")
    outcome = sweep.run(two)
    assert not outcome.ok
    assert "first: bad: out of memory" in outcome.line
    assert len(outcome.data["ratios"]) == 3


def test_predictions_of_the_static_model_come_first(tmp_path):
    ratios = sweep.ratios(sweep.parse(SWEEP)["rows"])
    row = {"kernel": "ghost_norm", "type": "bf16", "shape": "2x4x6x8", "microseconds": 25.0}
    file = tmp_path / "predicted.json"
    file.write_text(json.dumps({"rows": [
        {**row, "device": "H100", "microseconds": 9.0}, {**row, "device": "A100"}, {"other": 1},
    ]}))  # fmt: skip
    who, found = predicted.beside(ratios, file, "NVIDIA A100-SXM4-40GB")
    assert who == "static model"
    assert [r["predicted"] for r in found] == [25.0, None, None]


def test_otherwise_a_roofline_is_predicted(tmp_path):
    """30 us at 2e12 flop/s and 1e11 bytes/s: 6e7 flops and 3e6 bytes, the latter in 1.93 us."""
    ratios = sweep.ratios(sweep.parse(SWEEP)["rows"])
    who, found = predicted.beside(ratios, tmp_path / "none.json", "NVIDIA A100-SXM4-40GB")
    assert who == "roofline"
    assert found[0]["predicted"] == pytest.approx(3e6 / find_device("A100").memory * 1e6)
    _, unknown = predicted.beside(ratios, None, "emulated device")
    assert {r["predicted"] for r in unknown} == {None}


# --- bits, tables, prepare ---


def test_steps_with_other_bits_are_found():
    same = {"name": "as it is", "error": "", "hashes": ["a", "a"]}
    other = {"name": "no command buffers", "error": "", "hashes": ["b", "b"]}
    failed = {"name": "again", "error": "out of memory", "hashes": []}
    assert bits.different_steps([same, same]) == []
    assert bits.different_steps([failed, same, other]) == [
        "step, again: out of memory", "step, no command buffers: other bits",
    ]  # fmt: skip


def test_plain_steps_and_ours_come_first(day):
    full = dataclasses.replace(day, sizes=FULL)
    methods = [job.method for job in tables.jobs(full)]
    half = 2 * len(FULL.models) * len(FULL.dtypes)
    assert set(methods[:half]) == {"none", "auto"}
    assert len({job.name() for job in tables.jobs(full)}) == len(methods)


def test_rows_stand_beside_the_paper():
    row = {"model": "gpt2", "dtype": "float32", "throughput": 50.0}
    plain, ours, none = tables.beside([
        {**row, "method": "none", "throughput": 60.0}, {**row, "method": "auto"},
        {**row, "method": "opacus", "throughput": None},
    ])  # fmt: skip
    assert plain["slower"] == 1.0
    assert ours["slower"] == 1.2
    assert (ours["paper_batch"], round(ours["paper_slower"], 2)) == (149, 1.24)
    assert none["slower"] is None


def test_a_worker_that_dies_leaves_its_last_line(day):
    lame = dataclasses.replace(day, python=sys.executable, platform="no-such-platform")
    (job, *_) = tables.jobs(lame)
    found = tables.measure(lame, job)
    assert "no-such-platform" in found["error"]
    assert found["batch"] is None


def test_programs_are_named_without_their_device(day, tmp_path):
    paths = [tmp_path / "bits_check_emulated", tmp_path / "emulated_test", tmp_path / "else.so"]
    assert prepare.named(day, paths) == {
        "bits_check": str(paths[0]), "kernel_tests": str(paths[1]),
    }  # fmt: skip


def test_a_program_that_is_not_built_says_what_to_type(day):
    with pytest.raises(FileNotFoundError, match=r"bits_check is not built: .* --again prepare"):
        day.program("bits_check")


# --- a whole report ---


def test_a_report_with_everything_in_it(day):
    """Every section and every picture, from made-up results."""
    found = json.loads(probed("no"))
    rows = sweep.parse(SWEEP)
    job = tables.jobs(day)[0]._asdict()
    table_row = {**job, "batch": 2, "throughput": 4.0, "peak_bytes": 9, "error": ""}
    data = {
        "probe": {"types": found["types"], "broken": found["types"]},
        "sweep": {**rows, "ratios": sweep.ratios(rows["rows"])},
        "tables": {"rows": tables.beside([table_row, {**table_row, "method": "auto"}])},
        "sanitizer": {"rows": [{"tool": "memcheck", "ok": False, "problem": "2 errors",
                                "seconds": 1.0, **sanitizer.parse(MEMCHECK)}]},
    }  # fmt: skip
    for name, one in data.items():
        stored = {"status": "passed", "line": "", "key": day.key(), "seconds": 1.0, "data": one}
        day.store.save(name, stored)
    text = report.write(day, run.STEPS, None).read_text()
    for picture in ("probe.png", "ratios.png", "predicted.png", "tables.png"):
        assert f"![{picture}]({picture})" in text
        assert (day.folder / picture).stat().st_size > 1000
    assert "1 x Invalid __global__ read of size 4 bytes" in text
    assert "| bf16 | HMMA.16816 | truncation | 24 | 8 | kept | 30 | 96 | no |" in text
    word = "REHEARSAL"
    assert f"| ghost_norm | bf16 | 2x4x6x8 | {' | '.join([word] * 5)} | - | - |" in text
    real = dataclasses.replace(day, is_rehearsal=False)
    text = report.write(real, run.STEPS, None).read_text()
    assert "| ghost_norm | bf16 | 2x4x6x8 | 30 | 2 | 100 | 20 | 1.5 | - | - | 1.93 |" in text
    assert word not in text
    assert text.count("From another kind of day") == len(data)


def test_every_step_has_a_section():
    assert set(sections.SECTIONS) == set(run.NAMES)


def test_methods_have_the_colors_of_the_benchmark_report():
    from benchmarks.suite.plots import STYLE

    assert STYLE["auto"][0] == plots.OURS
    assert {name: STYLE[name][0] for name in ("auto", "ghost_clip", "opacus")} == {
        name: plots.METHODS[name] for name in ("auto", "ghost_clip", "opacus")
    }
