"""Validates the model on kernels of others, whose rates were published.

    python -m benchmarks.gpu.cycles.validate --cutlass FOLDER --cublas libcublasLt.so.13

FOLDER holds CUTLASS's headers (`cutlass_library/source/include` of the package nvidia-cutlass), which
two small programs are compiled with, in a minute. libcublasLt.so.13 is in the package nvidia-cublas,
and takes some minutes to be taken apart. Either may be left out. Nothing of them is kept.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu.cycles import architectures, compiled, model
from benchmarks.gpu.cycles.published import KNOWN, PROBES, Known
from benchmarks.gpu.cycles.traffic import Product, product_work

NVCC = ("nvcc", "-std=c++17", "-O3", "-DNDEBUG", "-cubin", "--expt-relaxed-constexpr", "-w")


def compile_probe(include: Path, target: str, folder: Path) -> Path:
    """CUTLASS's kernels, in a temporary folder."""
    source, cubin = folder / f"{target}.cu", folder / f"{target}.cubin"
    source.write_text(PROBES[target])
    subprocess.run([*NVCC, f"-arch={target}", f"-I{include}", source, "-o", cubin], check=True)
    return cubin


def extract(library: Path, target: str, folder: Path) -> list[Path]:
    """All code of a library for one architecture, in files of a temporary folder."""
    place = folder / target
    place.mkdir()
    program = compiled.cuobjdump()
    assert program is not None
    command = [program, "-xelf", f".{target}.", library.resolve()]
    subprocess.run(command, check=True, capture_output=True, cwd=place)
    return sorted(place.glob("*.cubin"))


def read(known: Known, files: list[Path]) -> model.Kernel:
    """The kernel, out of the file that has it."""
    for path in files:
        if known.pattern.encode() not in path.read_bytes():
            continue
        used = compiled.usage(path)
        name = next((name for name in used if known.pattern in name), None)
        if name is None:
            continue
        function = next(compiled.functions(path, "-fun", name))
        return compiled.read_kernel(function, known.shape, used[name])
    raise ValueError(f"no kernel {known.pattern} in {len(files)} files of {known.origin}.")


def row(known: Known, kernel: model.Kernel) -> str:
    """Computed beside published."""
    gpu = architectures.find(known.gpu)
    product = Product(*known.sizes, itemsize=known.itemsize, written=known.written)
    seconds = model.seconds(kernel, gpu, product_work(kernel, gpu, product))
    m, n, k = known.sizes
    rate = 2.0 * m * n * k / seconds
    limit = model.bound(kernel, gpu).limit
    mark = " (fitted)" if known.is_fitted else ""
    return (
        f"| {kernel.name} | {known.gpu} | {m} x {n} x {k} | {kernel.turn.per_product:.2f} | "
        f"{model.cap(kernel, gpu):.0%}, {limit} | {rate / 1e12:.1f} | {known.rate / 1e12:.1f} | "
        f"{rate / known.rate - 1:+.0%}{mark} | {known.source} |"
    )


def table(cutlass: Path | None, cublas: Path | None) -> Iterator[str]:
    """Rows of all kernels that there are files for."""
    yield (
        "| kernel | GPU | product | instructions per product | cap | TF/s, computed | TF/s, published | "
        "difference | source |"
    )
    yield "|---" * 9 + "|"
    files: dict[str, list[Path]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if cutlass is not None:
            files["cutlass"] = [compile_probe(cutlass, "sm_80", folder)]
            files["cutlass_90"] = [compile_probe(cutlass, "sm_90a", folder)]
        if cublas is not None:
            for target in sorted(
                {known.origin for known in KNOWN if known.origin.startswith("sm_")}
            ):
                files[target] = extract(cublas, target, folder)
        for known in KNOWN:
            if known.origin in files:
                yield row(known, read(known, files[known.origin]))


def main() -> None:
    """The table of the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cutlass", type=Path, help="folder with cutlass/gemm/device/gemm.h")
    parser.add_argument("--cublas", type=Path, help="libcublasLt.so.13")
    arguments = parser.parse_args()
    print("\n".join(table(arguments.cutlass, arguments.cublas)))


if __name__ == "__main__":
    main()
