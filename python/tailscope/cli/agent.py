"""``tailscope agent``: one machine of a laboratory, for `tailscope run` on another."""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from tailscope.exceptions import OtherKernelError, TailscopeError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["command"]

_PATIENCE_S = 1.0


def command() -> int:
    """It reads JSON objects from standard input, one a line, and says some on standard output.

    When its input ends it takes down what it has put up.
    """
    import tailscope

    ears = _Ears()
    _say({"event": "hello", "version": tailscope.__version__})
    part = ears.hear()
    if part is None:
        return 0
    from tailscope.experiment.roles import play

    try:
        play(part, _say, ears.hear)
    except TailscopeError as error:
        waits = isinstance(error, OtherKernelError)
        _say({"event": "error", "message": str(error), "hint": error.hint, "other_kernel": waits})
        return 1
    except OSError as error:
        _say({"event": "error", "message": str(error), "hint": None})
        return 1
    return 0


class _Ears:
    """What comes in, and its end."""

    def __init__(self) -> None:
        self._heard: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._end_was_heard = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def hear(self) -> Mapping[str, Any] | None:
        """Wait for the next object; None at the end."""
        found = self._heard.get()
        if found is None:
            self._end_was_heard.set()
        return found

    def _listen(self) -> None:
        for line in sys.stdin:
            self._heard.put(json.loads(line))
        self._heard.put(None)
        # Who does not listen is busy with what nobody waits for any more.
        if not self._end_was_heard.wait(_PATIENCE_S):
            os.kill(os.getpid(), signal.SIGTERM)


def _say(content: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()
