"""What the compiled kernels must show without a GPU.

    bazel test --config=cuda //tests/custom_calls/cuda:static_gates

    ptxas      no spills, no stack, at most 255 registers and 48 KB of shared memory
    SASS       no atomic operation, so every sum has one order; tensor-core instructions of the dense
               kernels: the ones, and as many, as the bounds of norms count (engine.cuh)
    loops      the main loops of dense kernels: instructions for each product, asynchronous copies, no
               generic loads, no division, no bank conflicts (benchmarks/gpu/cycles/gates.py). Every
               kernel has a limit of instructions; what is let through beyond that is listed by kernel
               and gate, with a reason (benchmarks/gpu/cycles/limits.py)
    targets    machine code for GPUs of 8.x, 9.x, 10.x and 12.x, PTX for the others from 10.0
    archives   launchers and handlers neither wait for the device nor allocate

The arguments are a program that prints what the bounds count, the files that nvcc made,
`*.resources.txt` and `*_device.a`, and the handlers. SASS is read with cuobjdump and nvdisasm of the
packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm, or of PATH.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.gpu.cycles import gates, limits, sass
from benchmarks.gpu.cycles.limits import LOOP_KERNELS, kernel_of

MAX_REGISTERS = 255
MAX_SHARED_BYTES = 48 * 1024
ARCHITECTURES = {"sm_80", "sm_90a", "sm_100", "sm_120"}
PTX = {"sm_100"}
# The elements that tensor cores multiply in each dense kernel, and how many loops over chunks it has.
TENSOR_KERNELS = {
    "GhostKernel": ({"tf32"}, 2),  # of a, and of g
    "GramKernel": ({"bf16", "f16"}, 2),
    "ProductKernel": ({"tf32"}, 1),
    "ProductTilesKernel": ({"bf16", "f16"}, 1),
    "ScaledProductsKernel": ({"bf16", "f16"}, 1),
    "ScaledRowsKernel": ({"tf32"}, 1),
    "TiedTilesKernel": ({"bf16", "f16"}, 1),
}
# Every instruction of a tensor core, as SASS names them: HMMA.16816.F32.BF16 has 16 x 8 results of
# 16 products each. Others are HGMMA (of Hopper), UTCHMMA (of Blackwell), DMMA, IMMA, QMMA.
TENSOR_INSTRUCTION = re.compile(r"\b([A-Z]*MMA(?:\.\w+)+) ")
ATOMIC = re.compile(r"\b(RED(?!UX)|ATOM)[A-Z]*\b")  # REDUX adds up integers of a warp
FILES = [Path(name) for name in sys.argv[2:]]


class Counted(NamedTuple):
    """What a bound counts for one chunk: products of an instruction, instructions of a warp."""

    terms: int
    instructions: int


def counted() -> dict[str, Counted]:
    """By the type of elements, from the program that the header of the bounds is compiled into."""
    lines = subprocess.run(sys.argv[1], check=True, capture_output=True, text=True).stdout
    rows = (line.split() for line in lines.splitlines())
    return {kind: Counted(int(terms), int(count)) for kind, terms, count in rows}


def mnemonic(kind: str, terms: int) -> str:
    """The instruction that multiplies elements of this type."""
    suffix = {"bf16": ".BF16", "f16": "", "tf32": ".TF32"}[kind]
    return f"HMMA.168{terms}.F32{suffix}"


def check_instructions(kind: str, chunks: int, code: str, bound: Counted) -> None:
    """The code has these instructions and no other, for each of its loops over chunks as many."""
    found = TENSOR_INSTRUCTION.findall(code)
    expected = mnemonic(kind, bound.terms)
    assert set(found) == {expected}, f"the bound counts {expected}, there are {sorted(set(found))}"
    assert len(found) == chunks * bound.instructions, (
        f"the bound counts {bound.instructions} instructions for a chunk of {kind}, "
        f"there are {len(found)} for {chunks}"
    )


class Usage(NamedTuple):
    """What ptxas says of one kernel on one architecture."""

    kernel: str
    architecture: str
    stack: int
    spills: int
    registers: int
    shared: int


def usages() -> Iterator[Usage]:
    """All kernels of all logs."""
    entry = re.compile(
        r"Compiling entry function '(\S+)' for '(sm_\w+)'.*?(\d+) bytes stack frame, "
        r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers([^\n]*)",
        re.DOTALL,
    )
    for path in FILES:
        if path.suffix != ".txt":
            continue
        for name, architecture, stack, stores, loads, registers, rest in entry.findall(
            path.read_text()
        ):
            shared = re.search(r"(\d+) bytes smem", rest)
            spills = int(stores) + int(loads)
            bytes_ = int(shared.group(1)) if shared else 0
            yield Usage(name, architecture, int(stack), spills, int(registers), bytes_)


def cuobjdump() -> str | None:
    """The program, with nvdisasm where it finds it."""
    folder = Path(sysconfig.get_paths()["purelib"], "nvidia", "cu13", "bin")
    if (folder / "nvdisasm").exists():
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    return shutil.which("cuobjdump") if shutil.which("nvdisasm") else None


class ResourcesTest(unittest.TestCase):
    def test_every_kernel_fits(self) -> None:
        found = list(usages())
        assert {use.architecture for use in found} == ARCHITECTURES
        for use in found:
            with self.subTest(kernel=use.kernel, architecture=use.architecture):
                assert use.spills == 0
                assert use.stack == 0
                assert use.registers <= MAX_REGISTERS
                assert use.shared <= MAX_SHARED_BYTES


def check_warpgroups(kind: str, chunks: int, code: str, bound: Counted) -> None:
    """As check_instructions: a warp has 16 x 128 entries of an instruction, 16 times those of HMMA."""
    expected = f"HGMMA.64x128x16.F32{'.BF16' if kind == 'bf16' else ''}"
    found = TENSOR_INSTRUCTION.findall(code)
    assert set(found) == {expected}, f"expected {expected}, there are {sorted(set(found))}"
    assert len(found) * 16 == chunks * bound.instructions, f"{len(found)} {expected}"


def has_warpgroups(function: sass.Function) -> bool:
    """Whether it is the form of the main loop in warpgroup_loop.cuh: large tiles, aligned rows."""
    large = "6TilingILi2ELi4EEELb1E" in function.name
    return function.architecture == "sm_90a" and large


def tensor_type(function: sass.Function) -> str:
    """What its engine multiplies on tensor cores, or nothing."""
    if "TensorEngineIf" in function.name:
        return "tf32"
    if kernel_of(function) not in LOOP_KERNELS:
        return ""
    return "bf16" if "8BFloat16" in function.name else "f16"


@functools.cache
def functions() -> tuple[sass.Function, ...]:
    """All kernels in all archives."""
    program = cuobjdump()
    assert program is not None, (
        "cuobjdump or nvdisasm is missing: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
    )
    texts = [
        subprocess.run([program, "-sass", path], check=True, capture_output=True, text=True).stdout
        for path in FILES
        if path.name.endswith("_device.a")
    ]
    return tuple(function for text in texts for function in sass.functions(text))


def targets(option: str, archive: Path) -> set[str]:
    """Architectures of the code in an archive."""
    program = cuobjdump()
    assert program is not None
    command = [program, option, archive]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"\.(sm_\d+a?)\.", text))


class HostCodeTest(unittest.TestCase):
    def test_nothing_waits_or_allocates(self) -> None:
        """Launchers and handlers call these functions of CUDA's runtime and no other.

        Three of them are for loading, before XLA records anything. cuBLAS is found at run time.
        """
        calls: set[str] = set()
        for path in (path for path in FILES if path.suffix in {".a", ".lo"}):
            command = ["nm", "--undefined-only", path]
            text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            calls |= set(re.findall(r"\bU (cu(?:da|blas)\w+)", text))
        loading = {"cudaFuncGetAttributes", "cudaFuncSetAttribute", "cudaGetDevice"}
        assert calls == loading | {"cudaGetErrorString", "cudaGetLastError", "cudaMemcpyAsync"}


class InstructionsTest(unittest.TestCase):
    def test_sums_are_ordered_and_products_on_tensor_cores(self) -> None:
        found = set()
        bounds = counted()
        for function in functions():
            with self.subTest(kernel=function.name, architecture=function.architecture):
                assert ATOMIC.search(function.code) is None
                kind = tensor_type(function)
                if not kind:
                    assert TENSOR_INSTRUCTION.search(function.code) is None
                    continue
                kernel = kernel_of(function)
                check = check_warpgroups if has_warpgroups(function) else check_instructions
                check(kind, TENSOR_KERNELS[kernel][1], function.code, bounds[kind])
                found.add((kernel, kind, function.architecture))
        wanted = {(name, kind) for name, (kinds, _) in TENSOR_KERNELS.items() for kind in kinds}
        assert found == {(*pair, architecture) for pair in wanted for architecture in ARCHITECTURES}

    def test_the_patterns_know_the_instructions(self) -> None:
        for code in ("RED.E.ADD.F32.FTZ.RN", "REDG.E.ADD.F64.RN", "ATOMS.ADD", "ATOMG.E.CAS"):
            assert ATOMIC.search(f"/*0070*/  @P0 {code}.STRONG.GPU [R2.64], R5 ;"), code
        assert not ATOMIC.search("/*0070*/  REDUX.SUM UR4, R2 ;")

    def test_other_instructions_than_counted_are_found(self) -> None:
        line = "/*0070*/  HMMA.{}.F32.TF32 R4, R8, R12, R4 ;\n"
        bound = Counted(terms=4, instructions=2)
        check_instructions("tf32", 1, 2 * line.format(1684), bound)
        with pytest.raises(AssertionError, match=r"counts HMMA.1684.F32.TF32, there are"):
            check_instructions("tf32", 1, 2 * line.format(1688), bound)
        with pytest.raises(AssertionError, match="2 instructions for a chunk of tf32, there are 3"):
            check_instructions("tf32", 1, 3 * line.format(1684), bound)
        for other in ("UTCHMMA.2CTA gdesc[UR4]", "HGMMA.64x64x16.F32 R4", "WARPSYNC.COLLECTIVE R4"):
            assert bool(TENSOR_INSTRUCTION.search(other)) == (other[0] != "W")


class LoopsTest(unittest.TestCase):
    def test_main_loops_of_dense_kernels_pass_the_gates(self) -> None:
        for function in dense():
            name = limits.name_of(function)
            with self.subTest(kernel=function.name, architecture=function.architecture):
                found = limits.problems(function)
                assert not found, f"the main loop of {name}, {function.architecture}, has: {found}"

    def test_what_is_let_through_is_there(self) -> None:
        assert limits.unused(dense()) == [], "take it out of benchmarks/gpu/cycles/limits.py"


def dense() -> list[sass.Function]:
    """Kernels on tensor cores."""
    return [one for one in functions() if any(map(gates.opcodes.is_tensor, one.instructions))]


class TargetsTest(unittest.TestCase):
    def test_every_archive_has_code_for_the_same_gpus(self) -> None:
        for path in (path for path in FILES if path.name.endswith("_device.a")):
            with self.subTest(archive=path.name):
                assert targets("--list-elf", path) == ARCHITECTURES
                assert targets("--list-ptx", path) == PTX


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
