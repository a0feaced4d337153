"""The paper's models and a larger one, compiled for GPUs; `make test-gpu-programs` runs these too."""

import pytest

from bk_jax.hlo.collectives import find_collectives
from gpu_programs import cases, gates
from gpu_programs.cases import Case

pytestmark = pytest.mark.slow
TEXT, IMAGES = (("batch", 14), ("length", 100)), (("batch", 14),)
LONG = (("batch", 1), ("length", 4096))
CASES = [
    Case("gpt2", "a100", "float32", TEXT),
    Case("gpt2_medium", "h100", "bfloat16", TEXT),
    Case("gpt2_large", "b200", "bfloat16", TEXT),
    Case("roberta_large", "a100", "float32", (("batch", 14), ("length", 256))),
    Case("vit_large", "h100", "bfloat16", IMAGES),
    Case("beit_large", "a100", "float32", IMAGES),
    Case("resnet50", "h100", "float32", IMAGES),
]
# Examples on each device are 14, which no axis of a model is.
WIDE = (("batch", 56), ("length", 100))
MESHES = [
    Case("gpt2", "a100", "float32", WIDE, "data", (4, 1)),
    Case("gpt2", "h100", "bfloat16", WIDE, "fsdp", (4, 1)),
    Case("gpt2", "b200", "bfloat16", WIDE, "tensor", (2, 2)),
]
MORE_MEMORY = 1.15
COPIED = 1 << 20


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_program_passes_every_gate(case):
    private, plain = (cases.compiled(case, step) for step in ("auto", "plain"))
    module = private.module()
    assert gates.missing_calls(module, cases.explanation(case)) == []
    assert gates.per_sample_gradients(module, cases.weights(case), case.examples) == []
    assert gates.more_memory(private.temporary, plain.temporary, MORE_MEMORY) == []
    assert gates.more_copies(module, plain.module(), COPIED) == []


@pytest.mark.parametrize("case", MESHES, ids=str)
def test_every_call_is_there_on_a_mesh(case):
    module = cases.compiled(case, "auto").module()
    assert gates.missing_calls(module, cases.explanation(case)) == []
    assert find_collectives(module)


def test_data_parallel_steps_send_what_the_plain_step_sends():
    case = MESHES[0]
    private, plain = (cases.compiled(case, step).module() for step in ("auto", "plain"))
    assert gates.more_collectives(private, plain, case.examples) == []


def test_long_examples_take_no_memory_of_tokens_squared():
    case = Case("llama", "a100", "bfloat16", LONG)
    module = cases.compiled(case, "auto").module()
    assert gates.missing_calls(module, cases.explanation(case)) == []
    squares = [i.name for i in module for s in i.shape.arrays if s.dims.count(4096) > 1]
    assert squares == []
