"""Parsing with jaxlib in a separate process (`worker.py`), which is restarted if it dies."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

from bk_jax.hlo.model import HloError
from bk_jax.hlo.table import si

SECONDS = 300  # for one file
# Memory for a program of some size: jaxlib takes 20 to 60 bytes for each byte of a text. A text may
# also name constants without their values, which then exist as zeros; one of 400 MB takes 2 GB.
MEMORY, MEMORY_PER_BYTE, MOST_MEMORY = 2 << 30, 100, 16 << 30
LARGE = 16 << 20  # bytes of a program beyond which the worker has grown large
# The parser makes millions of small objects. If glibc requests memory from the system in large
# pieces and keeps it, a dump of 50 MB is parsed in 5.6 s instead of 6.5 s.
_ALLOCATION = {
    "MALLOC_TOP_PAD_": str(64 << 20), "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
}  # fmt: skip
WORKER = Path(__file__).with_name("worker.py")


class Parser:
    """A worker that is started on first use, or earlier."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._is_ended = False
        self.memory: int | None = None  # bytes for a program, whatever its size

    def start(self) -> None:
        """Starts the worker before it is needed, so that it loads jaxlib in the meantime."""
        with self._lock:
            self._running()

    def canonical(self, kind: str, data: bytes) -> bytes:
        """Serialized HLO of HLO text (`T`), serialized HLO (`P`) or StableHLO (`M`)."""
        with self._lock:
            process = self._running()
            timer = threading.Timer(SECONDS, process.kill)
            timer.start()
            memory = memory_for(len(data)) if self.memory is None else self.memory
            try:
                status, answer = _exchange(process, kind, memory, data)
            except (BrokenPipeError, EOFError):
                process.wait()
                raise HloError(self._why_it_stopped(process, memory)) from None
            finally:
                timer.cancel()
            if len(answer) > LARGE:
                process.kill()  # frees what it holds, many times the program
                self._is_ended = True
        if status == b"-":
            why = _shortened(answer.decode("utf-8", "replace"))
            is_memory = "RESOURCE_EXHAUSTED" in why or "MemoryError" in why
            raise HloError(f"{why.rstrip('.')}. {_allowed(memory)}" if is_memory else why)
        return answer

    def close(self) -> None:
        """Ends the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        if self._errors is not None:
            self._errors.close()
        self._process = self._errors = None
        self._is_ended = False

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._is_ended or self._process.poll() is not None:
            self.close()
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the worker)
            command = [sys.executable, "-P", str(WORKER)]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                command,
                stdin=pipe,
                stdout=pipe,
                stderr=self._errors,
                bufsize=-1,
                pipesize=1 << 20,
                env={**_ALLOCATION, **os.environ},
            )
        return self._process

    def _why_it_stopped(self, process: subprocess.Popen[bytes], memory: int) -> str:
        assert self._errors is not None
        self._errors.seek(0)
        lines = self._errors.read(1 << 20).decode("utf-8", "replace").splitlines()
        fatal = [line for line in lines if line.startswith("F")]
        words = (fatal or lines or ["It said nothing."])[0][:300]
        if process.returncode == -signal.SIGKILL:
            words = f"It was ended, at the latest after {SECONDS} seconds."
        return f"jaxlib's parser stopped on it. {words} {_allowed(memory)}"


def memory_for(size: int) -> int:
    """Bytes of memory that a program of a given size may take."""
    return min(MEMORY + MEMORY_PER_BYTE * size, MOST_MEMORY)


def _allowed(memory: int) -> str:
    return f"It could take {si(memory, 'B')} of memory (--memory allows more)."


def _exchange(
    process: subprocess.Popen[bytes], kind: str, memory: int, data: bytes
) -> tuple[bytes, bytes]:
    assert process.stdin is not None
    assert process.stdout is not None
    numbers = memory.to_bytes(8, "big") + len(data).to_bytes(8, "big")
    process.stdin.write(kind.encode() + numbers + data)
    process.stdin.flush()
    head = process.stdout.read(9)
    answer = process.stdout.read(int.from_bytes(head[1:], "big"))
    if len(head) < 9 or len(answer) < int.from_bytes(head[1:], "big"):
        raise EOFError
    return head[:1], answer


def _shortened(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return " ".join(lines[:3])[:400] or "jaxlib gave no reason"


parser = Parser()
atexit.register(parser.close)
