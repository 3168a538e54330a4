"""Signals that end a command, where they have to wait."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_TOGETHER_S = 0.5
"""Signals that come as close as that are one wish, as where a session ends."""


@dataclass
class Patience:
    """A flag that tells whether somebody wants an end."""

    asked: bool = False


@contextmanager
def patient(answer: Callable[[], None], *, asked: bool = False) -> Iterator[Patience]:
    """Let a block end well at the first Ctrl-C and the like; the second one interrupts it."""
    patience = Patience(asked)
    if threading.current_thread() is not threading.main_thread():
        yield patience
        return
    before = {number: signal.getsignal(number) for number in _ENDING}
    # The first one has come just now, if it has.
    came_s = time.monotonic() if asked else -_TOGETHER_S

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal came_s
        together = time.monotonic() - came_s < _TOGETHER_S
        came_s = time.monotonic()
        if patience.asked and not together:
            raise KeyboardInterrupt
        if not patience.asked:
            patience.asked = True
            answer()

    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, handle)
    try:
        yield patience
    finally:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C and the like wait until the end of a block, which must not take long.

    They are caught and handed on, rather than blocked: another thread would take a blocked one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in _ENDING}
    handled = {number: handler for number, handler in before.items() if callable(handler)}
    for number in handled:
        signal.signal(number, lambda which, frame: came.append((which, frame)))
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        for which, frame in came[:1]:
            handled[signal.Signals(which)](which, frame)
