"""One row of the paper's table in a process of its own: a job as JSON in, its result as JSON out.

    echo '{"model": "gpt2", "method": "auto"}' | python -m benchmarks.gpu.paper_worker

Memory is what this process had at most: no other step has run in it.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.gpu import paper_table


class Job(NamedTuple):
    """A step to be measured.

    Attributes:
      model: of `benchmarks.gpu.printed`.
      method: of bk_jax, or "none".
      dtype: of parameters and activations.
      precision: of products of float32.
      sizes: in place of those of the paper.
      limit: the largest batch that is tried; 0: until memory does not suffice.
    """

    model: str
    method: str
    dtype: str = "float32"
    precision: str = "float32"
    sizes: Mapping[str, int] = MappingProxyType({})
    limit: int = 0

    def name(self) -> str:
        return f"{self.model}-{self.method}-{self.dtype}"


def measure(job: Job) -> dict[str, Any]:
    numbers = paper_table.Numbers(jnp.dtype(job.dtype), job.precision)
    step = paper_table.Measured(job.model, job.method, numbers, job.sizes)
    found = paper_table.largest(step, job.limit)
    device = jax.devices()[0]
    result = {"device": device.device_kind, "peak_bytes": peak_bytes(device)}
    if found is None:
        return {**result, "batch": 0, "throughput": None}
    return {**result, "batch": found.batch, "throughput": found.throughput}


def peak_bytes(device: Any) -> int:
    """Of the device's memory; of the process where it has none of its own."""
    stats = device.memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return int(stats["peak_bytes_in_use"])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    job = Job(**json.loads(sys.stdin.read()))
    print(json.dumps(measure(job)), flush=True)


if __name__ == "__main__":
    main()
