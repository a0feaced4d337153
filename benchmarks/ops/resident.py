"""The largest resident memory of this process while something runs, as Linux counts it.

XLA's own figure leaves out what a custom call allocates, and other frameworks have none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

RESET_PEAK = "5"  # see proc(5), /proc/pid/clear_refs


def peak_while(run: Callable[[], Any]) -> int | None:
    """Bytes; None where the kernel does not say."""
    try:
        Path("/proc/self/clear_refs").write_text(RESET_PEAK)
    except OSError:
        return None
    run()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    return None
