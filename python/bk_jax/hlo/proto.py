"""Reader of XLA's serialized programs (`HloModuleProto`) as jaxlib writes them."""

from __future__ import annotations

from bk_jax.hlo.collector import collector_paused
from bk_jax.hlo.frames import NO_FRAMES, read_frames
from bk_jax.hlo.heads import read_heads
from bk_jax.hlo.instructions import read_computations
from bk_jax.hlo.model import HloError, Instruction, Module
from bk_jax.hlo.wire import spans, text


def read_module(data: bytes, source: str = "", stage: str = "") -> Module:
    """A module from a serialized `HloModuleProto`."""
    module, _ = read_numbered(data, source, stage)
    return module


def read_numbered(data: bytes, source: str = "", stage: str = "") -> tuple[Module, dict[int, str]]:
    """A module, and the names of its instructions by XLA's number: buffers refer to these."""
    name, entry, places, frames, schedule = "", 0, [], NO_FRAMES, b""
    for key, at, end in spans(data, 0, len(data)):
        if key == 6:
            entry = at
        elif end >= 0 and key == 1:
            name = text(data[at:end])
        elif end >= 0 and key == 3:
            places.append((at, end))
        elif end >= 0 and key == 7:
            schedule = data[at:end]
        elif end >= 0 and key == 17:
            frames = read_frames(data[at:end])
    heads = read_heads(data, places)
    names = {head.number: head.name for head in heads}
    if entry not in names:
        raise HloError("no program: it has no entry computation.")
    with collector_paused():
        computations, numbered = read_computations(data, heads, frames, schedule)
        module = Module(name, computations, names[entry], source, stage)
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
        if not computation.root:
            raise HloError(f"computation {computation.name} has no root.")
        for instruction in computation.instructions:
            if instruction.opcode in _OPERANDS and not _fits(module, instruction):
                name = f"{instruction.name} ({instruction.opcode})"
                raise HloError(f"{name} does not fit its operands.")


def _fits(module: Module, instruction: Instruction) -> bool:
    if len(instruction.operands) < _OPERANDS[instruction.opcode]:
        return False
    if instruction.opcode not in ("dot", "convolution"):
        return True
    shapes = module.operand_shapes(instruction)
    if instruction.opcode == "convolution":
        return instruction.features < len(shapes[1].dims)
    return all(axis < len(shapes[0].dims) for axis in instruction.contracted)
