"""Where a value comes from: back through views, calls and loops to an argument of the program."""

from __future__ import annotations

from bk_jax.hlo.model import Instruction, Module

# Operations that change neither the values of an array nor which array it is.
_SAME = frozenset({"bitcast", "reshape", "copy", "transpose", "reverse", "convert", "opt-barrier"})
_PARTS = frozenset({"dynamic-slice", "slice"})
_CALLS = frozenset({"fusion", "call", "while"})
_MOST = 256  # steps back


def origin(module: Module, instruction: Instruction, parts: bool = True) -> Instruction:
    """Where a value comes from; unless `parts`, a slice counts as a new value."""
    inside: list[Instruction] = []  # the calls whose results were followed into the function
    for _ in range(_MOST):
        if instruction.opcode in _PARTS and not parts:
            return instruction
        before = _one_back(module, instruction, inside)
        if before is None:
            return instruction
        instruction = before
    return instruction


def _one_back(
    module: Module, instruction: Instruction, inside: list[Instruction]
) -> Instruction | None:
    opcode = instruction.opcode
    if opcode in _SAME or opcode in _PARTS:
        return module.by_name[instruction.operands[0]]
    if opcode == "get-tuple-element":
        whole = module.by_name[instruction.operands[0]]
        return _element(module, whole, instruction.index, inside)
    if opcode == "parameter":
        return _passed(module, instruction, inside)
    return _result(module, instruction, inside)


def _result(module: Module, call: Instruction, inside: list[Instruction]) -> Instruction | None:
    """What a function returns."""
    if call.opcode not in ("fusion", "call") or not call.called:
        return None
    inside.append(call)
    return module.by_name[module.computations[call.called[0]].root]


def _element(
    module: Module, whole: Instruction, index: int, inside: list[Instruction]
) -> Instruction | None:
    """Element of a tuple; what goes into a loop is followed as if the loop kept it."""
    for _ in range(_MOST):
        if whole.opcode == "tuple":
            made = whole.operands[index : index + 1]
            return module.by_name[made[0]] if made else None
        step = _passed if whole.opcode == "parameter" else _result
        before = step(module, whole, inside)
        if before is None:
            return None
        whole = before
    return None


def _passed(
    module: Module, parameter: Instruction, inside: list[Instruction]
) -> Instruction | None:
    """What the caller of a computation passes: the call that led here, or else the last one."""
    computation = module.computation_of[parameter.name]
    sites = module.call_sites.get(computation)
    if not sites or sites[-1].opcode not in _CALLS:
        return None
    came = inside and computation in inside[-1].called
    caller = inside.pop() if came else sites[-1]
    index = 0 if caller.opcode == "while" else parameter.index
    return module.by_name[caller.operands[index]] if index < len(caller.operands) else None
