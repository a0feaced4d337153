"""The process that runs jaxlib's parsers: a file that makes them abort ends only this process.

Requests come on standard input: a letter (`T` HLO text, `P` serialized HLO, `M` StableHLO), the
memory allowed for it and its length, eight bytes each, and the program. Answers go to standard
output: a letter (`+` serialized HLO, `-` why not), a length and that many bytes. It imports only
jaxlib, not JAX.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any, BinaryIO

HEAD = 17  # bytes of a request before the program


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
    with contextlib.suppress(ImportError):  # which the first answer reports
        importlib.import_module("jaxlib._hlo")  # while the first program is on its way
    while head := requests.read(HEAD):
        memory, size = (int.from_bytes(part, "big") for part in (head[1:9], head[9:]))
        limit_memory(memory)
        data = requests.read(size)
        try:
            status, answer = b"+", canonical(head[:1], data)
        except Exception as error:  # jaxlib raises several types; the text is what counts
            status, answer = b"-", (str(error) or repr(error)).encode("utf-8", "replace")
        answers.write(status + len(answer).to_bytes(8, "big") + answer)
        answers.flush()


def limit_memory(more: int) -> None:
    """From now on this process may take `more` bytes than it has, where the system can tell.

    Address space is what counts; threads of libraries may have taken much of it before.
    """
    try:
        import resource

        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = taken + more if hard == resource.RLIM_INFINITY else min(hard, taken + more)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
