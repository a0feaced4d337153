"""Makes a large HLO dump, and measures how bk-hlo reads it: time and memory.

    python tools/large_dump.py make big.txt --megabytes 50
    python tools/large_dump.py measure big.txt

The dump is a compiled private train step, written out many times: a small decoder is compiled with
`bk_jax`, and the computations of its dumped text are repeated under new names, as an unrolled deep model
would have them, and called one after another.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEGABYTE = 1_000_000
_NAME = re.compile(r"%[\w.-]+")


def decoder_text() -> str:
    """The text that XLA dumps of a private step: four layers, named as module systems name them."""
    import jax
    import numpy as np

    import bk_jax

    shapes = {"q": (16, 16), "k": (16, 16), "up": (16, 64), "down": (64, 16)}
    layers = [{n: np.ones(s, np.float32) for n, s in shapes.items()} for _ in range(4)]
    step = jax.jit(bk_jax.dp_value_and_grad(_loss, noise_multiplier=0.0))
    lowered = step.lower({"layers": layers}, np.ones((4, 8, 16), np.float32))
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, str | bool] = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        lowered.compile(compiler_options=options)
        (path,) = Path(folder).glob("*cpu_after_optimizations.txt")
        return path.read_text()


def _loss(params: Any, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    for number, layer in enumerate(params["layers"]):
        with jax.named_scope(f"Decoder/transformer/h_{number}"):
            with jax.named_scope("attention"):
                scores = jnp.einsum("btd,bsd->bts", x @ layer["q"], x @ layer["k"])
                x = x + jnp.einsum("bts,bsd->btd", jax.nn.softmax(scores), x)
            with jax.named_scope("mlp"):
                x = x + jax.nn.gelu(x @ layer["up"]) @ layer["down"]
    return jnp.mean(x**2)


def repeated(text: str, size: int) -> str:
    """A module of about `size` bytes: the computations of `text` again and again, called in turn."""
    head, tables, body = re.split(r"\n\n(?=FileNames)|\n\n(?=%)", text, maxsplit=2)
    before, entry = body.split("\nENTRY ")
    found = re.match(r"(%\S+) \(.*?\) -> (.*) \{\n", entry)
    assert found is not None, "no entry computation in the dump"
    arguments = re.findall(r"^  %\S+ = (\S+) parameter\((\d+)\)", entry, re.MULTILINE)
    lines = [f"  %argument.{n} = {shape} parameter({n})" for shape, n in arguments]
    operands = ", ".join(f"%argument.{n}" for n in range(len(arguments)))
    copies = max(1, size // len(body))
    for n in range(copies):
        root = "ROOT " if n == copies - 1 else ""
        lines.append(f"  {root}%step.{n} = {found[2]} call({operands}), to_apply={found[1]}.c{n}")
    parts = [f"{head.split(',')[0]}, is_scheduled=true\n\n{tables}"]
    for n in range(copies):
        parts.append(_NAME.sub(rf"\g<0>.c{n}", f"{before}\n{entry}"))
    return "\n\n".join([*parts, "ENTRY %all {\n" + "\n".join(lines) + "\n}\n"])


def make(path: Path, megabytes: float) -> None:
    text = decoder_text()
    size, made = int(megabytes * MEGABYTE), ""
    for _ in range(3):  # names grow with the number of copies
        made = repeated(text, size)
        size = int(size * megabytes * MEGABYTE / len(made)) + 1
    path.write_text(made)
    print(f"{path}: {len(made) / MEGABYTE:.1f} MB, {made.count(' = ')} instructions")


def measure(path: Path, command: str, times: int) -> None:
    """Runs a command of bk-hlo in processes of their own."""
    arguments = [sys.executable, "-m", "bk_jax.hlo.cli", command, str(path)]
    if command == "html":
        arguments += ["--out", os.devnull]
    seconds = [_timed(lambda: subprocess.run(arguments, check=True, capture_output=True))
               for _ in range(times)]  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    day = datetime.datetime.now(datetime.UTC).date()
    print(f"bk-hlo {command} {path.name}, {path.stat().st_size / MEGABYTE:.1f} MB: "
          f"{', '.join(f'{s:.1f} s' for s in seconds)}; largest process {peak:.2f} GB "
          f"({platform.machine()}, {os.cpu_count()} cores, {day})")  # fmt: skip


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    maker = commands.add_parser("make", help="write a dump")
    maker.add_argument("path", type=Path)
    maker.add_argument("--megabytes", type=float, default=50)
    maker.set_defaults(run=lambda o: make(o.path, o.megabytes))
    meter = commands.add_parser("measure", help="time bk-hlo on a dump")
    meter.add_argument("path", type=Path)
    meter.add_argument("--command", default="summary", choices=("summary", "calls", "lint", "html"))
    meter.add_argument("--times", type=int, default=3)
    meter.set_defaults(run=lambda o: measure(o.path, o.command, o.times))
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
