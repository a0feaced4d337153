"""Reader of XLA's serialized programs (`HloModuleProto`) as jaxlib writes them."""

from __future__ import annotations

import functools
from typing import NamedTuple

from bk_jax.hlo.model import Computation, HloError, Instruction, Module, Shape
from bk_jax.hlo.wire import fields, integers, message, number, text

DTYPES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
    10: "f16", 11: "f32", 12: "f64", 13: "tuple", 14: "opaque", 15: "c64", 16: "bf16", 17: "token",
    18: "c128", 19: "f8e5m2", 20: "f8e4m3fn", 21: "s4", 22: "u4", 23: "f8e4m3b11fnuz",
    24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2", 28: "f8e4m3", 29: "f8e3m4", 30: "s1",
    31: "u1", 32: "f4e2m1fn", 33: "f8e8m0fnu",
}  # fmt: skip


class _Raw(NamedTuple):
    """An instruction that refers to others by number."""

    instruction: Instruction
    number: int
    operands: list[int]
    called: list[int]
    frame: int


class _Frames(NamedTuple):
    """Where instructions come from: frames are `(location, parent)`, numbers start at 1."""

    files: list[str]
    locations: list[tuple[int, int]]
    frames: list[tuple[int, int]]

    def source(self, frame: int) -> str:
        """`file:line` of the innermost frame, or nothing."""
        if not 0 < frame <= len(self.frames):
            return ""
        location = self.frames[frame - 1][0]
        if not 0 < location <= len(self.locations):
            return ""
        file, line = self.locations[location - 1]
        return f"{self.files[file - 1]}:{line}" if 0 < file <= len(self.files) else ""


def read_module(data: bytes, source: str = "", stage: str = "") -> Module:
    """A module from a serialized `HloModuleProto`."""
    module, _ = read_numbered(data, source, stage)
    return module


def read_numbered(data: bytes, source: str = "", stage: str = "") -> tuple[Module, dict[int, str]]:
    """A module, and the names of its instructions by XLA's number: buffers refer to these."""
    name, entry, computations, frames = "", -1, [], _Frames([], [], [])
    for key, value in fields(data):
        if key == 1:
            name = text(value)
        elif key == 3:
            computations.append(message(value))
        elif key == 6:
            entry = number(value)
        elif key == 17:
            frames = _read_frames(message(value))
    heads = [_computation_head(part) for part in computations]
    names = {head[0]: head[1] for head in heads}
    if entry not in names:
        raise HloError("no program: it has no entry computation.")
    numbered: dict[int, str] = {}
    read = {}
    for part, (_, title, root) in zip(computations, heads, strict=True):
        raw = [_read_instruction(message(v)) for k, v in fields(part) if k == 2]
        local = {r.number: r.instruction.name for r in raw}
        numbered.update(local)
        linked = tuple(_link(r, local, names, frames) for r in raw)
        read[title] = Computation(title, linked, local.get(root, ""))
    module = Module(name, read, names[entry], source, stage)
    _check(module)
    return module, numbered


# Least number of operands of what other modules look into.
_OPERANDS = {"dot": 2, "convolution": 2, "get-tuple-element": 1} | dict.fromkeys(
    ("bitcast", "reshape", "copy", "transpose", "convert", "opt-barrier", "slice", "dynamic-slice"),
    1,
)


def _check(module: Module) -> None:
    """What others rely on and jaxlib does not verify: roots, operands and axes."""
    for computation in module.computations.values():
        if computation.root not in module.by_name:
            raise HloError(f"computation {computation.name} has no root.")
    for instruction in module:
        missing = len(instruction.operands) < _OPERANDS.get(instruction.opcode, 0)
        if missing or not _axes_exist(module, instruction):
            raise HloError(f"{instruction.name} ({instruction.opcode}) does not fit its operands.")


