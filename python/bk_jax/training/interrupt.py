"""Being asked to stop: Ctrl-C and SIGTERM end a run after the current step, not in the middle."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether a signal came; a second one does what it did before.

    Only the main thread can handle signals; in other threads the function always says no. A signal
    that was ignored before stays ignored.

    >>> import os
    >>> with asked_to_stop() as stop:
    ...     print(stop())
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     print(stop())
    False
    True
    """
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.signal(number, before[number])

    now = {number: signal.getsignal(number) or signal.SIG_DFL for number in SIGNALS}
    before: dict[int, Any] = {n: handler for n, handler in now.items() if handler != signal.SIG_IGN}
    for number in before:
        signal.signal(number, ask)
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
