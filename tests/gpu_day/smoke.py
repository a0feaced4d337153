"""Steps of the day with a GPU with the programs of a rehearsal: emulated kernels, small sizes.

Bazel runs it (`bazel test --config=cuda //tests/gpu_day:smoke_test`), because Bazel builds the programs.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.day import bits, probe, sanitizer, sweep
from benchmarks.gpu.day.day import Day, rehearsal

PROGRAMS = ("bits_check", "kernels_benchmark", "rounding_probe")
TYPES = ("bf16", "f16", "tf32")


@pytest.fixture
def day(tmp_path: Path) -> Day:
    """With programs as if `prepare` had built them, and one small shape."""
    root = Path(os.environ["TEST_SRCDIR"], "bk_jax")
    made = rehearsal(tmp_path)
    built = {name: str(root / "benchmarks/gpu" / f"{name}_emulated") for name in PROGRAMS}
    built["kernel_tests"] = built["rounding_probe"]
    made.store.save("prepare", {"data": {"programs": built}})
    small = dataclasses.replace(
        made.sizes, shapes=("2x33x32x40",), bits_shapes=("2x5x32x33",), types=("bf16",), probes=1
    )
    return dataclasses.replace(made, sizes=small, cublas=str(root / "tests/cublas_stand_in"))


def test_the_probe_knows_the_emulated_tensor_core_and_a_broken_one(day: Day) -> None:
    outcome = probe.run(day)
    assert outcome.ok, outcome.line
    for row in outcome.data["types"]:
        assert (row["rounding"], row["width"], row["step"]) == ("truncation", 24, 4)
        assert row["small"] in ("flushed to zero", "")
        assert 0.5 * row["counted"] < row["worst"] <= row["counted"]
    assert [row["holds"] for row in outcome.data["broken"]] == ["no"] * 3
    assert [row["type"] for row in outcome.data["types"]] == list(TYPES)


def test_an_adder_that_errs_as_much_as_is_assumed_is_not_called_safe(day: Day) -> None:
    """Errors are within what is counted, but it is none that the probe knows."""
    for direction in ("1", "-1"):
        found = probe.probe(day, "probe", f"--tensor_core_error={direction}")
        assert [row["holds"] for row in found["types"]] == ["unclear"] * 3
        assert all(0.9 < row["worst"] / row["counted"] <= 1 for row in found["types"])


def test_every_kernel_has_the_same_bits_in_every_case(day: Day) -> None:
    found = bits.check_kernels(day)
    assert found["cublasLt"] == ""
    assert {row["equal"] for row in found["rows"]} == {5}
    assert not [row for row in found["rows"] if row["problem"] or row["different"]]
    assert len({row["kernel"] for row in found["rows"] if row["maker"] == "ours"}) == 9


def test_the_sweep_has_a_product_beside_every_kernel_that_has_one(day: Day) -> None:
    outcome = sweep.run(day)
    assert outcome.ok, outcome.line
    assert outcome.data["context"]["emulated"] == "yes"
    beside = {row["kernel"] for row in outcome.data["ratios"] if row["over_cublasLt"]}
    assert beside == {
        "ghost_norm", "direct_norm", "clipped_gemm", "per_sample_grad", "tied_cross", "conv_norm",
        "conv_sum",
    }  # fmt: skip
    alone = {row["kernel"] for row in outcome.data["ratios"]} - beside
    assert alone == {"weighted_sum", "embedding_norm", "clipped_scatter", "gaussian"}


def test_float32_has_noise_of_every_kind(day: Day) -> None:
    sizes = dataclasses.replace(
        day.sizes, shapes=("2x3x8x9",), bits_shapes=("2x3x8x9",), types=("f32",)
    )
    day = dataclasses.replace(day, sizes=sizes)
    noises = {"gaussian", "banded_gaussian", "gaussians"}
    equal = {row["kernel"]: row["equal"] for row in bits.check_kernels(day)["rows"]}
    assert {equal[name] for name in noises} == {5}
    outcome = sweep.run(day)
    assert outcome.ok, outcome.line
    assert noises < {row["kernel"] for row in outcome.data["ratios"]}


def test_a_program_that_fails_under_the_sanitizer_is_a_problem(day: Day) -> None:
    """The probe does not know GoogleTest's option."""
    outcome = sanitizer.run(day)
    assert not outcome.ok
    assert "memcheck: the tests failed under it, exit code 1" in outcome.line


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider", "--import-mode=importlib"]))
