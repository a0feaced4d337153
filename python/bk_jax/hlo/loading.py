"""Loading: programs from files, from folders that XLA dumped, and from JAX's own objects."""

from __future__ import annotations

import dataclasses
import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from jaxlib import version as jaxlib_version

from bk_jax.hlo import cost, schema
from bk_jax.hlo.memory import read_assignment, read_assignment_text
from bk_jax.hlo.model import HloError, HloWarning, Memory, Module
from bk_jax.hlo.parse import parser
from bk_jax.hlo.read import Names, read_program
from bk_jax.hlo.table import printable

MAX_BYTES = 1 << 30
ENDINGS = (".txt", ".hlo", ".pb", ".mlir", ".mlirbc", ".stablehlo")
_DUMPED = re.compile(
    r"^(?P<module>module_\d+\..*?)\.(?P<stage>before_optimizations|\w*after_optimizations)"
    r"\.(?P<ending>hlo\.pb|txt)$"
)


def load(source: Any, stage: str = "after") -> list[Module]:
    """The programs in `source`, the train step first.

    Args:
      source: a folder made with `--xla_dump_to`, one file (`.txt`, `.pb`, `.mlir`), a
        `jax.stages.Lowered` or a `jax.stages.Compiled`.
      stage: for a folder, the programs `"after"` or `"before"` XLA's optimizations; if those are
        missing, the others.

    Raises:
      HloError: if nothing can be read. Unreadable files in a folder are skipped with an
        `HloWarning`.

    >>> import jax, jax.numpy as jnp
    >>> module, = load(jax.jit(lambda x: x @ x).lower(jnp.ones((2, 2))).compile())
    >>> module.name, [str(p.shape) for p in module.parameters]
    ('jit__lambda', ['f32[2,2]'])
    """
    if stage not in ("after", "before"):
        raise HloError(f'stage must be "after" or "before", got {stage!r}.')
    if hasattr(source, "runtime_executable"):
        return train_step_first(_from_compiled(source))
    if hasattr(source, "compiler_ir"):
        return [_from_lowered(source)]
    if not isinstance(source, (str, os.PathLike)):
        raise HloError(
            "expected a path, a jax.stages.Lowered or a jax.stages.Compiled, got "
            f"{type(source).__name__}."
        )
    loaded = load_path(Path(source), stage)
    for problem in loaded.problems:
        warnings.warn(f"left out {problem}", HloWarning, stacklevel=2)
    return loaded.modules


class Loaded(NamedTuple):
    """Modules, the train step first, and why files of a folder are missing."""

    modules: list[Module]
    problems: list[str]


def load_path(path: Path, stage: str = "after") -> Loaded:
    """The programs in a file or a folder; a folder may hold some that cannot be read."""
    if not path.is_dir():
        return Loaded([read_file(path)], [])
    modules, problems = [], []
    for file in dumped_files(path, stage):
        try:
            modules.append(read_file(file))
        except HloError as error:
            problems.append(str(error))
    if not modules:
        others = f" And {len(problems) - 1} more of this folder." if problems[1:] else ""
        raise HloError(problems[0] + others)
    return Loaded(train_step_first(modules), problems)


def train_step_first(modules: Iterable[Module]) -> list[Module]:
    """Modules by number of our calls, then by flops."""
    modules = list(modules)
    if len(modules) < 2:
        return modules
    return sorted(modules, key=lambda m: (-len(m.bk_calls), -cost.total(m).flops))


def size_of(path: Path, stage: str) -> int:
    """Bytes of the files to be read."""
    files = dumped_files(path, stage) if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _from_compiled(compiled: Any) -> list[Module]:
    executable = compiled.runtime_executable()
    modules = []
    for found in executable.hlo_modules():
        data = found.as_serialized_hlo_module_proto()
        module, names = read_program(data, "Compiled", "after")
        modules.append(dataclasses.replace(module, memory=_compiled_memory(compiled, names)))
    return modules


def _compiled_memory(compiled: Any, names: Names) -> Memory | None:
    analysis = compiled.memory_analysis()
    if analysis is None or not analysis.serialized_buffer_assignment_proto:
        return None
    peak = getattr(analysis, "peak_memory_in_bytes", None)
    return read_assignment(analysis.serialized_buffer_assignment_proto, names, peak)


