"""Checks our C++: clang-format on every file, clang-tidy on every file that Bazel compiles.

    python tools/lint_cpp.py format [--fix]
    python tools/lint_cpp.py tidy

clang-tidy gets the exact flags of the build: they come from `bazel aquery` and are also written to
compile_commands.json for editors. A file that was clean is not checked again until it, a header of
ours, its flags or `.clang-tidy` change; in another checkout neither, if both have BK_JAX_CACHE.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import bazel

FORMATTED = ("*.cc", "*.h", "*.cu", "*.cuh", "*.inc")
OURS = re.compile(r"^(custom_calls|xla_plugin|tests|benchmarks)/")
CLEAN = (bazel.cache() or bazel.ROOT / "build") / "clang-tidy"
# Flags of the gcc command line that clang-tidy, being clang, does not know or must not act on.
FOREIGN_FLAGS = ("-fno-canonical-system-headers", "-Wno-free-nonheap-object", "-MD")
FLAGS_WITH_VALUE = ("-MF", "-o", "-c")
EXTERNAL = re.compile(r"^(-I)?external/")
OF_A_CHECKOUT = re.compile(
    r"[^=]*/external/"
)  # where Bazel keeps other repositories for one checkout


@dataclass(frozen=True)
class Command:
    """How one of our source files is compiled."""

    source: str
    arguments: tuple[str, ...]


def tracked(patterns: Iterable[str]) -> list[str]:
    """Files of ours that git knows or would add."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(
        listing, cwd=bazel.ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()
    return sorted({name for name in names if (bazel.ROOT / name).exists()})


def check_format(fix: bool) -> int:
    files = tracked(FORMATTED)
    if not files:
        return 0
    mode = ["-i"] if fix else ["--dry-run", "--Werror"]
    return subprocess.run(
        ["clang-format", *mode, "--style=file", *files], cwd=bazel.ROOT, check=False
    ).returncode


def clang_flags(arguments: list[str], output_base: str) -> list[str]:
    """The compiler's arguments without what is about outputs and what only gcc knows.

    Headers of other repositories are named by where Bazel keeps them: the folder it compiles in
    has links to them only while a build needs them.
    """
    kept = []
    remaining = iter(arguments[1:])
    for argument in remaining:
        if argument in FLAGS_WITH_VALUE:
            next(remaining)
        elif argument not in FOREIGN_FLAGS:
            kept.append(EXTERNAL.sub(rf"\1{output_base}/external/", argument))
    return kept


def compile_commands() -> list[Command]:
    """One command for each of our source files, from Bazel's action graph."""
    output_base = bazel.capture("info", "output_base").strip()
    query = 'mnemonic("CppCompile", //...)'
    graph = json.loads(bazel.capture("aquery", "--output=jsonproto", query))
    commands: dict[str, Command] = {}
    for action in graph.get("actions", []):
        arguments = action["arguments"]
        source = arguments[arguments.index("-c") + 1]
        if OURS.match(source):
            flags = clang_flags(arguments, output_base)
            compiler = "clang" if source.endswith(".c") else "clang++"
            commands[source] = Command(source, (compiler, *flags, "-c", source))
    return [commands[source] for source in sorted(commands)]


def write_database(commands: list[Command]) -> None:
    """Writes compile_commands.json, for clang-tidy and for editors."""
    entries = [
        {"file": command.source, "directory": str(bazel.ROOT), "arguments": command.arguments}
        for command in commands
    ]
    (bazel.ROOT / "compile_commands.json").write_text(json.dumps(entries, indent=1))


def fingerprint(command: Command, shared: bytes) -> str:
    """Names the exact input of one check; `shared` stands for the headers and the configuration."""
    content = (bazel.ROOT / command.source).read_bytes()
    text = "\0".join(OF_A_CHECKOUT.sub("external/", flag) for flag in command.arguments)
    return hashlib.sha256(shared + content + text.encode()).hexdigest()


def tidy(command: Command, stamp: Path) -> bool:
    """Checks one file and remembers it when it is clean."""
    result = subprocess.run(
        ["clang-tidy", "--quiet", "--warnings-as-errors=*", f"-p={bazel.ROOT}", command.source],
        cwd=bazel.ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        print(f"{command.source}:\n{result.stdout}{result.stderr}", flush=True)
        return False
    stamp.touch()
    return True


def check_tidy() -> int:
    commands = compile_commands()
    write_database(commands)
    headers = tracked(("*.h", "*.inc", "*.cuh", ".clang-tidy"))
    shared = hashlib.sha256(b"".join((bazel.ROOT / name).read_bytes() for name in headers)).digest()
    CLEAN.mkdir(parents=True, exist_ok=True)
    stamps = {command: CLEAN / fingerprint(command, shared) for command in commands}
    pending = [command for command, stamp in stamps.items() if not stamp.exists()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        clean = list(pool.map(lambda command: tidy(command, stamps[command]), pending))
    for stale in set() if bazel.cache() else set(CLEAN.iterdir()) - set(stamps.values()):
        stale.unlink()
    print(f"clang-tidy: {len(pending)} of {len(commands)} files checked, {clean.count(False)} fail")
    return 0 if all(clean) else 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("check", choices=["format", "tidy"])
    parser.add_argument("--fix", action="store_true", help="rewrite files (format only)")
    arguments = parser.parse_args()
    sys.exit(check_format(arguments.fix) if arguments.check == "format" else check_tidy())


if __name__ == "__main__":
    main()
