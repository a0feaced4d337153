"""The arguments of `bk-hlo`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bk_jax.hlo import lint
from bk_jax.hlo.context import Limits

SOURCE = "a folder made with --xla_dump_to, or one .txt, .pb or .mlir file"
FORMATS = ("text", "json", "sarif", "junit")
CODES = """exit codes:
  0  all is well
  1  lint found something
  2  an argument is wrong, or something could not be read; the rest of a folder is still shown
  3  a mistake in bk-hlo itself
"""
GIGABYTE = 10**9

Commands = Mapping[str, Callable[[argparse.Namespace], Any]]


def make_parser(commands: Commands) -> argparse.ArgumentParser:
    """For `commands` by name: summary, calls, lint, diff, graph and html."""
    parser = argparse.ArgumentParser(
        prog="bk-hlo", description="Shows what XLA compiled a private train step to.",
        epilog=CODES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    added = parser.add_subparsers(required=True, metavar="COMMAND")
    made = {
        name: _add_command(added, name, text, commands[name])
        for name, text in {
            "summary": "modules, operations, costs and memory",
            "calls": "every bk call: layer, shapes, cost, copies beside it",
            "lint": "what makes the step slower than it should be",
            "diff": "two programs, such as ordinary and private",
            "graph": "what stands around an instruction",
            "html": "one page for a browser: memory, operations, graphs",
        }.items()
    }
    made["summary"].add_argument("--all", action="store_true", help="every module in full")
    made["diff"].add_argument("other", metavar="AFTER", help=SOURCE)
    out = Path("program.html")
    made["html"].add_argument("--out", type=Path, default=out, help=f"default: {out}")
    _add_lint(made["lint"])
    _add_graph(made["graph"])
    return parser


# What `--module` selects: some commands show every match, others one.
_EVERY = "modules whose name fits, such as 'jit_*', instead of the train step"
_MODULE = {
    "summary": "modules whose name fits, such as 'jit_*', in full, and no others",
    "calls": _EVERY,
    "lint": _EVERY,
    "diff": "the first module of each side whose name fits, such as 'jit_*', instead of the train step",
}
_ONE = (
    "the first module (as summary lists them) whose name fits, such as 'jit_*'; default: train step"
)


def _add_command(commands: Any, name: str, text: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, epilog=CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.set_defaults(run=run)
    parser.add_argument("source", metavar="SOURCE", help=SOURCE)
    if name not in ("graph", "html"):
        parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--module", metavar="PATTERN", help=_MODULE.get(name, _ONE))
    parser.add_argument(
        "--stage", choices=("after", "before"), default="after",
        help="which programs of a folder: after or before XLA's optimizations",
    )  # fmt: skip
    parser.add_argument(
        "--memory", type=_gigabytes, metavar="GB",
        help="what reading may take; default: 2, and 100 bytes for each byte of the input",
    )  # fmt: skip
    return parser


def _add_lint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--explain", type=Path, help="a file with `.explain(...).to_json()`")
    parser.add_argument("--batch-size", type=_positive, help="examples, if the program cannot tell")
    parser.add_argument("--only", action="append", choices=list(lint.RULES), help="run this rule")
    parser.add_argument("--format", choices=FORMATS, default="text")
    for name, value in vars(Limits()).items():
        parser.add_argument(
            f"--{name}-limit", type=int, default=value, metavar="BYTES",
            help=f"default: {value}",
        )  # fmt: skip


def _add_graph(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="an instruction")
    parser.add_argument("--depth", type=_positive, default=2, help="steps in both directions (2)")
    parser.add_argument("--svg", type=Path, help="write a picture to this file")
    parser.add_argument("--dot", type=Path, help="write DOT to this file instead of printing it")


def _positive(text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or not int(text):
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return int(text)


def _gigabytes(text: str) -> int:
    return _positive(text) * GIGABYTE