def _axes_exist(module: Module, instruction: Instruction) -> bool:
    if instruction.opcode not in ("dot", "convolution"):
        return True
    shapes = module.operand_shapes(instruction)
    if instruction.opcode == "convolution":
        return instruction.features < len(shapes[1].dims)
    return all(axis < len(shapes[0].dims) for axis in instruction.contracted)


def _computation_head(data: bytes) -> tuple[int, str, int]:
    """Number, name and root of a computation."""
    found = {key: value for key, value in fields(data) if key in (1, 5, 6)}
    return number(found.get(5, 0)), text(found.get(1, b"")), number(found.get(6, 0))


def _link(
    raw: _Raw, local: dict[int, str], computations: dict[int, str], frames: _Frames
) -> Instruction:
    try:
        operands = tuple(local[n] for n in raw.operands)
        called = tuple(computations[n] for n in raw.called)
    except KeyError as error:
        name = raw.instruction.name
        raise HloError(f"{name} refers to {error}, which is not in the program.") from None
    made = raw.instruction
    source = made.source or frames.source(raw.frame)
    return Instruction(
        made.name, made.opcode, made.shape, operands, called, made.target, made.op_name, source,
        made.config, made.index, made.contracted, made.batched, made.features,
    )  # fmt: skip


def _read_instruction(data: bytes) -> _Raw:
    found: dict[int, int | bytes] = {}
    operands: list[int] = []
    called: list[int] = []
    for key, value in fields(data):
        if key == 36:
            operands += integers(value)
        elif key == 38:
            called += integers(value)
        else:
            found[key] = value
    op_name, source, frame = _read_metadata(message(found.get(7, b"")))
    contracted, batched = _read_dot(message(found.get(30, b"")))
    made = Instruction(
        name=text(found.get(1, b"")),
        opcode=text(found.get(2, b"")),
        shape=_read_shape(message(found.get(3, b""))),
        target=text(found.get(28, b"")),
        op_name=op_name,
        source=source,
        config=text(found.get(43, b"")),
        index=number(found.get(9, found.get(13, 0))),
        contracted=contracted,
        batched=batched,
        features=_last(message(found.get(16, b"")), 4),
    )
    return _Raw(made, number(found.get(35, 0)), operands, called, frame)


@functools.lru_cache(maxsize=4096)
def _read_shape(data: bytes) -> Shape:
    dtype, dims, layout = "opaque", [], None
    parts = []
    for key, value in fields(data):
        if key == 2:
            dtype = DTYPES.get(number(value), "opaque")
        elif key == 3:
            dims += integers(value)
        elif key == 4:
            parts.append(_read_shape(message(value)))
        elif key == 5:
            layout = tuple(n for k, v in fields(message(value)) if k == 1 for n in integers(v))
    return Shape(dtype, tuple(dims), layout, tuple(parts))


@functools.lru_cache(maxsize=4096)
def _read_metadata(data: bytes) -> tuple[str, str, int]:
    """Name stack, source and stack frame."""
    found = {key: value for key, value in fields(data) if key in (2, 3, 4, 15)}
    file, line = text(found.get(3, b"")), number(found.get(4, 0))
    return text(found.get(2, b"")), f"{file}:{line}" if file else "", number(found.get(15, 0))


@functools.lru_cache(maxsize=4096)
def _read_dot(data: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    contracted, batched = [], []
    for key, value in fields(data):
        if key == 1:
            contracted += integers(value)
        elif key == 3:
            batched += integers(value)
    return tuple(contracted), tuple(batched)


def _last(data: bytes, wanted: int) -> int:
    values = [number(value) for key, value in fields(data) if key == wanted]
    return values[-1] if values else 0


def _read_frames(data: bytes) -> _Frames:
    found = _Frames([], [], [])
    for key, value in fields(data):
        if key == 1:
            found.files.append(text(value))
        elif key == 3:
            found.locations.append((_last(message(value), 1), _last(message(value), 3)))
        elif key == 4:
            found.frames.append((_last(message(value), 1), _last(message(value), 2)))
    return found
