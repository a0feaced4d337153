"""The rules: each looks for one way a private step can cost more than it should."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bk_jax.hlo import cost
from bk_jax.hlo.arguments import long_axes
from bk_jax.hlo.calls import find_calls
from bk_jax.hlo.context import Context, Finding
from bk_jax.hlo.model import Instruction, Shape
from bk_jax.hlo.stacks import layers_in, layers_of, name_stacks
from bk_jax.hlo.table import si

INSTANTIATE = ("bk_per_sample_grad", "bk_conv_grad")
NORMS = {
    ("dense", "ghost"): ("bk_ghost_norm",),
    ("dense", "fused"): ("bk_direct_norm", "bk_ghost_norm"),
    ("dense", "store"): INSTANTIATE,
    ("conv", "ghost"): ("bk_conv_norm", "bk_ghost_norm"),
    ("conv", "fused"): ("bk_conv_norm", "bk_direct_norm"),
    ("conv", "store"): INSTANTIATE,
    ("lookup", "sparse"): ("bk_embedding_norm",),
    ("tied", "ghost"): ("bk_tied_cross", "bk_ghost_norm"),
}
SUMS = {
    ("dense", "ghost"): ("bk_clipped_gemm", "bk_clipped_gemm_add"),
    ("dense", "fused"): ("bk_clipped_gemm", "bk_clipped_gemm_add"),
    ("lookup", "sparse"): ("bk_clipped_scatter",),
    ("tied", "ghost"): ("bk_clipped_gemm", "bk_clipped_gemm_add"),
}
# Calls for many layers count as one for each of them.
FOR_EACH = {"bk_ghost_norms": "bk_ghost_norm", "bk_clipped_gemms": "bk_clipped_gemm"}


def per_sample_gradients(context: Context) -> Iterator[Finding]:
    """A buffer holds the gradient of every single example.

    An error if it is larger than the activations and output gradients it is made from. Otherwise
    (few weights, many tokens) storing it saves memory, and it is only a note.
    """
    for instruction in context.module:
        gradient = _per_sample(context, instruction)
        if gradient is None or gradient.nbytes <= context.limits.gradient:
            continue
        made_from = sum(s.nbytes for s in context.module.operand_shapes(instruction))
        grave = gradient.nbytes > made_from
        layers = layers_of(context.module, instruction)
        yield _finding(
            context, "per-sample-gradient", "error" if grave else "note", instruction, gradient.nbytes,
            f"{instruction.target or instruction.opcode} {instruction.name}{_for(layers)} makes "
            f"{gradient}, {si(gradient.nbytes, 'B')}, "
            + (f"from {si(made_from, 'B')}: the layer is instantiated."
               if grave else f"not more than the {si(made_from, 'B')} it is made from."),
        )  # fmt: skip


def _per_sample(context: Context, instruction: Instruction) -> Shape | None:
    """The per-example gradients that an instruction computes, if it does."""
    if instruction.target in INSTANTIATE:
        return next(iter(instruction.shape.arrays), None)
    examples = context.batch_size
    if not examples or not _may_be_per_sample(context, instruction):
        return None
    dims = sorted(long_axes(instruction.result.dims))
    for sizes in context.arguments.sizes:
        if dims in (sorted([examples, *sizes]), sorted([*sizes[:-1], examples * sizes[-1]])):
            return instruction.result
    return None


def _may_be_per_sample(context: Context, product: Instruction) -> bool:
    """Whether both operands may hold examples: a gradient comes from activations and cotangents."""
    if product.product == "dot":
        both = bool(product.batched)
    else:
        both = product.product == "convolution" and not _reads_weight(context, product)
    return both and not context.arguments.is_own_gradient(context.module, product)


def weight_gradient_dots(context: Context) -> Iterator[Finding]:
    """A product of the backward pass computes the gradient of a weight outside our calls.

    This is the work of ordinary training, done in addition to ours: something differentiates the
    parameters themselves.
    """
    examples = context.batch_size
    for instruction in context.module:
        if not examples or not _is_weight_gradient(context, instruction, examples):
            continue
        flops = cost.flops(context.module, instruction)
        yield _finding(
            context, "weight-gradient-dot", "error", instruction, instruction.result.nbytes,
            f"{instruction.product} {instruction.name} makes the weight gradient {instruction.result}, "
            f"{si(flops, 'flop')}, beside our calls: {_stack(context, instruction)}",
        )  # fmt: skip


def _is_weight_gradient(context: Context, product: Instruction, examples: int) -> bool:
    arguments = context.arguments
    if not product.product or not arguments.is_weight_shaped(product.result):
        return False
    if not any(map(_is_backward, name_stacks(context.module, product))):
        return False
    left = context.module.by_name[product.operands[0]].shape
    depth = math.prod(left.dims[axis] for axis in product.contracted)
    sums_examples = product.product == "convolution" or depth % examples == 0
    return sums_examples and not _reads_weight(context, product)


def _is_backward(stack: str) -> bool:
    """Whether it belongs to the backward pass, and not to our norms and sums."""
    return "transpose(" in stack and not layers_in(stack)


def _reads_weight(context: Context, product: Instruction) -> bool:
    """Whether it is one of the model's own products with a weight, not a gradient of one."""
    module = context.module
    operands = [module.by_name[name] for name in product.operands]
    return any(context.arguments.is_weight(module, operand) for operand in operands)


