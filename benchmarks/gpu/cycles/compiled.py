"""Compiled: kernels out of files that nvcc made: archives, cubins, or text of cuobjdump."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.gpu.cycles import counts, sass
from benchmarks.gpu.cycles.model import Kernel
from benchmarks.gpu.cycles.sass import Function

USAGE = re.compile(r"Function (\S+?):\s*\n\s*REG:(\d+) .*?SHARED:(\d+)")


class Shape(NamedTuple):
    """What the machine code does not say of a kernel."""

    label: str
    tile: tuple[int, int]
    warps: int
    threads: int = 0
    shared: int = 0  # bytes that are asked for at the launch
    products: int = 1
    load_bytes: int = 0


def cuobjdump() -> str | None:
    """The program, with nvdisasm where it finds it."""
    folder = Path(sysconfig.get_paths()["purelib"], "nvidia", "cu13", "bin")
    if (folder / "nvdisasm").exists():
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    return shutil.which("cuobjdump") if shutil.which("nvdisasm") else None


def dump(path: Path, *options: str) -> str:
    """What cuobjdump prints of a file."""
    program = cuobjdump()
    if program is None:
        raise RuntimeError(
            "cuobjdump or nvdisasm is missing: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
        )
    return subprocess.run(
        [program, *options, path], check=True, capture_output=True, text=True
    ).stdout


def functions(path: Path, *options: str) -> Iterator[Function]:
    """All kernels of a file; `-arch sm_80` and `-fun name` leave others out."""
    text = path.read_text() if path.suffix == ".sass" else dump(path, "-sass", *options)
    return sass.functions(text)


def in_folder(folder: Path) -> Iterator[Function]:
    """All kernels in the archives of a folder."""
    for path in sorted(folder.glob("lib*_device.a")):
        yield from functions(path)


def usage(path: Path, *options: str) -> dict[str, tuple[int, int]]:
    """Registers and static bytes of shared memory of every kernel."""
    text = dump(path, "-res-usage", *options)
    return {name: (int(registers), int(shared)) for name, registers, shared in USAGE.findall(text)}


def read_kernel(function: Function, shape: Shape, used: tuple[int, int]) -> Kernel:
    """A kernel of the model; several main loops count as turns of one, on average."""
    ways = counts.main_loops(function)
    if not ways:
        raise ValueError(f"{function.name} has no loop with products.")
    turns = [counts.count(way) for way in ways]
    inside = {one.address for way in ways for one in way}
    outside = sum(one.address not in inside for one in function.instructions)
    whole = counts.mean(turns)
    registers, shared = used
    return Kernel(
        shape.label, whole, shape.warps, shape.tile, registers, shared + shape.shared, outside,
        shape.products, shape.threads, shape.load_bytes,
    )  # fmt: skip
