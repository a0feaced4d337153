"""The `bk-hlo` command: what it does with its arguments, and how it exits (`options.CODES`)."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bk_jax.hlo import formats, graph, lint, parse
from bk_jax.hlo.calls import calls_text, find_calls
from bk_jax.hlo.collector import collector_paused
from bk_jax.hlo.context import Limits
from bk_jax.hlo.diff import compare
from bk_jax.hlo.loading import load_path, size_of
from bk_jax.hlo.model import HloError, Module
from bk_jax.hlo.options import make_parser
from bk_jax.hlo.page import to_html
from bk_jax.hlo.picture import to_svg
from bk_jax.hlo.summary import summaries_text, summarize
from bk_jax.hlo.table import printable, si
from bk_jax.hlo.worker import limit_memory

FOUND, WRONG, MISTAKE = 1, 2, 3


class Answer(NamedTuple):
    """What a command prints, and its exit code."""

    text: str
    code: int = 0


def main(arguments: Sequence[str] | None = None, *, is_own_process: bool = False) -> int:
    """Runs a command and returns its exit code; limits memory if the process is our own."""
    options = make_parser(_COMMANDS).parse_args(arguments)
    options.problems = []
    try:
        parse.parser.start()
        parse.parser.memory = options.memory
        if is_own_process:
            _limit_memory(options)
        with collector_paused():
            answer = options.run(options)
    except (HloError, ImportError, OSError) as error:
        return _fail(str(error))
    except MemoryError:
        return _fail("it takes more memory than is allowed (--memory).")
    except Exception:
        lines = traceback.format_exc().splitlines()
        return _fail("a mistake in bk-hlo: please report it.", MISTAKE, lines)
    _write(answer.text)
    for problem in options.problems:
        _fail(f"left out {problem}")
    return WRONG if options.problems else answer.code


def script() -> int:
    """The command in its own process."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    return main(is_own_process=True)


def _limit_memory(options: argparse.Namespace) -> None:
    sources = [Path(options.source), *([Path(options.other)] if "other" in options else [])]
    size = sum(size_of(source, options.stage) for source in sources)
    limit_memory(options.memory or parse.memory_for(size))


def _fail(message: str, code: int = WRONG, lines: Sequence[str] = ()) -> int:
    for line in [*lines, f"bk-hlo: {message}"]:
        print(printable(line), file=sys.stderr)
    return code


def _write(text: str) -> None:
    """Prints; the reader may stop early, as `head` does."""
    try:
        print(text, end="\n" if text and not text.endswith("\n") else "", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _select(source: str, options: argparse.Namespace, every: bool = False) -> list[Module]:
    """The requested modules; without a pattern, the train step or all of them."""
    modules, problems = load_path(Path(source), options.stage)
    options.problems += problems
    if options.module is None:
        return modules if every else modules[:1]
    chosen = [m for m in modules if fnmatch.fnmatchcase(m.name, options.module)]
    if not chosen:
        names = ", ".join(dict.fromkeys(m.name for m in modules))
        raise HloError(f"no module is named {options.module!r}; there are {names[:500]}.")
    return chosen


def _summary(options: argparse.Namespace) -> Answer:
    summaries = [summarize(module) for module in _select(options.source, options, every=True)]
    if options.json:
        return _as_json([summary.to_dict() for summary in summaries])
    in_full = len(summaries) if options.all or options.module else 1
    return Answer(summaries_text(summaries, in_full))


def _calls(options: argparse.Namespace) -> Answer:
    modules = _select(options.source, options)
    if not options.json:
        return Answer("\n\n".join(calls_text(module) for module in modules))
    return _as_json(
        [{"module": m.name, "calls": [_as_dict(c) for c in find_calls(m)]} for m in modules]
    )


def _as_dict(call: Any) -> dict[str, Any]:
    return {**vars(call), "neighbours": [vars(neighbour) for neighbour in call.neighbours]}


def _lint(options: argparse.Namespace) -> Answer:
    explanation = options.explain.read_bytes() if options.explain else None
    limits = Limits(options.gradient_limit, options.layout_limit, options.collective_limit)
    found = [
        (m, lint.check(m, explanation=explanation, batch_size=options.batch_size, limits=limits,
                       only=options.only))
        for m in _select(options.source, options)
    ]  # fmt: skip
    code = FOUND if any(lint.fails(findings) for _, findings in found) else 0
    form = "json" if options.json else options.format
    if form == "junit":
        return Answer(formats.junit(found), code)
    if form == "sarif":
        return _as_json(formats.sarif(found), code)
    if form == "json":
        return _as_json([lint.findings_dict(*one) for one in found], code)
    return Answer("\n\n".join(lint.findings_text(*one) for one in found), code)


def _diff(options: argparse.Namespace) -> Answer:
    before, after = (_select(source, options)[0] for source in (options.source, options.other))
    difference = compare(before, after)
    return _as_json(difference.to_dict()) if options.json else Answer(str(difference))


def _graph(options: argparse.Namespace) -> Answer:
    found = graph.neighbourhood(_select(options.source, options)[0], options.name, options.depth)
    wanted = {options.svg: to_svg, options.dot: graph.to_dot}
    files = {path: draw for path, draw in wanted.items() if path is not None}
    for path, draw in files.items():
        path.write_text(draw(found), encoding="utf-8")
    return Answer("" if files else graph.to_dot(found))


def _html(options: argparse.Namespace) -> Answer:
    text = to_html(_select(options.source, options)[0])
    options.out.write_text(text, encoding="utf-8")
    return Answer(f"{options.out}: {si(len(text), 'B')}")


def _as_json(data: Any, code: int = 0) -> Answer:
    return Answer(json.dumps(data, indent=1), code)


_COMMANDS: dict[str, Callable[[argparse.Namespace], Answer]] = {
    "summary": _summary,
    "calls": _calls,
    "lint": _lint,
    "diff": _diff,
    "graph": _graph,
    "html": _html,
}


if __name__ == "__main__":
    sys.exit(script())
