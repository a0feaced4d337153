"""Architectures: rates and sizes of A100, H100 and B200, per multiprocessor and cycle.

Sources: NVIDIA's white papers and data sheets for units, clocks and sizes. Beyond them:

- `sustained`, the share of the clock at which tensor cores work under full load, is fitted to one
  published number each: the fastest product that the "Maximum Achievable Matmul FLOPS" table of
  github.com/stas00/ml-engineering lists (A100 SXM 267.9 TF/s of 312, H100 SXM 792.1 of 989, B200 1745
  of 2250). Other published rates are compared in `validate`.
- That an H100 reaches 0.63 of its peak by `mma.sync` (HMMA), and all of it by `wgmma` (HGMMA), is an
  assumption without a source. So is the same number of products in a cycle for B200, whose peak is
  that of `tcgen05`.
- The L2 cache: 5120 bytes in a cycle (A100), of which 0.85 are taken to be reached, a share that was
  chosen with the rows of `validate` in view; 5.5 to 5.7 TB/s
  were measured on an H100 PCIe (chipsandcheese.com, July 2023). For B200: an assumption.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A GPU; rates are per multiprocessor and cycle unless they say otherwise.

    Attributes:
      name: as in the planner's table of devices.
      target: the machine code that it runs.
      multiprocessors: how many.
      clock: cycles per second that the peak of the data sheet stands for.
      sustained: share of it under load.
      hmma: multiply-adds of HMMA on 16-bit operands; on TF32 half of it.
      peak: multiply-adds of the best instruction.
      fp32: lanes for float32, and for integer products.
      alu: lanes for integers.
      double: lanes for float64.
      special: lanes for conversions and special functions.
      l2: bytes of all multiprocessors from the L2 cache, in a cycle.
      l2_size: bytes.
      memory: bytes per second.
      shared: bytes of shared memory that blocks can have.
      latency: cycles from the L2 cache, about.
      launch: seconds between kernels of one stream, about.
    """

    name: str
    target: str
    multiprocessors: int
    clock: float
    sustained: float
    hmma: float
    peak: float
    fp32: int
    alu: int
    double: int
    special: int
    l2: float
    l2_size: int
    memory: float
    shared: int
    latency: int = 600
    launch: float = 2e-6
    issue: int = 4
    registers: int = 65536
    warps: int = 64
    blocks: int = 32

    @property
    def peak_flops(self) -> float:
        """Of 16-bit operands per second, as in the data sheet."""
        return 2 * self.peak * self.multiprocessors * self.clock

    def tensor_rate(self, elements: str, is_group: bool) -> float:
        """Multiply-adds of tensor cores; tf32 has half."""
        rate = self.peak if is_group else self.hmma
        return rate / 2 if elements == "tf32" else rate

    @property
    def l2_rate(self) -> float:
        """Bytes from the L2 cache for one multiprocessor; its own port takes 64."""
        return min(64.0, 0.85 * self.l2 / self.multiprocessors)


A100 = Architecture(
    "A100", "sm_80", 108, 1.41e9, 0.96, hmma=1024, peak=1024, fp32=64, alu=64, double=32, special=16,
    l2=5120, l2_size=40 << 20, memory=2.039e12, shared=164 << 10,
)  # fmt: skip
H100 = Architecture(
    "H100", "sm_90a", 132, 1.83e9, 0.88, hmma=0.63 * 2048, peak=2048, fp32=128, alu=64, double=64,
    special=16, l2=5120, l2_size=50 << 20, memory=3.35e12, shared=228 << 10,
)  # fmt: skip
B200 = Architecture(
    "B200", "sm_100", 148, 1.856e9, 0.80, hmma=0.63 * 2048, peak=4096, fp32=128, alu=64, double=64,
    special=16, l2=10240, l2_size=126 << 20, memory=8.0e12, shared=228 << 10,
)  # fmt: skip
ARCHITECTURES = (A100, H100, B200)


def find(name: str) -> Architecture:
    """By its name or the machine code that it runs.

    >>> find("sm_90a").name
    'H100'
    """
    for one in ARCHITECTURES:
        if name in (one.name, one.target):
            return one
    known = ", ".join(one.name for one in ARCHITECTURES)
    raise ValueError(f"no GPU {name!r} in the table, which has {known}.")
