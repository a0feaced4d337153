"""Programs from serialized `HloModuleProto`s, as jaxlib writes them.

Many instructions have the same shape or metadata. These are bytes in our schema, and equal bytes
are parsed once.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from bk_jax.hlo import schema
from bk_jax.hlo.collector import collector_paused
from bk_jax.hlo.model import Computation, HloError, Instruction, Module, Shape
from bk_jax.hlo.table import printable
from bk_jax.hlo.verify import verify

DTYPES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
    10: "f16", 11: "f32", 12: "f64", 13: "tuple", 14: "opaque", 15: "c64", 16: "bf16", 17: "token",
    18: "c128", 19: "f8e5m2", 20: "f8e4m3fn", 21: "s4", 22: "u4", 23: "f8e4m3b11fnuz",
    24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2", 28: "f8e4m3", 29: "f8e3m4", 30: "s1",
    31: "u1", 32: "f4e2m1fn", 33: "f8e8m0fnu",
}  # fmt: skip
MOST_ELEMENTS = 1 << 59  # of the largest type, 16 bytes each
MOST_KNOWN = 1 << 16  # distinct metadata entries that are kept

Names = Mapping[int, str]  # of computations or instructions, by XLA's number


class Program(NamedTuple):
    """A module, and its instructions by number: XLA's buffers refer to these."""

    module: Module
    names: Names


def read_program(data: bytes, source: str = "", stage: str = "") -> Program:
    """A program from a serialized `HloModuleProto`."""
    with collector_paused():
        found = schema.parse("Module", data)
        functions = {one.id: text(one.name) for one in found.computations}
        if found.entry not in functions:
            raise HloError("no program: it has no entry computation.")
        origin = functools.lru_cache(MOST_KNOWN)(functools.partial(_origin, found.frames))
        schedule = {one.computation: one.sequence.instructions for one in found.schedule.sequences}
        computations, names = {}, {}
        for one in found.computations:
            listed = list(one.instructions)
            own = {instruction.id: text(instruction.name) for instruction in listed}
            made = {i.id: _instruction(i, own, functions, origin) for i in listed}
            order = _ordered(made, schedule.get(one.id, ()))
            name = functions[one.id]
            computations[name] = Computation(name, order, own.get(one.root, ""))
            names.update(own)
        module = Module(text(found.name), computations, functions[found.entry], source, stage)
        verify(module)
    return Program(module, names)


def text(data: bytes) -> str:
    """A name in printable form."""
    found = data.decode("utf-8", "replace")
    return found if found.isprintable() else printable(found)


_same_text = functools.lru_cache(1024)(text)  # opcodes and targets: few, and often repeated
_config = functools.lru_cache(4096)(text)


def _ordered(made: Mapping[int, Instruction], sequence: Iterable[int]) -> tuple[Instruction, ...]:
    """As XLA scheduled them; where it did not, operands already precede their readers."""
    order = tuple(sequence)
    return tuple(map(made.__getitem__, order) if made.keys() == set(order) else made.values())


def _instruction(
    found: Any, own: Names, functions: Names, origin: Callable[[bytes], tuple[str, str]]
) -> Instruction:
    name, operands, called = own[found.id], found.operands, found.called
    op_name, source = origin(found.metadata)
    target, config = _same_text(found.target), _config(found.config)
    is_gemm = target.startswith("__cublas$")
    contracted, batched = _gemm(config) if is_gemm else _dot(found.dot)
    return Instruction(
        name,
        _same_text(found.opcode),
        _shape(found.shape),
        _look_up(own, operands, name) if operands else (),
        _look_up(functions, called, name) if called else (),
        target,
        op_name,
        source,
        config,
        found.parameter or found.element,
        contracted,
        batched,
        _features(found.convolution),
    )


def _look_up(names: Names, numbers: Iterable[int], reader: str) -> tuple[str, ...]:
    try:
        return tuple(map(names.__getitem__, numbers))
    except KeyError as error:
        raise HloError(f"{reader} refers to {error}, which is not in the program.") from None


def _origin(frames: Any, data: bytes) -> tuple[str, str]:
    """Name stack, and `file:line`, from metadata."""
    found = schema.parse("Metadata", data)
    source = f"{text(found.file)}:{found.line}" if found.file else _source(frames, found.frame)
    return text(found.name), source


def _source(frames: Any, number: int) -> str:
    """`file:line` of a stack frame in XLA's tables, whose numbers start at 1, or nothing."""
    if not 0 < number <= len(frames.frames):
        return ""
    location = frames.frames[number - 1].location
    if not 0 < location <= len(frames.locations):
        return ""
    place = frames.locations[location - 1]
    known = 0 < place.file <= len(frames.files)
    return f"{text(frames.files[place.file - 1])}:{place.line}" if known else ""


@functools.lru_cache(4096)
def _shape(data: bytes) -> Shape:
    return _made_shape(schema.parse("Shape", data))


def _made_shape(found: Any) -> Shape:
    """Checked, so that sizes are valid sizes: jaxlib lets any number pass."""
    if any(size < 0 for size in found.dims):
        raise HloError("a size is known only at run time: nothing can be counted.")
    if math.prod(found.dims) > MOST_ELEMENTS:
        raise HloError(f"an array of the sizes {list(found.dims)} has more than 2^63 bytes.")
    layout = tuple(found.layout.minor_to_major) if found.HasField("layout") else None
    parts = tuple(map(_made_shape, found.parts))
    return Shape(DTYPES.get(found.dtype, "opaque"), tuple(found.dims), layout, parts)


@functools.lru_cache(4096)
def _dot(data: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Contracted and batched axes of the first operand."""
    found = schema.parse("Dot", data)
    return tuple(found.contracted), tuple(found.batched)


@functools.lru_cache(4096)
def _gemm(config: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same for a product that cuBLAS computes, from the call's configuration."""
    found = (re.search(rf'"lhs_{kind}_dimensions":\[([\d", ]{{0,99}})\]', config)
             for kind in ("contracting", "batch"))  # fmt: skip
    contracted, batched = (re.findall(r"\d{1,3}", match[1]) if match else [] for match in found)
    return tuple(map(int, contracted)), tuple(map(int, batched))


@functools.lru_cache(1024)
def _features(data: bytes) -> int:
    """The axis of output features in the kernel of a convolution."""
    return schema.parse("Convolution", data).features
