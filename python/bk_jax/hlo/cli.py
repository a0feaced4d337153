"""The command `bk-hlo`."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bk_jax.hlo import formats, graph, lint, parse
from bk_jax.hlo.calls import calls_text, find_calls
from bk_jax.hlo.collector import collector_paused
from bk_jax.hlo.context import Limits
from bk_jax.hlo.diff import compare
from bk_jax.hlo.loading import load
from bk_jax.hlo.model import HloError, Module
from bk_jax.hlo.page import to_html
from bk_jax.hlo.picture import to_svg
from bk_jax.hlo.summary import summaries_text, summarize
from bk_jax.hlo.table import si

SOURCE = "a folder made with --xla_dump_to, or one .txt, .pb or .mlir file"
FORMATS = ("text", "json", "sarif", "junit")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command: 0 if all is well, 1 if lint found something, 2 if there was an error."""
    options = _make_parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.run
    try:
        parse.parser.start()
        with collector_paused():
            return command(options)
    except (HloError, ImportError) as error:
        print(f"bk-hlo: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"bk-hlo: {error}", file=sys.stderr)
        return 2


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bk-hlo", description="Shows what XLA compiled a private train step to."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    summary = _add_command(commands, _summary, "modules, operations, costs and memory")
    summary.add_argument("--all", action="store_true", help="every module in full")
    _add_command(commands, _calls, "every bk call: layer, shapes, cost, copies beside it")
    _add_lint(_add_command(commands, _lint, "what makes the step slower than it should be"))
    compared = _add_command(commands, _diff, "two programs, such as ordinary and private")
    compared.add_argument("other", metavar="AFTER", help=SOURCE)
    _add_graph(_add_command(commands, _graph, "what stands around an instruction"))
    page = _add_command(commands, _html, "one page for a browser: memory, operations, graphs")
    page.add_argument("--out", type=Path, default=Path("program.html"), help="(program.html)")
    return parser


def _add_command(commands: Any, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        run.__name__[1:], help=text, description=text
    )
    parser.set_defaults(run=run)
    parser.add_argument("source", metavar="SOURCE", help=SOURCE)
    if run not in (_graph, _html):
        parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--module", metavar="PATTERN", help="modules by name; default: train step")
    parser.add_argument(
        "--stage", choices=("after", "before"), default="after",
        help="which programs of a folder: after or before XLA's optimizations",
    )  # fmt: skip
    return parser


def _add_lint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--explain", type=Path, help="a file with `.explain(...).to_json()`")
    parser.add_argument("--batch-size", type=int, help="examples, where the program can not tell")
    parser.add_argument("--only", action="append", choices=list(lint.RULES), help="run this rule")
    parser.add_argument("--format", choices=FORMATS, default="text")
    for name, value in vars(Limits()).items():
        parser.add_argument(
            f"--{name}-limit", type=int, default=value, metavar="BYTES",
            help=f"default: {value}",
        )  # fmt: skip


def _add_graph(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="an instruction")
    parser.add_argument("--depth", type=int, default=2, help="steps in both directions (2)")
    parser.add_argument("--svg", type=Path, help="write a picture to this file")
    parser.add_argument("--dot", type=Path, help="write DOT to this file instead of printing it")


def _select(source: str, options: argparse.Namespace, every: bool = False) -> list[Module]:
    """The modules asked for; without a pattern the train step, or all of them."""
    modules = load(source, options.stage)
    if options.module is None:
        return modules if every else modules[:1]
    chosen = [m for m in modules if fnmatch.fnmatchcase(m.name, options.module)]
    if not chosen:
        names = ", ".join(m.name for m in modules)
        raise HloError(f"no module is named {options.module!r}; there are {names}.")
    return chosen


def _summary(options: argparse.Namespace) -> int:
    summaries = [summarize(module) for module in _select(options.source, options, every=True)]
    in_full = len(summaries) if options.all or options.module else 1
    data = [summary.to_dict() for summary in summaries]
    _print(options.json, data, summaries_text(summaries, in_full))
    return 0


def _calls(options: argparse.Namespace) -> int:
    modules = _select(options.source, options)
    data = [{"module": m.name, "calls": [_as_dict(c) for c in find_calls(m)]} for m in modules]
    _print(options.json, data, "\n\n".join(calls_text(module) for module in modules))
    return 0


def _as_dict(call: Any) -> dict[str, Any]:
    return {**vars(call), "neighbours": [vars(neighbour) for neighbour in call.neighbours]}


def _lint(options: argparse.Namespace) -> int:
    explanation = options.explain.read_bytes() if options.explain else None
    limits = Limits(options.gradient_limit, options.layout_limit, options.collective_limit)
    found = [
        (m, lint.check(m, explanation=explanation, batch_size=options.batch_size, limits=limits,
                       only=options.only))
        for m in _select(options.source, options)
    ]  # fmt: skip
    form = "json" if options.json else options.format
    if form == "junit":
        print(formats.junit(found))
    else:
        plain = [lint.findings_dict(module, findings) for module, findings in found]
        text = "\n\n".join(lint.findings_text(module, findings) for module, findings in found)
        _print(form != "text", formats.sarif(found) if form == "sarif" else plain, text)
    return int(any(lint.fails(findings) for _, findings in found))


def _diff(options: argparse.Namespace) -> int:
    before, after = (_select(source, options)[0] for source in (options.source, options.other))
    difference = compare(before, after)
    _print(options.json, difference.to_dict(), str(difference))
    return 0


def _graph(options: argparse.Namespace) -> int:
    found = graph.neighbourhood(_select(options.source, options)[0], options.name, options.depth)
    if options.svg:
        options.svg.write_text(to_svg(found))
    if options.dot:
        options.dot.write_text(graph.to_dot(found))
    elif not options.svg:
        print(graph.to_dot(found), end="")
    return 0


def _html(options: argparse.Namespace) -> int:
    text = to_html(_select(options.source, options)[0])
    options.out.write_text(text, encoding="utf-8")
    print(f"{options.out}: {si(len(text), 'B')}")
    return 0


def _print(as_json: bool, data: Any, text: str) -> None:
    print(json.dumps(data, indent=1) if as_json else text)


if __name__ == "__main__":
    sys.exit(main())
