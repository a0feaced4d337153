"""The data model: every reader fills it and everything else works on it."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

Result = TypeVar("Result")

PRODUCTS = ("dot", "convolution")
# Products that XLA:GPU leaves to a library, by how the call's target begins.
LIBRARIES = {"__cublas$": "dot", "__cudnn$conv": "convolution"}
BITS = {"pred": 8, "token": 0, "opaque": 0, "tuple": 0}


class HloError(ValueError):
    """A file or object that cannot be read as an XLA program; the message says why.

    >>> import bk_jax.hlo
    >>> try:
    ...     bk_jax.hlo.load(3)
    ... except bk_jax.hlo.HloError as error:
    ...     print(error)
    expected a path, a jax.stages.Lowered or a jax.stages.Compiled, got int.
    """


class HloWarning(UserWarning):
    """A file in a folder that was skipped because it cannot be read.

    >>> import pathlib, tempfile, warnings, bk_jax.hlo
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "module_0001.jit_f.txt").write_text("HloModule cut off")
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     try:
    ...         _ = bk_jax.hlo.load(folder)
    ...     except bk_jax.hlo.HloError: pass
    >>> all(issubclass(warning.category, bk_jax.hlo.HloWarning) for warning in found)
    True
    """


@dataclasses.dataclass(frozen=True)
class Shape:
    """An array, or a tuple of shapes (`parts`) when `dtype` is `"tuple"`.

    >>> Shape("f32", (2, 3)).nbytes, str(Shape("bf16", (4,)))
    (24, 'bf16[4]')
    """

    dtype: str
    dims: tuple[int, ...] = ()
    layout: tuple[int, ...] | None = None  # minor to major
    parts: tuple[Shape, ...] = ()

    @functools.cached_property
    def size(self) -> int:
        """Number of elements of all parts."""
        return sum(p.size for p in self.parts) if self.dtype == "tuple" else math.prod(self.dims)

    @functools.cached_property
    def nbytes(self) -> int:
        """Bytes of all parts, without pointers."""
        if self.dtype == "tuple":
            return sum(part.nbytes for part in self.parts)
        return math.prod(self.dims) * dtype_bits(self.dtype) // 8

    @property
    def arrays(self) -> tuple[Shape, ...]:
        """The arrays in it, in order."""
        if self.dtype != "tuple":
            return (self,)
        return tuple(array for part in self.parts for array in part.arrays)

    def __str__(self) -> str:
        if self.dtype == "tuple":
            return f"({', '.join(map(str, self.parts))})"
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@functools.cache
def dtype_bits(dtype: str) -> int:
    """Bits of one element: 32 for `"f32"`, 8 for `"f8e4m3fn"`."""
    if dtype in BITS:
        return BITS[dtype]
    digits = re.match(r"[a-z]+(\d+)", dtype)
    return int(digits.group(1)) if digits else 0


class Instruction(NamedTuple):
    """One operation. `operands` and `called` are names, unique in the module.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> [i.opcode for i in module if i.opcode in ("dot", "custom-call", "fusion")] != []
    True
    """

    name: str
    opcode: str
    shape: Shape
    operands: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    target: str = ""
    op_name: str = ""
    source: str = ""
    config: str = ""  # backend_config: attributes of our calls, trip counts of loops
    index: int = 0  # type: ignore[assignment]  # of a tuple's element, or a parameter's number
    contracted: tuple[int, ...] = ()  # axes of a dot's first operand
    batched: tuple[int, ...] = ()
    features: int = 0  # axis of output features in a convolution's kernel

    @property
    def is_bk_call(self) -> bool:
        """Whether it is one of our custom calls."""
        return self.opcode == "custom-call" and self.target.startswith("bk_")

    @property
    def product(self) -> str:
        """`"dot"` or `"convolution"`, by XLA itself or by cuBLAS or cuDNN; `""` for anything else."""
        if self.opcode in PRODUCTS:
            return self.opcode
        if self.opcode != "custom-call" or not self.target.startswith("__cu"):
            return ""
        return next((kind for name, kind in LIBRARIES.items() if self.target.startswith(name)), "")

    @property
    def result(self) -> Shape:
        """What it computes: a library's product comes with its workspace."""
        is_pair = self.opcode == "custom-call" and self.shape.parts and self.product
        return self.shape.parts[0] if is_pair else self.shape

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of a typed custom call, as text."""
        return dict(_ATTRIBUTE.findall(self.config)) if self.opcode == "custom-call" else {}


# Bounded, and without backtracking: the cost of a text grows only with its length.
_ATTRIBUTE = re.compile(
    r'\b(\w++) = ("[^"]{0,999}+"|dense<[^>]{0,999}+> : tensor<[^>]{0,99}+>|array<[^>]{0,999}+>'
    r"|[^,}]{1,999})"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Computation:
    """A list of instructions, operands first; the root is the result.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> entry = module.computations[module.entry]
    >>> entry.root in {instruction.name for instruction in entry.instructions}
    True
    """

    name: str
    instructions: tuple[Instruction, ...]
    root: str


@dataclasses.dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of one value, or of a part of it: `index` leads to an element of a tuple."""

    instruction: str
    index: tuple[int, ...]
    nbytes: int
    kind: str  # argument, output, temporary, constant, thread-local