def layout_copies(context: Context) -> Iterator[Finding]:
    """Copies, transposes or conversions next to one of our calls move more bytes than the limit."""
    for call in find_calls(context.module):
        for near in call.neighbours:
            if near.nbytes * call.runs > context.limits.layout:
                yield _finding(
                    context, "layout-copy", "warning", context.module.by_name[near.instruction],
                    near.nbytes * call.runs,
                    f"{near.kind} {near.instruction} moves {si(near.nbytes * call.runs, 'B')} "
                    f"{'into' if near.side == 'in' else 'out of'} {call.target} "
                    f"{call.instruction}{_for(call.layers)}.",
                )  # fmt: skip


def activation_collectives(context: Context) -> Iterator[Finding]:
    """A collective moves something other than a gradient or weight: examples leave their device."""
    for instruction in context.module:
        if instruction.opcode not in cost.COLLECTIVES:
            continue
        for shape in instruction.shape.arrays:
            if shape.nbytes > context.limits.collective and not is_weights_part(context, shape):
                yield _finding(
                    context, "activation-collective", _level(instruction), instruction, shape.nbytes,
                    f"{instruction.opcode} {instruction.name} moves {shape}, "
                    f"{si(shape.nbytes, 'B')}, which is no parameter: {_stack(context, instruction)}",
                )  # fmt: skip


def _level(collective: Instruction) -> str:
    """Sums inside the model are what tensor parallelism consists of."""
    is_sum = collective.opcode.startswith("all-reduce")
    return "note" if is_sum and "jvp(" in collective.op_name else "error"


def is_weights_part(context: Context, shape: Shape) -> bool:
    """Whether some weight has the same sizes, except that at most one axis is split or joined."""
    for dims in _arguments_but_examples(context):
        if len(dims) != len(shape.dims):
            continue
        other = [(a, b) for a, b in zip(dims, shape.dims, strict=True) if a != b]
        if not other or (len(other) == 1 and max(other[0]) % max(min(other[0]), 1) == 0):
            return True
    return False


def _arguments_but_examples(context: Context) -> list[tuple[int, ...]]:
    """Sizes of the arguments except batches, which begin with the examples and do not come back."""
    module = context.module
    entry = module.computations[module.entry]
    returned = {shape.dims for shape in module.by_name[entry.root].shape.arrays}
    sizes = [parameter.shape.dims for parameter in module.parameters]
    return [d for d in sizes if d in returned or d[:1] != (context.batch_size,)]


def missing_calls(context: Context) -> Iterator[Finding]:
    """A call that `explain` promises is not in the program.

    Without an explanation: the program has none of our calls at all.
    """
    if context.rows is None:
        if not context.module.bk_calls:
            twins = any(layers_of(context.module, instruction) for instruction in context.module)
            yield _missing((), _NO_CALL + (_TWINS if twins else _NOTHING))
        return
    found = {
        (layer, FOR_EACH.get(call.target, call.target))
        for call in find_calls(context.module)
        for layer in call.layers
    }
    for row in context.rows:
        path, route = row["path"], (row["kind"], row["route"])
        for step, targets in (("norm", NORMS.get(route)), ("sum", SUMS.get(route))):
            if targets and not any((path, target) in found for target in targets):
                there = sorted(target for layer, target in found if layer == path)
                yield _missing(
                    (path,), f"{path} ({route[0]}, {route[1]}) lacks {' or '.join(targets)} for its "
                    f"{step}; there is {', '.join(there) or 'no call for it'}.",
                )  # fmt: skip


_NO_CALL = "no bk call in the program: "
_TWINS = "pure JAX stands in for them on this platform, or without the native library."
_NOTHING = "nothing was rewritten."


def unknown_batch_size(context: Context) -> Iterator[Finding]:
    """The number of examples is unknown, so gradients cannot be told from other arrays."""
    if not context.batch_size:
        yield Finding(
            "unknown-batch-size", "warning", "", (), 0,
            "the program has no bk_clip_factor that would tell the number of examples; give it "
            "(--batch-size), or two rules see nothing.",
        )  # fmt: skip


def _missing(layers: tuple[str, ...], message: str) -> Finding:
    return Finding("missing-call", "error", "", layers, 0, message)


def _finding(
    context: Context, rule: str, level: str, instruction: Instruction, nbytes: int, message: str
) -> Finding:
    layers = layers_of(context.module, instruction)
    return Finding(
        rule, level, instruction.name, layers, nbytes, message.strip(), instruction.source
    )


def _stack(context: Context, instruction: Instruction) -> str:
    return name_stacks(context.module, instruction)[0]


def _for(layers: tuple[str, ...]) -> str:
    return f" for {', '.join(layers)}" if layers else ""
