"""What the compiled kernels must show without a GPU.

    bazel test --config=cuda //tests/custom_calls/cuda:static_gates

    ptxas      no spills, no stack, at most 255 registers and 48 KB of shared memory
    SASS       no atomic operation, so every sum has one order; tensor cores in the dense kernels
    archives   launchers and handlers neither wait for the device nor allocate

The arguments are the files that nvcc made, `*.resources.txt` and `*_device.a`, and the handlers. SASS
is read with cuobjdump and nvdisasm of the packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm, or
of PATH.
"""

from __future__ import annotations

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

MAX_REGISTERS = 255
MAX_SHARED_BYTES = 48 * 1024
ARCHITECTURES = {"sm_80", "sm_90", "sm_100"}
# The elements that tensor cores multiply in each dense kernel, and the instruction for them.
TENSOR_KERNELS = {
    "GhostKernel": {"bf16", "f16", "tf32"},
    "ProductKernel": {"bf16", "f16", "tf32"},
    "ScaledProductsKernel": {"bf16", "f16"},
    "ScaledRowsKernel": {"tf32"},
}
INSTRUCTIONS = {
    "bf16": r"\bHMMA\.\S*\.BF16\b",
    "f16": r"\bHMMA\.16816\.F32 ",
    "tf32": r"\bHMMA\.\S*\.TF32\b",
}
ATOMIC = re.compile(r"\b(RED(?!UX)|ATOM)[A-Z]*\b")  # REDUX adds up integers of a warp
FILES = [Path(name) for name in sys.argv[1:]]


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


class Function(NamedTuple):
    """The machine code of one kernel for one architecture."""

    name: str
    architecture: str
    code: str

    def kernel(self) -> str:
        """`GhostKernel` of a mangled name."""
        found = re.search(r"\d([A-Z][A-Za-z]*Kernel)", self.name)
        return found.group(1) if found else self.name

    def tensor_type(self) -> str:
        """What its engine multiplies on tensor cores, or nothing."""
        if "TensorEngine" not in self.name:
            return ""
        if "TensorEngineIf" in self.name:
            return "tf32"
        return "bf16" if "8BFloat16" in self.name else "f16"


def functions() -> Iterator[Function]:
    """All kernels in all archives."""
    program = cuobjdump()
    assert program is not None, (
        "cuobjdump or nvdisasm is missing: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
    )
    for path in (path for path in FILES if path.name.endswith("_device.a")):
        command = [program, "-sass", path]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for part in re.split(r"^arch = ", text, flags=re.MULTILINE)[1:]:
            for body in part.split("Function : ")[1:]:
                name, code = body.split("\n", 1)
                yield Function(name, part.split("\n", 1)[0].strip(), code)


class HostCodeTest(unittest.TestCase):
    def test_nothing_waits_or_allocates(self) -> None:
        """Launchers and handlers call these functions of CUDA's runtime and no other."""
        calls: set[str] = set()
        for path in (path for path in FILES if path.suffix in {".a", ".lo"}):
            command = ["nm", "--undefined-only", path]
            text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            calls |= set(re.findall(r"\bU (cuda\w+)", text))
        assert calls == {"cudaGetErrorString", "cudaGetLastError", "cudaMemcpyAsync"}


class InstructionsTest(unittest.TestCase):
    def test_sums_are_ordered_and_products_on_tensor_cores(self) -> None:
        found = set()
        for function in functions():
            with self.subTest(kernel=function.name, architecture=function.architecture):
                assert ATOMIC.search(function.code) is None
                if kind := function.tensor_type():
                    assert re.search(INSTRUCTIONS[kind], function.code)
                    found.add((function.kernel(), kind, function.architecture))
        wanted = {(kernel, kind) for kernel, kinds in TENSOR_KERNELS.items() for kind in kinds}
        assert found == {(*pair, architecture) for pair in wanted for architecture in ARCHITECTURES}

    def test_the_patterns_know_the_instructions(self) -> None:
        for code in ("RED.E.ADD.F32.FTZ.RN", "REDG.E.ADD.F64.RN", "ATOMS.ADD", "ATOMG.E.CAS"):
            assert ATOMIC.search(f"/*0070*/  @P0 {code}.STRONG.GPU [R2.64], R5 ;"), code
        assert not ATOMIC.search("/*0070*/  REDUX.SUM UR4, R2 ;")
        assert not re.search(INSTRUCTIONS["f16"], "HMMA.16816.F32.BF16 R4, R8, R12, R4 ;")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
