"""Seconds of every operation of a step: measured by JAX's profiler, or predicted.

*Measured.* XLA reports each operation it executes by the name of its instruction in the compiled
program. On the CPU, an operation that hands work to the thread pool ends with a second event,
`end: NAME`, which carries the number of the first. At every moment of a step the time is divided
equally among the running operations. One that contains others (a loop, a call) counts only while
none of them runs. The rest belongs to no operation: XLA between operations, and Python. So the
parts add up to the step exactly.

*Predicted*, at the rates of the plain step:

    seconds = max(flops * seconds_per_flop, bytes * seconds_per_byte)

Flops and bytes are those of `bk_jax.hlo`, which knows our calls. The rate per flop is that of the
products of the plain step, the rate per byte that of its other operations. So the prediction for
the private step is the time it would take if its operations ran as XLA's do.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from bk_jax.hlo import cost, stacks
from bk_jax.hlo.model import PRODUCTS, Instruction, Module

HOLDING = frozenset({"while", "call", "conditional"})  # their work is that of what they call
WINDOW = "bk_tax:"


@dataclasses.dataclass(frozen=True)
class Profile:
    """Mean seconds of a step and of its operations; `""` is time outside them."""

    seconds: float
    operations: Mapping[str, float]
    steps: int


class Event(NamedTuple):
    """An event of the profiler, in nanoseconds."""

    name: str
    start: float
    end: float
    stats: Mapping[str, Any]


def record(runs: Mapping[str, Callable[[], Any]], rounds: int) -> list[Event]:
    """Runs the steps `rounds` times in turn under the profiler; returns what it recorded."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            for number in range(rounds):
                names = list(runs)[:: 1 if number % 2 == 0 else -1]
                for name in names:
                    with jax.profiler.TraceAnnotation(WINDOW + name):
                        jax.block_until_ready(runs[name]())
        files = sorted(Path(folder).rglob("*.xplane.pb"))
        return [event for file in files for event in _read(file)]


def _read(file: Path) -> Iterator[Event]:
    for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
        for line in plane.lines:
            for event in line.events:
                stats = {key: value for key, value in event.stats if key is not None}
                end = event.start_ns + event.duration_ns
                yield Event(event.name, event.start_ns, end, stats)


def summarize(
    events: Iterable[Event], name: str, instructions: Collection[str], holding: Collection[str]
) -> Profile | None:
    """The quieter half of the steps called `name`; None if none of their operations was seen.

    Args:
      events: what `record` returns.
      name: of the steps.
      instructions: names of the program's instructions; other events are ignored.
      holding: those of them that run others inside.
    """
    events = list(events)
    windows = sorted(
        ((e.start, e.end) for e in events if e.name == WINDOW + name), key=lambda w: w[1] - w[0]
    )
    spans = list(_operations(events, name, instructions, holding))
    quiet = windows[: (len(windows) + 1) // 2]
    if not spans or not quiet:
        return None
    totals: dict[str, float] = {}
    for start, end in quiet:
        inside = [span for span in spans if span.start < end and span.end > start]
        for operation, time in divide(start, end, inside).items():
            totals[operation] = totals.get(operation, 0.0) + time
    scale = 1e-9 / len(quiet)
    seconds = scale * sum(end - start for start, end in quiet)
    return Profile(seconds, {key: scale * time for key, time in totals.items()}, len(quiet))


def _operations(
    events: Iterable[Event], name: str, instructions: Collection[str], holding: Collection[str]
) -> Iterator[Span]:
    events = list(events)
    ends = {e.stats["_c"]: e.end for e in events if e.name.startswith("end: ") and "_c" in e.stats}
    for event in events:
        operation = event.stats.get("hlo_op")
        is_ours = str(event.stats.get("hlo_module", "")).endswith(f"bk_tax_{name}")
        if is_ours and operation in instructions:
            end = max(event.end, ends.get(event.stats.get("_p"), event.end))
            yield Span(str(operation), event.start, end, operation in holding)


class Span(NamedTuple):
    """An operation from `start` to `end`; `holds` if other operations run inside it."""

    name: str
    start: float
    end: float
    holds: bool = False


def divide(start: float, end: float, spans: Iterable[Span]) -> dict[str, float]:
    """Time of each operation between `start` and `end`; `""` is time with none running.

    >>> divide(0, 10, [Span("dot", 1, 5), Span("add", 3, 5), Span("while", 0, 6, holds=True)])
    {'while': 2.0, 'dot': 3.0, 'add': 1.0, '': 4.0}
    """
    cut = [s._replace(start=max(s.start, start), end=min(s.end, end)) for s in spans]
    edges = sorted(
        (time, kind, index)
        for index, span in enumerate(cut)
        if span.start < span.end
        for time, kind in ((span.start, 1), (span.end, 0))
    )
    out: dict[str, float] = {}
    running: dict[int, Span] = {}
    before, covered = start, 0.0
    for time, begins, index in edges:
        if running and time > before:
            _give(out, running, time - before)
            covered += time - before
        before = time
        if begins:
            running[index] = cut[index]
        else:
            del running[index]
    out[""] = end - start - covered
    return out


def _give(out: dict[str, float], running: dict[int, Span], duration: float) -> None:
    working = [s for s in running.values() if not s.holds] or list(running.values())
    for span in working:
        out[span.name] = out.get(span.name, 0.0) + duration / len(working)


def executed(module: Module) -> Iterator[Instruction]:
    """Instructions that run by themselves: not those inside a fusion or a reduction."""
    waiting, seen = [module.entry], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for instruction in module.computations[name].instructions:
            yield instruction
            if instruction.opcode in HOLDING:
                waiting += instruction.called


class Work(NamedTuple):
    """What an instruction does in one step."""

    flops: int
    nbytes: int
    is_product: bool


class Rates(NamedTuple):
    """What work costs."""

    seconds_per_flop: float
    seconds_per_byte: float

    def seconds(self, work: Work) -> float:
        """Predicted time."""
        return max(work.flops * self.seconds_per_flop, work.nbytes * self.seconds_per_byte)


def work_of(module: Module) -> dict[str, Work]:
    """Flops and bytes of every instruction that runs by itself, including the loops around it."""
    out = {}
    for instruction in executed(module):
        if instruction.opcode in HOLDING or instruction.opcode in cost.FREE:
            continue
        times = stacks.runs(module, instruction)
        flops, moved = cost.flops(module, instruction), cost.traffic(module, instruction)
        is_product = cost.kind_of(module, instruction) in PRODUCTS
        out[instruction.name] = Work(times * flops, times * moved, is_product)
    return out


def fit_rates(work: Mapping[str, Work], seconds: Mapping[str, float]) -> Rates:
    """Time over flops for the products that were seen, and over bytes for everything else.

    >>> work = {"dot": Work(100, 10, True), "add": Work(10, 20, False)}
    >>> fit_rates(work, {"dot": 200.0, "add": 60.0})
    Rates(seconds_per_flop=2.0, seconds_per_byte=3.0)
    """
    products = [name for name in work if name in seconds and work[name].is_product]
    others = [name for name in work if name in seconds and not work[name].is_product]
    return Rates(
        _rate(sum(seconds[name] for name in products), sum(work[name].flops for name in products)),
        _rate(sum(seconds[name] for name in others), sum(work[name].nbytes for name in others)),
    )


def _rate(seconds: float, amount: int) -> float:
    return seconds / amount if amount else 0.0


def rates_by_flops(work: Mapping[str, Work]) -> Rates:
    """Where no operation was seen: a step costs its flops, in units of their number."""
    return Rates(_rate(1.0, sum(part.flops for part in work.values())), 0.0)
