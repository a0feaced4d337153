"""Steps of the day with a GPU that measure: roundings, times, bits and the tables of the paper."""

import dataclasses
import json
import sys

import pytest
from support.gpu_day import SWEEP, probed, program

from benchmarks.gpu.day import bits, predicted, probe, sweep, tables
from benchmarks.gpu.day.day import FULL, rehearsal
from bk_jax.planning.devices import find_device


@pytest.fixture
def day(tmp_path):
    return rehearsal(tmp_path / "day")


# --- the probe ---


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


# --- bits, tables ---


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
