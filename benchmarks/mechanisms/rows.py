"""What every row of the table is measured with, and how a row is written.

No JAX here: the process that holds Opacus makes rows, too.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

STEPS, DELTA, MULTIPLIER = 64, 1e-5, 1.0  # every example takes part in one of the steps
BANDS = 8
DECAYS, SCALES = (0.9, 0.5), (0.3, 0.2)
CHECKED, VALUES = 12, 100_000  # steps whose noise is compared, and the values of it
# Adaptive clipping: a batch, of which half is clipped, and the noise of their count, a twentieth of it.
ADAPTIVE = "adaptive clipping: gradient and count"
BATCH, UNCLIPPED, COUNT_STDDEV = 100, 50, 5.0
QUANTILE, LEARNING_RATE = 0.5, 0.2

HEAD = """\
| library | mechanism | off | normal | epsilon, theirs | epsilon, here | kept | ns, cpu | wall | ratio |
|---|---|---|---|---|---|---|---|---|---|"""


@dataclasses.dataclass(frozen=True)
class Row:
    """A mechanism, and what is known of it without a clock.

    Attributes:
      library: whose.
      mechanism: its name.
      off: the largest distance of the noise of the first steps from the exact product of the matrix
        and the draws, in deviations of a draw.
      normal: how far the last of these is from its Gaussian (`exactness.normal`).
      theirs: epsilon by the library's own accounting.
      here: epsilon from the noise itself (`exactness`).
      kept: bytes between steps, over those of the array.
    """

    library: str
    mechanism: str
    off: float
    normal: float
    theirs: float
    here: float
    kept: float


class Spent(NamedTuple):
    """Seconds of one step: of all threads together, and by the clock on the wall."""

    cpu: float
    wall: float


def as_dict(row: Row) -> dict[str, Any]:
    """For JSON; `Row(**...)` is the way back."""
    return dataclasses.asdict(row)


def copies(count: float) -> str:
    """Keys and counters are less than a thousandth of the array, and count as nothing.

    >>> copies(7.000012), copies(0.0041), copies(8e-6)
    ('7', '0.004', '0')
    """
    return f"{count:.3f}".rstrip("0").rstrip(".")


def line(row: Row, spent: Spent, ratio: float, size: int) -> str:
    """One line of the table; times are of one value, in nanoseconds."""
    cpu, wall = (1e9 * seconds / size for seconds in spent)
    return (
        f"| {row.library} | {row.mechanism} | {row.off:.0e} | {row.normal:.2f} | {row.theirs:.3f} "
        f"| {row.here:.3f} | {copies(row.kept)} | {cpu:.2f} | {wall:.2f} | {ratio:.2f} |"
    )
