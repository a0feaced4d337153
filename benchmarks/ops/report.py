"""How benchmarks of operations print: one line per comparison, an A/A line first."""

from __future__ import annotations

from bk_jax.overhead.timing import Run, Timing, compare

HEADER = f"{'case':44} {'baseline':>10} {'ours':>10} {'ours / baseline':>16}   95 % interval"


def line(case: str, result: Timing) -> str:
    """Medians in milliseconds and the median of paired ratios."""
    first, second = (f"{1e3 * t:.3f} ms" for t in (result.baseline, result.seconds))
    interval = f"[{result.low:.4f}, {result.high:.4f}]"
    return f"{case:44} {first:>10} {second:>10} {result.ratio:16.4f}   {interval}"


def show(case: str, baseline: Run, ours: Run, budget: float) -> None:
    """Compares and prints."""
    print(line(case, compare(baseline, ours, budget=budget)), flush=True)
