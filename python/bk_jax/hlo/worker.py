"""The process that runs jaxlib's parsers: a file that makes them abort ends this process only.

Reads requests from standard input and answers on standard output, both as a letter, a length of eight
bytes and as many bytes: `T` HLO text, `P` serialized HLO, `M` StableHLO; `+` serialized HLO, `-` why
not. It imports jaxlib alone, not JAX.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any, BinaryIO

MEMORY_LIMIT = 16 << 30  # address space; a broken file may ask for any amount


def canonical(kind: bytes, data: bytes) -> bytes:
    """Serialized HLO of a program in one of the three forms."""
    _hlo: Any = importlib.import_module("jaxlib._hlo")  # has no type information

    if kind == b"T":
        return _hlo.hlo_module_from_text(data.decode()).as_serialized_hlo_module_proto()
    if kind == b"P":
        made = _hlo.HloModule.from_serialized_hlo_module_proto(data)
        return made.as_serialized_hlo_module_proto()
    _jax: Any = importlib.import_module("jaxlib._jax")
    given = data if data.startswith(b"ML\xefR") else data.decode()
    return _jax.mlir.mlir_module_to_xla_computation(given).as_serialized_hlo_module_proto()


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers until the input ends."""
    with contextlib.suppress(ImportError):  # which the first answer tells
        importlib.import_module("jaxlib._hlo")  # while the first program is on its way
    while head := requests.read(9):
        data = requests.read(int.from_bytes(head[1:], "big"))
        try:
            status, answer = b"+", canonical(head[:1], data)
        except Exception as error:  # jaxlib raises several types; the text is what counts
            status, answer = b"-", str(error).encode()
        answers.write(status + len(answer).to_bytes(8, "big") + answer)
        answers.flush()


def limit_memory() -> None:
    """Where the system can: memory beyond the limit is refused."""
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_LIMIT if hard == resource.RLIM_INFINITY else min(hard, MEMORY_LIMIT)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    limit_memory()
    serve(sys.stdin.buffer, sys.stdout.buffer)
