"""Small steps compiled for GPUs: our calls are in them, and nothing superfluous."""

import subprocess
import sys

import pytest

from bk_jax import hlo
from gpu_programs import gates, small

# Steps that are compiled: every GPU and both dtypes occur, not every combination.
STEPS = [
    ("gpt2", "a100", "float32"),
    ("gpt2", "h100", "bfloat16"),
    ("resnet18", "b200", "float32"),
]
MORE_MEMORY = {"gpt2": 1.15, "resnet18": 1.10}


def compiled(step, model, gpu, dtype):
    return small.program(model, step, gpu, dtype)


@pytest.mark.parametrize("which", STEPS, ids="-".join)
def test_every_call_of_the_plan_is_there(which):
    model, _, dtype = which
    module = compiled("auto", *which).module()
    assert gates.missing_calls(module, small.explanation(model, dtype)) == []


@pytest.mark.parametrize("which", STEPS, ids="-".join)
def test_nothing_is_copied_for_our_calls(which):
    private, plain = (compiled(step, *which).module() for step in ("auto", "plain"))
    assert gates.more_copies(private, plain, 1 << 16) == []


@pytest.mark.parametrize("which", STEPS, ids="-".join)
def test_no_array_holds_the_gradient_of_every_example(which):
    model, _, dtype = which
    shapes = small.weights(model, dtype)
    assert len(shapes) > 5
    module = compiled("auto", *which).module()
    assert gates.per_sample_gradients(module, shapes, small.EXAMPLES) == []


@pytest.mark.parametrize("which", STEPS, ids="-".join)
def test_memory_is_that_of_the_plain_step(which):
    private, plain = (compiled(step, *which).temporary for step in ("auto", "plain"))
    assert gates.more_memory(private, plain, MORE_MEMORY[which[0]]) == []


def test_all_calls_are_inside_command_buffers():
    thunks, calls = small.thunks("gpt2", "auto")
    assert calls > 20
    assert gates.outside_command_buffers(thunks, calls) == []


def test_noise_is_one_call_for_each_parameter():
    module = small.program("gpt2", "noise").module()
    parameters = len(small.described("gpt2")[0])
    assert [call.target for call in module.bk_calls].count("bk_gaussian") == parameters


# --- what each gate is for: a step that it must not let through ---


def test_calls_that_run_as_plain_jax_are_missed():
    said = gates.missing_calls(small.without_calls().module(), small.explanation("gpt2"))
    assert any("blocks/0/qkv/w (dense, ghost) lacks bk_ghost_norm" in line for line in said)
    assert any("lacks bk_clipped_gemm" in line for line in said)


def test_a_copy_is_found():
    in_order, transposed = (small.ghost_norm(order).module() for order in ("bntd", "tnbd"))
    assert gates.more_copies(in_order, in_order, 0) == []
    (said,) = gates.more_copies(transposed, in_order, 1 << 16)
    assert "0 in the plain step" in said


def test_gradients_of_every_example_are_found():
    module = small.program("gpt2", "opacus").module()
    said = gates.per_sample_gradients(module, small.weights("gpt2"), small.EXAMPLES)
    assert any("f32[6,768,3072]" in line for line in said)
    rules = {finding.rule for finding in hlo.check(module) if finding.level == "error"}
    assert "per-sample-gradient" in rules  # by cuBLAS, which bk-hlo knows


def test_their_memory_is_found():
    private, plain = (small.program("gpt2", step).temporary for step in ("opacus", "plain"))
    (said,) = gates.more_memory(private, plain, MORE_MEMORY["gpt2"])
    assert "x of" in said


def test_calls_outside_of_command_buffers_are_found():
    thunks, calls = small.thunks("gpt2", "auto", xla_gpu_enable_command_buffer="")
    assert gates.outside_command_buffers(thunks, calls) == [f"{calls} of {calls} calls are outside"]


# --- bk-hlo ---


def test_bk_hlo_reads_these_programs(tmp_path):
    file = tmp_path / "step.txt"
    file.write_text(small.program("gpt2", "auto").compiled.as_text())
    command = [sys.executable, "-m", "bk_jax.hlo.cli", "summary", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "6 examples" in said
    assert "bk_ghost_norm" in said


def test_products_of_cublas_and_cudnn_are_counted():
    """A step takes three times the flops of its forward pass, whoever computes them."""
    for model in ("gpt2", "resnet18"):
        gpu = {"gpt2": "a100", "resnet18": "b200"}[model]
        costs = hlo.summarize(small.program(model, "plain", gpu).module()).costs
        found = sum(costs[kind].flops for kind in ("dot", "convolution") if kind in costs)
        assert found == pytest.approx(small.explanation(model).non_private_flops, rel=0.02)
