"""Profile: seconds of every operation in real steps, from JAX's own profiler.

XLA reports each operation that it executes by the name of its instruction in the compiled program. On
the CPU an operation that hands work to the thread pool ends with a second event, `end: NAME`, which
carries the number of the first.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from bk_jax.overhead.spans import Span, divide

WINDOW = "bk_tax:"


@dataclasses.dataclass(frozen=True)
class Profile:
    """Mean seconds of a step and of its operations; `""` is time outside of them."""

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
    """Runs the steps `rounds` times in turn under the profiler; returns what it saw."""
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
    """The steps called `name`, the quieter half of them; None if no operation of theirs was seen.

    Args:
      events: what `record` returns.
      name: of the steps.
      instructions: names of the program's instructions; other events are passed over.
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