class Place(NamedTuple):
    """Where a value is stored: values in one place share its memory."""

    kind: str
    allocation: int
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """What XLA's buffer assignment says; `peak` is None where only the sizes are known.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> compiled, = bk_jax.hlo.load(jax.jit(jnp.sin).lower(jnp.ones(3)).compile())
    >>> compiled.memory.arguments, compiled.memory.outputs  # bytes
    (12, 12)
    """

    arguments: int
    outputs: int
    temporaries: int
    constants: int
    peak: int | None
    buffers: tuple[Buffer, ...]  # the largest in each place
    places: Mapping[tuple[str, tuple[int, ...]], Place] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Module:
    """A program; `stage` says whether it was read after XLA's optimizations.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> module.name, len(module.by_name) == len(list(module))
    ('jit_dot', True)
    """

    name: str
    computations: Mapping[str, Computation]
    entry: str
    source: str = ""
    stage: str = ""
    memory: Memory | None = None

    def __iter__(self) -> Iterator[Instruction]:
        for computation in self.computations.values():
            yield from computation.instructions

    @functools.cached_property
    def by_name(self) -> dict[str, Instruction]:
        """Every instruction."""
        return {instruction.name: instruction for instruction in self}

    @functools.cached_property
    def users(self) -> dict[str, list[str]]:
        """Names of the instructions that read a result."""
        users: dict[str, list[str]] = {}
        for instruction in self:
            for operand in dict.fromkeys(instruction.operands):
                users.setdefault(operand, []).append(instruction.name)
        return users

    @functools.cached_property
    def call_sites(self) -> dict[str, list[Instruction]]:
        """The instructions that call a computation."""
        sites: dict[str, list[Instruction]] = {}
        for instruction in self:
            for name in dict.fromkeys(instruction.called):
                sites.setdefault(name, []).append(instruction)
        return sites

    @functools.cached_property
    def remembered(self) -> dict[str, dict[str, Any]]:
        """What functions have computed about computations (`remember`)."""
        return {}

    @functools.cached_property
    def scopes(self) -> dict[str, tuple[str, ...]]:
        """Name stacks around computations, as far as `stacks.py` has found them."""
        return {}

    @functools.cached_property
    def top_scope(self) -> str:
        """What every whole name stack begins with, such as `jit(train)`."""
        names = (i.op_name for i in self.computations[self.entry].instructions)
        return next((name.partition("/")[0] for name in names if "/" in name), "")

    @functools.cached_property
    def computation_of(self) -> dict[str, str]:
        """The computation that contains an instruction."""
        return {i.name: c.name for c in self.computations.values() for i in c.instructions}

    @functools.cached_property
    def bk_calls(self) -> tuple[Instruction, ...]:
        """Our custom calls."""
        calls = [instruction for instruction in self if instruction.opcode == "custom-call"]
        return tuple(instruction for instruction in calls if instruction.is_bk_call)

    @functools.cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """Arguments of the program."""
        entry = self.computations[self.entry].instructions
        return tuple(instruction for instruction in entry if instruction.opcode == "parameter")

    def operand_shapes(self, instruction: Instruction) -> list[Shape]:
        """Shapes of an instruction's operands."""
        return [self.by_name[name].shape for name in instruction.operands]


def remember(function: Callable[[Module, str], Result]) -> Callable[[Module, str], Result]:
    """For a function of a module and the name of a computation: computes it once for each.

    A computation may be called twice by one that is itself called twice, and so on.
    """

    @functools.wraps(function)
    def known(module: Module, computation: str) -> Result:
        found = module.remembered.setdefault(function.__qualname__, {})
        if computation not in found:
            found[computation] = function(module, computation)
        return found[computation]

    return known
