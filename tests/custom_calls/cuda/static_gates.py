"""What the compiled kernels must show without a GPU.

    bazel test --config=cuda //tests/custom_calls/cuda:static_gates

    ptxas      no spills, no stack, at most 255 registers and 48 KB of shared memory
    SASS       no atomic operation on floating-point numbers; tensor cores in the dense kernels

The arguments are the files that nvcc made: `*.resources.txt`, and archives `*.a`. SASS is read with
cuobjdump and nvdisasm of the packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm, or of PATH.
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
# Kernels that multiply on tensor cores, and what the name of the instruction says for each element type.
TENSOR_KERNELS = {"GhostKernel", "ProductKernel", "ScaledProductsKernel"}
TENSOR_TYPES = {"8BFloat16": "HMMA.*BF16", "7Float16": "HMMA", "TensorEngineIf": "HMMA.*TF32"}
FLOAT_ATOMIC = re.compile(r"\b(RED|ATOM[GS]?)\b\S*\.(F16|F32|F64|BF16)")
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
        assert {use.architecture for use in found} >= {"sm_80", "sm_90", "sm_100"}
        for use in found:
            with self.subTest(kernel=use.kernel, architecture=use.architecture):
                assert use.spills == 0
                assert use.stack == 0
                assert use.registers <= MAX_REGISTERS
                assert use.shared <= MAX_SHARED_BYTES


class InstructionsTest(unittest.TestCase):
    def test_sums_are_ordered_and_products_on_tensor_cores(self) -> None:
        program = cuobjdump()
        if program is None:
            self.skipTest(
                "neither cuobjdump nor nvdisasm: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
            )
        tensor_kernels = set()
        for path in (path for path in FILES if path.suffix == ".a"):
            text = subprocess.run(
                [program, "-sass", path], check=True, capture_output=True, text=True
            ).stdout
            for body in text.split("Function : ")[1:]:
                name = body.split("\n", 1)[0]
                assert FLOAT_ATOMIC.search(body) is None, name
                tensor_kernels |= self.check_tensor_cores(name, body)
        assert tensor_kernels == TENSOR_KERNELS

    def check_tensor_cores(self, name: str, body: str) -> set[str]:
        for kernel in TENSOR_KERNELS:
            for kind, instruction in TENSOR_TYPES.items():
                if kernel in name and kind in name and "TensorEngine" in name:
                    assert re.search(instruction, body), name
                    return {kernel}
        return set()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
