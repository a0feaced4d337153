"""Limits of kernels, the way without an example's end, noise, and predictions for the sweep."""

import json

import pytest
from support.machine_code import GOOD, assemble

from benchmarks.gpu.cycles import __main__ as command
from benchmarks.gpu.cycles import compiled, counts, gates, limits, noise, predict, sass
from benchmarks.gpu.day import predicted

LOOP = "_ZN2bk4cuda12GramKernelINS_8BFloat16ENS0_6TilingILi{}ELi4EEELb{}EEEv"
EXTRA = "IADD3 R50, R50, 0x1, RZ\n"


def kernel(text, name="_Z12SomeKernelv", architecture="sm_80"):
    return sass.Function(name, architecture, assemble(text))


def slower(number):
    """GOOD with so many instructions more in its loop, which has 2 for a product."""
    return GOOD.replace("@P0 BRA", number * EXTRA + "@P0 BRA")


@pytest.mark.parametrize(
    ("tiles", "aligned", "name"),
    [(2, 1, "GramKernel"), (1, 1, "GramKernel, small tiles"),
     (2, 0, "GramKernel, rows not aligned"), (1, 0, "GramKernel, small tiles, rows not aligned")],
)  # fmt: skip
def test_a_kernel_is_named_with_its_tiles_and_rows(tiles, aligned, name):
    assert limits.name_of(kernel(GOOD, LOOP.format(tiles, aligned))) == name


def test_every_kernel_has_a_limit(monkeypatch):
    monkeypatch.setattr(limits, "MOST", {"GramKernel": {"sm_80": 3.6}})
    gram = LOOP.format(2, 1)
    assert limits.problems(kernel(slower(6), gram)) == {}  # 3.5
    assert limits.problems(kernel(slower(7), gram)) == {
        "instructions": "3.75 instructions for each product, at most 3.6"
    }
    assert limits.problems(kernel(slower(4))) == {}  # 3
    for one in (kernel(slower(5)), kernel(slower(5), gram, "sm_90a")):
        assert limits.problems(one)["instructions"].endswith("at most 3")


def test_only_what_is_named_is_let_through():
    text = GOOD.replace(
        "LDSM.16.M88.4 R12, [R4+0x200]", "LDSM.16.M88.4 R12, [R4+0x200]\nLD.E R40, [R2]"
    )
    one = kernel(text, "_Z13ProductKernelIfEv")
    assert limits.problems(one) == {"generic": "1 generic loads and stores"}  # 32 are let through
    assert limits.passes(one, "generic", "32 generic loads and stores")
    assert not limits.passes(one, "division", "8 divisions")
    assert not limits.passes(kernel(text), "generic", "32 generic loads and stores")
    assert all(known.reason for known in limits.PASSES.values())


def test_what_nothing_needs_any_more_is_told():
    idle = limits.unused([kernel(GOOD, "_Z12GhostKernelIfEv")])
    assert {
        "copies of GhostKernel",
        "generic of ProductKernel",
        "instructions of GramKernel",
    } <= set(idle)
    assert "instructions of GhostKernel" not in idle


def test_the_table_of_limits_leaves_five_percent():
    many = [
        kernel(slower(6)),
        kernel(GOOD, "_Z11FineKernelv"),
        kernel(slower(7), architecture="sm_90a"),
    ]
    table = limits.measured(many)
    assert table == {"SomeKernel": {"sm_80": 3.7, "sm_90a": 4.0}}  # 3.5 and 3.75
    assert '    "SomeKernel": {"sm_80": 3.7, "sm_90a": 4.0},' in limits.as_text(table)
    assert all(
        value > gates.MOST_INSTRUCTIONS for row in limits.MOST.values() for value in row.values()
    )


def test_the_end_of_an_example_is_not_on_the_usual_way():
    """It reads the factor of the next one: where operands are copied, no other load is of the loop."""
    rare = "@P5 BRA REST\nLDG.E R60, [R4.64]\n" + 3 * EXTRA + "REST: LDSM.16.M88.4 R12, [R4+0x200]"
    one = kernel(GOOD.replace("LDSM.16.M88.4 R12, [R4+0x200]", rare))
    (way,) = counts.main_loops(one)
    assert len(way) == 9  # of GOOD 8, and a jump
    (copied,) = counts.main_loops(kernel(one.code and GOOD.replace("LDSM.16.M88.4 R12, [R4+0x200]", rare)
                                         .replace("LDGSTS.E.BYPASS.128", "LDG.E.128")))  # fmt: skip
    assert len(copied) == 9 + 4


ROUND = "LOP3.LUT R8, R8, R9, RZ, 0x3c, !PT\nSHF.L.W.U32.HI R8, R8, 0x10, R8\n"
NOISE = f"""
UNIT: LDG.E R1, [R2.64]
@P1 BRA COPY
ROUNDS: {32 * ROUND}@P0 BRA ROUNDS
@P2 BRA FAST
CALL.REL.NOINC 0x5000
FAST: STG.E [R2.64], R8
BRA NEXT
COPY: MOV R1, R1
NEXT: @P3 BRA UNIT
EXIT
"""


def test_noise_runs_ten_double_rounds_and_no_subroutine():
    found = noise.read_kernel(kernel(NOISE), compiled.Shape("noise", (128, 16), 4), (64, 0))
    assert found.turn.issued == 2 + 10 * 65 + 1 + 2 + 1
    assert found.turn.pipes["alu"] == 640
    assert noise.values(found) == 2048
    assert found.outside == 3  # CALL, MOV, EXIT


def test_a_loop_of_two_double_rounds_runs_five_times():
    one = kernel(NOISE.replace(32 * ROUND, 64 * ROUND))
    assert len(noise.turn(one)) == 2 + 5 * 129 + 1 + 2 + 1


@pytest.mark.parametrize(("text", "message"), [("EXIT", "has no loop"), (GOOD, "double rounds")])
def test_a_kernel_without_the_rounds_is_an_error(text, message):
    with pytest.raises(ValueError, match=message):
        noise.turn(kernel(text))


def test_the_report_finds_what_was_predicted(tmp_path, monkeypatch, capsys):
    file = tmp_path / "new" / "predicted.json"
    monkeypatch.setattr(predict.write, "__defaults__", (file,))
    monkeypatch.setattr("sys.argv", ["cycles", "predict"])
    command.main()
    assert capsys.readouterr().out.strip() == str(file)
    rows = json.loads(file.read_text())["rows"]
    keys = [(r["device"], r["kernel"], r["type"], r["shape"]) for r in rows]
    assert len(keys) == len(set(keys))
    place = {"kernel": "clipped_gemm", "type": "bf16", "shape": "16x100x768x3072"}
    (known,) = (r for r in rows if r["device"] == "A100" and place.items() <= r.items())
    who, found = predicted.beside([place], file, "NVIDIA A100-SXM4-40GB")
    assert (who, found[0]["predicted"]) == (predicted.MODEL, known["microseconds"])
    assert found[0]["predicted"] > 0


def test_short_examples_and_names_that_are_no_shape():
    kernels = {r["kernel"] for r in predict.rows(("64x1x1000x1000",))}
    assert "clipped_gemm" not in kernels  # those take the loop of float32
    assert {"ghost_norm", "gaussian", "tied_cross"} <= kernels
    with pytest.raises(ValueError, match="a shape is BxTxdxp"):
        predict.shape_of("16x100x768")
