"""What others rely on and jaxlib does not verify: roots, operands and axes."""

from __future__ import annotations

from bk_jax.hlo.model import HloError, Instruction, Module

# Least number of operands of what other modules look into.
_OPERANDS = {"dot": 2, "convolution": 2, "get-tuple-element": 1} | dict.fromkeys(
    ("bitcast", "reshape", "copy", "transpose", "convert", "opt-barrier", "slice", "dynamic-slice"),
    1,
)


def verify(module: Module) -> None:
    """Raises an `HloError` for a program that can not be worked on."""
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
        return 0 <= instruction.features < len(shapes[1].dims)
    return all(0 <= axis < len(shapes[0].dims) for axis in instruction.contracted)
