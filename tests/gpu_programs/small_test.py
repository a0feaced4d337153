"""Small steps compiled for GPUs: our calls are in them, and nothing superfluous."""

import subprocess
import sys

import pytest

from bk_jax import hlo
from gpu_programs import broken, cases, gates
from gpu_programs.cases import Case

# No axis of a model is 6 long, as the batch is; the number of words is odd, as GPT2's.
TEXT = (("batch", 6), ("length", 128), ("depth", 2), ("words", 1257))
IMAGES = (("batch", 6), ("size", 64))
GPT2 = Case("gpt2", "a100", "float32", TEXT)
RESNET = Case("resnet18", "b200", "float32", IMAGES)
CASES = [GPT2, Case("gpt2", "h100", "bfloat16", TEXT), RESNET]
MORE_MEMORY = {"gpt2": 1.15, "resnet18": 1.10}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_call_of_the_plan_is_there(case):
    module = cases.program(case, "auto").module()
    assert gates.missing_calls(module, cases.explanation(case)) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_copied_for_our_calls(case):
    private, plain = (cases.program(case, step).module() for step in ("auto", "plain"))
    assert gates.more_copies(private, plain, 1 << 16) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_array_holds_the_gradient_of_every_example(case):
    shapes = cases.weights(case)
    assert len(shapes) > 5
    module = cases.program(case, "auto").module()
    assert gates.per_sample_gradients(module, shapes, case.examples) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_memory_is_that_of_the_plain_step(case):
    private, plain = (cases.program(case, step).temporary for step in ("auto", "plain"))
    assert gates.more_memory(private, plain, MORE_MEMORY[case.model]) == []


def test_all_calls_are_inside_command_buffers():
    thunks, calls = cases.thunks(GPT2)
    assert calls > 15  # layers of one shape share theirs
    assert gates.outside_command_buffers(thunks, calls) == []


def test_the_plan_is_for_the_gpu_of_the_mesh():
    assert cases.explanation(GPT2).rates.startswith("nominal for an A100-SXM4-80GB GPU, computed")
    assert cases.explanation(RESNET).rates.startswith("nominal for a B200 GPU, computed")


# --- what each gate is for: a step that it must not let through ---


def test_calls_that_run_as_plain_jax_are_missed():
    said = gates.missing_calls(broken.without_calls(GPT2).module(), cases.explanation(GPT2))
    assert any("blocks/0/qkv/w (dense, ghost) lacks bk_ghost_norm" in line for line in said)
    assert any("lacks bk_clipped_gemm" in line for line in said)


def test_a_copy_is_found():
    in_order, transposed = (broken.ghost_norm(axes, 6).module() for axes in ("bntd", "tnbd"))
    assert gates.more_copies(in_order, in_order, 0) == []
    (said,) = gates.more_copies(transposed, in_order, 1 << 16)
    assert "0 in the plain step" in said


def test_gradients_of_every_example_are_found():
    module = cases.program(GPT2, "opacus").module()
    said = gates.per_sample_gradients(module, cases.weights(GPT2), GPT2.examples)
    assert any("f32[6,768,3072]" in line for line in said)
    rules = {finding.rule for finding in hlo.check(module) if finding.level == "error"}
    assert "per-sample-gradient" in rules  # by cuBLAS, which bk-hlo knows


def test_their_memory_is_found():
    private, plain = (cases.program(GPT2, step).temporary for step in ("opacus", "plain"))
    (said,) = gates.more_memory(private, plain, MORE_MEMORY["gpt2"])
    assert "x of" in said


def test_calls_outside_of_command_buffers_are_found():
    thunks, calls = cases.thunks(GPT2, xla_gpu_enable_command_buffer="")
    assert gates.outside_command_buffers(thunks, calls) == [f"{calls} of {calls} calls are outside"]


# --- bk-hlo ---


def test_bk_hlo_reads_these_programs(tmp_path):
    file = tmp_path / "step.txt"
    file.write_text(cases.program(GPT2, "auto").compiled.as_text())
    command = [sys.executable, "-m", "bk_jax.hlo.cli", "summary", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "6 examples" in said
    assert "bk_ghost_norm" in said


@pytest.mark.parametrize("case", [GPT2, RESNET], ids=str)
def test_products_of_cublas_and_cudnn_are_counted(case):
    """Three times the flops of the forward pass, whoever computes them, less the gradient of images."""
    costs = hlo.summarize(cases.program(case, "plain").module()).costs
    found = sum(costs[kind].flops for kind in ("dot", "convolution") if kind in costs)
    assert found == pytest.approx(cases.explanation(case).non_private_flops, rel=0.06)
