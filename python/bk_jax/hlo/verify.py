"""What others rely on and jaxlib does not verify: roots, operands, axes, and functions that end."""

from __future__ import annotations

from bk_jax.hlo.model import HloError, Instruction, Module

# Minimum number of operands of instructions that other modules inspect.
_OPERANDS = {"dot": 2, "convolution": 2, "get-tuple-element": 1} | dict.fromkeys(
    ("bitcast", "reshape", "copy", "transpose", "convert", "opt-barrier", "slice", "dynamic-slice"),
    1,
)


MOST_NESTED = 128  # functions within functions: others recurse into them


def verify(module: Module) -> None:
    """Raises an `HloError` for a program we cannot work with."""
    _verify_nesting(module)
    for computation in module.computations.values():
        if not computation.root:
            raise HloError(f"computation {computation.name} has no root.")
        for instruction in computation.instructions:
            kind = instruction.product or instruction.opcode
            if kind in _OPERANDS and not _fits(module, instruction, kind):
                name = f"{instruction.name} ({instruction.opcode})"
                raise HloError(f"{name} does not fit its operands.")


def _verify_nesting(module: Module) -> None:
    """Callers come after what they call, so nothing calls itself."""
    depths: dict[str, int] = {}
    for computation in module.computations.values():
        depth = 0
        for called in (name for i in computation.instructions for name in i.called):
            if called not in depths:
                raise HloError(
                    f"{computation.name} calls {called}, which does not stand before it."
                )
            depth = max(depth, depths[called])
        if depth >= MOST_NESTED:
            raise HloError(f"functions nest deeper than {MOST_NESTED}.")
        depths[computation.name] = depth + 1


def _fits(module: Module, instruction: Instruction, kind: str) -> bool:
    if len(instruction.operands) < _OPERANDS[kind]:
        return False
    if kind not in ("dot", "convolution"):
        return True
    shapes = module.operand_shapes(instruction)
    if kind == "convolution":
        return 0 <= instruction.features < len(shapes[1].dims)
    return all(0 <= axis < len(shapes[0].dims) for axis in instruction.contracted)
