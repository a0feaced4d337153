"""The paper's models and a larger one, compiled for GPUs; `make test-gpu-programs` runs these too."""

import pytest

from bk_jax.hlo.collectives import find_collectives
from gpu_programs import cases, gates
from gpu_programs.cases import Case

pytestmark = pytest.mark.slow
TEXT, IMAGES = (("batch", 14), ("length", 100)), (("batch", 14),)
CASES = [
    Case("gpt2", "a100", "float32", TEXT),
    Case("gpt2_medium", "h100", "bfloat16", TEXT),
    Case("gpt2_large", "b200", "bfloat16", TEXT),
    Case("roberta_large", "a100", "float32", (("batch", 14), ("length", 256))),
    Case("vit_large", "h100", "bfloat16", IMAGES),
    Case("beit_large", "a100", "float32", IMAGES),
    Case("resnet50", "h100", "float32", IMAGES),
    Case("resnet18", "a100", "bfloat16", (("batch", 32),)),  # convolutions from patches, in parts
]
# Examples on each device are 14, which no axis of a model is.
WIDE = (("batch", 56), ("length", 100))
MESHES = [
    Case("gpt2", "a100", "float32", WIDE, "data", (4, 1)),
    Case("gpt2", "h100", "bfloat16", WIDE, "fsdp", (4, 1)),
    Case("gpt2", "b200", "bfloat16", WIDE, "tensor", (2, 2)),
]
# Over the plain step's; beside each limit what the cases above have, at most.
MORE_MEMORY = 1.12  # 1.082, of GPT2-large
COPIED = 1 << 16  # 0
WIDER = 2.02  # 2.013 for what FSDP sums: float32 in place of bfloat16


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_program_passes_every_gate(case):
    private, plain = (cases.compiled(case, step) for step in ("auto", "plain"))
    module = private.module()
    assert gates.missing_calls(module, cases.explanation(case)) == []
    assert gates.per_sample_gradients(module, cases.weights(case), case.examples) == []
    assert gates.more_memory(private.temporary, plain.temporary, MORE_MEMORY) == []
    assert gates.more_copies(module, plain.module(), COPIED) == []


@pytest.mark.parametrize("case", MESHES, ids=str)
def test_the_program_for_a_mesh_passes_every_gate(case):
    private, plain = (cases.compiled(case, step) for step in ("auto", "plain"))
    module, devices = private.module(), case.mesh[0]
    wider = 1 if case.dtype == "float32" else WIDER
    assert gates.missing_norms(module, cases.explanation(case)) == []
    assert find_collectives(module)
    assert gates.more_collectives(module, plain.module(), case.examples, wider=wider) == []
    assert gates.per_sample_gradients(module, cases.weights(case), case.examples // devices) == []
    assert gates.more_memory(private.temporary, plain.temporary, MORE_MEMORY) == []


# --- long examples ---


def long_example(tokens, **sizes):
    """Llama's layers are 8192 wide; here 6144, so that no axis of the model is taken for tokens."""
    sizes = {"batch": 1, "length": tokens, "hidden": 6144, **sizes}
    return Case("llama", "a100", "bfloat16", tuple(sizes.items()))


def test_long_examples_take_no_memory_of_tokens_squared():
    temporary = {}
    for tokens in (4096, 8192):
        private = cases.compiled(long_example(tokens), "auto")
        temporary[tokens] = private.temporary
        module, explanation = private.module(), cases.explanation(long_example(tokens))
        assert gates.missing_calls(module, explanation) == []
        assert gates.squares_of_tokens(module, tokens) == []
    assert gates.more_memory(temporary[8192], temporary[4096], 2.1) == []


def test_attention_to_all_tokens_at_once_is_found():
    module = cases.compiled(long_example(4096, block=4096), "plain").module()
    assert any("4096,4096" in line for line in gates.squares_of_tokens(module, 4096))
