"""Messages that are no text in the Python source: of custom calls in C++, findings of `bk-hlo lint`."""

from __future__ import annotations

from typing import NamedTuple

from bk_jax.hlo.lint import DESCRIPTIONS


class Other(NamedTuple):
    """A message, or a kind of messages, with cause and cure in Markdown."""

    kind: str
    text: str
    cause: str
    cure: str


_OWN_CALLS = (
    "In a program of bk_jax this should not happen: shapes are checked in Python before. Calling "
    "`jax.ffi.ffi_call` yourself? Use `bk_jax.ops`, which has the same operations. Running an "
    "exported "
    "program, or another version's? Export it again with the version that runs it."
)
_INVALID = "INVALID_ARGUMENT"
# What the C++ code expects (`<call>: <name>: expected ...`), and why it is not so.
EXPECTED = {
    "rank 2": "The number of axes is another. `rank 2 or 4`, `rank 3, 4 or 5` are other forms of this.",
    "f32[8,3]": "Shape or type is another than what the first array of the call implies.",
    "an axis of examples": "A number stands where an array with one row per example should.",
    "the same rows for 8 examples": "The rows cannot be dealt evenly to the examples of the batch.",
    "the same images for 8 examples": "The images cannot be dealt evenly to the examples of the batch.",
    "the shape of the first layer, f32[8,3]": "Layers of one call differ in their shapes.",
    "two operands for each layer": "A call of several layers has an odd number of arrays.",
    "1 to 32 layers": "More layers in one call than its kernels have room for.",
    "fewer than 2^32 elements": "More ids in one call than can be numbered.",
    "an attribute of three 64-bit integers": "A convolution without its window, or with part of it.",
    "integers from 0 to 2^31": "A window of a convolution that is negative or too large.",
    "a positive divisor of 6 and 4": "Groups of a convolution that do not divide its channels.",
    "an integer attribute": "The attribute is missing, or of another type.",
    "an attribute of int64 numbers": "The attribute is missing, or of another type.",
    "an attribute of int64 sizes": "`whole` is missing, or of another type.",
    "a string attribute": "The attribute is missing, or of another type.",
    "0 <= value < 2^32": "The number of a noise stream that does not fit into 32 bits.",
    "2 sizes": "`whole` has another number of axes than the array that noise is added to.",
    "a block of size (2, 3) within whole=(4, 3)": "A device's part lies outside of the whole array.",
    "less than 2^63 elements": "The whole array is too large to number its values.",
    "abadi, automatic, normalize or indicator": "A clipping function by another name.",
    'form "direct" or "pixel_gram"': "A way to make convolution gradients by another name.",
    "at most 16 dimensions on a GPU": "Noise for an array of more axes than the kernel counts.",
    "one for each array and result": "Streams, arrays and results of a noise call differ in number.",
    "sgd, momentum, nesterov, adam or adamw": "An optimizer by another name.",
    "number of results": "A call was given another number of arrays than it needs.",
    "u8[n] with n >= 1024": "The scratch memory of a call on a GPU is too small for its shapes.",
}
NATIVE = (
    *(Other(_INVALID, f"<call>: <name>: expected {text}, got ...", cause, _OWN_CALLS)
      for text, cause in EXPECTED.items()),
    Other(
        "INTERNAL", "<call>: CUDA error 2 (out of memory) at FILE:LINE",
        "The CUDA runtime refused; the text in brackets is NVIDIA's.",
        "Out of memory: pass `microbatch_size`, or a lower `XLA_PYTHON_CLIENT_MEM_FRACTION`. No "
        "kernel image:"
        "`bk_jax.diagnose()` says which devices the module was compiled for. Else report it, with "
        "the line.",
    ),
    Other(
        "INTERNAL", "<call>: cuBLAS error 7 (...) at FILE:LINE", "cublasLt refused a product.",
        "Report it, with the line and the shapes.",
    ),
    Other(
        "INTERNAL", "<call>: std::bad_alloc", "There was no memory for the scratch arrays of a call.",
        "Pass `microbatch_size`, or take a smaller batch.",
    ),
    Other(
        "INTERNAL", "<call>: <name> has elements of other type", "A mistake of ours in a custom call.",
        "Report it: [security](security.md) says how if privacy may be touched.",
    ),
    Other(
        "diagnose", "bk_jax._cpu could not be imported (...)",
        "The native module was not built, or for another Python.",
        "`make setup` in a checkout, or install again; without it, pure JAX gives the same "
        "results, slower.",
    ),
    Other(
        "diagnose", "bk_jax._cpu lacks ...", "The native module is older than the Python code.",
        "Build it again: `make setup`, or install again.",
    ),
    Other(
        "diagnose", "XLA refused bk_jax._cpu, built for FFI ...",
        "The native module was compiled against another jaxlib than the one that runs.",
        "Build it again with the jaxlib that you have, or install a version that fits.",
    ),
    Other(
        "diagnose", "..._cuda finds no device that it can use (...)",
        "There is no CUDA device, or its driver is too old.",
        "Nothing, on a machine without one. Else look whether `nvidia-smi` sees it.",
    ),
)  # fmt: skip

LINT_CURES = {
    "per-sample-gradient": (
        "Ask `explain` why the layer takes `store`; ask for `ghost` with `routes=`, or a smaller "
        "batch. As a"
        "note it is what `auto` chose because it saves memory."
    ),
    "weight-gradient-dot": (
        "Look for a second derivative in the step: `jax.grad` beside the private gradient, a "
        "penalty on"
        "gradients, a metric of them. Take it out, or pass what it needs as `return_stats=True`."
    ),
    "layout-copy": (
        "Compare the layout of the layer's arrays: a transpose just before it can often move to "
        "where the"
        "array is made. Under the limit (`--layout-limit`) it is not worth it."
    ),
    "activation-collective": (
        "Shard the batch and the activations along the same axis: "
        "`jax.lax.with_sharding_constraint` at"
        "the line that is named. A note is a sum that tensor parallelism needs."
    ),
    "private-collective": (
        "Shard parameters and batch as [the page on devices](devices.md) does; noise is local "
        "when the"
        "gradient has the sharding of its parameter."
    ),
    "missing-call": (
        "Run `bk_jax.diagnose()`: without the native library, or on another platform, pure JAX "
        "stands in."
        "Else compare with the `explain` of this very step."
    ),
    "unknown-batch-size": "Pass `--batch-size N`, or `batch_size=N` to `hlo.check`.",
}
LINT = tuple(
    Other("lint", f"{name}: {' '.join(text.split())}", text, LINT_CURES.get(name, ""))
    for name, text in DESCRIPTIONS.items()
)
SECTIONS = {
    "native": ("Custom calls, and why they are missing", NATIVE),
    "lint": ("Findings of `bk-hlo lint`", LINT),
}