def _from_lowered(lowered: Any) -> Module:
    text = lowered.as_text(debug_info=True).encode()
    return read_program(parser.canonical("M", text), "Lowered", "before").module


def read_file(path: Path) -> Module:
    """One program; every failure is an `HloError` that names the file."""
    try:
        data = _contents(path)
        return _read(path, data)
    except HloError as error:
        why = f"{error} (read with jaxlib {jaxlib_version.__version__})"
    except MemoryError:
        why = "it takes more memory than is allowed (--memory)."
    except OSError as error:
        why = error.strerror or str(error)
    raise HloError(printable(f"{path}: {why}"))


def _contents(path: Path) -> bytes:
    if not path.is_file() and path.exists():
        raise HloError("not a regular file.")
    size = path.stat().st_size
    if not size:
        raise HloError("the file is empty.")
    if size > MAX_BYTES:
        raise HloError(f"{size} bytes are more than the limit of {MAX_BYTES}.")
    return path.read_bytes()


def _read(path: Path, data: bytes) -> Module:
    ending, source = path.suffix.lower(), printable(str(path))
    stage = "before" if "before_optimizations" in path.name or ending in _MLIR else "after"
    if ending == ".pb":
        return _read_proto(data, source, stage)
    if ending in _MLIR or data.startswith(b"ML\xefR"):
        program = parser.canonical("M", _checked(ending, data))
        return read_program(program, source, "before").module
    if b"HloModule" in data[:4096]:
        program = parser.canonical("T", _checked(ending, data))
        module = read_program(program, source, stage).module
        return dataclasses.replace(module, memory=_memory_beside(path))
    raise HloError(
        "neither HLO text (it would begin with `HloModule`) nor a file that ends in "
        f"{', '.join(e for e in ENDINGS if e != '.txt')}."
    )


_MLIR = (".mlir", ".mlirbc", ".stablehlo")


def _checked(ending: str, data: bytes) -> bytes:
    if not data.startswith(b"ML\xefR"):
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise HloError(f"{ending} should be text, but byte {error.start} is not.") from None
    return data


def _read_proto(data: bytes, source: str, stage: str) -> Module:
    """A `HloProto` (as dumped, with buffers) or a bare `HloModuleProto`."""
    found = schema.parse("File", data)
    is_bare = bool(found.entry_name)
    program = data if is_bare else found.program
    buffers = b"" if is_bare else found.buffers
    if not program:
        raise HloError("a protocol buffer without a program.")
    module, names = read_program(parser.canonical("P", program), source, stage)
    if not buffers:
        return module
    return dataclasses.replace(module, memory=read_assignment(buffers, names))


def _memory_beside(path: Path) -> Memory | None:
    report = path.with_name(f"{path.stem}-buffer-assignment.txt")
    if not report.is_file():
        return None
    return read_assignment_text(_contents(report).decode("utf-8", "replace"))


def dumped_files(folder: Path, stage: str) -> list[Path]:
    """One file per module of a dump; serialized files win over text, because they say more."""
    chosen: dict[str, tuple[tuple[bool, bool], Path]] = {}
    for path in sorted(folder.iterdir()):
        match = _DUMPED.match(path.name)
        if not match:
            continue
        is_other = ("after" in match["stage"]) != (stage == "after")
        rank = (is_other, match["ending"] == "txt")
        if match["module"] not in chosen or rank < chosen[match["module"]][0]:
            chosen[match["module"]] = rank, path
    paths = [path for _, path in chosen.values()] or _loose_files(folder)
    if not paths:
        raise HloError(
            f"{folder}: no program of XLA in it. Make one with "
            "XLA_FLAGS='--xla_dump_to=FOLDER --xla_dump_hlo_as_text --xla_dump_hlo_as_proto'."
        )
    return paths


def _loose_files(folder: Path) -> list[Path]:
    """StableHLO that JAX dumped (`JAX_DUMP_IR_TO`)."""
    return [path for path in sorted(folder.iterdir()) if path.suffix in _MLIR]
