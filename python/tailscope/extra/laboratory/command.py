"""``tailscope agent``: one machine of a laboratory, for `tailscope run` on another."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from tailscope.exceptions import HostError, OtherKernelError, TailscopeError

if TYPE_CHECKING:
    from tailscope.extra.laboratory.protocol import AgentMessage, Order
    from tailscope.testbed.steady import SteadyClock

_PATIENCE_S = 1.0
_MOUTH = threading.Lock()


def command() -> int:
    """The agent reads JSON objects from standard input, one per line, and answers in the same way.

    On end of file it tears down whatever it set up.
    """
    import tailscope._engine as _engine
    from tailscope.extra.laboratory.protocol import AgentError, HelloEvent, PlayOrder
    from tailscope.testbed.steady import SteadyClock

    clock = SteadyClock()
    ears = _Ears(clock)
    _say(HelloEvent(version=_engine.VERSION))
    try:
        part = ears.hear()
        if part is None:
            return 0
        if not isinstance(part, PlayOrder):
            raise HostError("agent: it has no role yet: expected the order to play one")
        from tailscope.extra.laboratory.roles import play

        play(part, _say, ears.hear, ears.traffic_ends, clock)
    except TailscopeError as error:
        waits = isinstance(error, OtherKernelError)
        _say(AgentError(message=str(error), hint=error.hint, other_kernel=waits))
        return 1
    except OSError as error:
        _say(AgentError(message=str(error), hint=None, other_kernel=False))
        return 1
    return 0


class _Ears:
    """What comes in, and its end."""

    def __init__(self, clock: SteadyClock) -> None:
        self._clock = clock
        self._heard: queue.Queue[Order | HostError | None] = queue.Queue()
        self._end_was_heard = threading.Event()
        self.traffic_ends: Future[None] = Future()
        threading.Thread(target=self._listen, daemon=True).start()

    def hear(self) -> Order | None:
        """Wait for the next order; None at the end."""
        found = self._heard.get()
        if found is None:
            self._end_was_heard.set()
        if isinstance(found, HostError):
            raise found
        return found

    def _answer(self, number: int, heard_ns: int) -> None:
        from tailscope.extra.laboratory.protocol import AnswerEvent

        said_ns = self._clock.now_ns()
        with suppress(OSError):
            _say(AnswerEvent(number=number, heard_ns=heard_ns, said_ns=said_ns))

    def _listen(self) -> None:
        from tailscope.extra.laboratory.protocol import AskOrder, EndOrder, read_order

        # Python ends `sys.stdin` before it ends, and waits for whoever reads from it.
        for line in os.fdopen(sys.stdin.fileno(), errors="replace", closefd=False):
            heard_ns = self._clock.now_ns()
            try:
                order = read_order(line)
            except HostError as error:
                self._heard.put(error)
                continue
            if isinstance(order, AskOrder):
                self._answer(order.number, heard_ns)
            elif isinstance(order, EndOrder):
                if not self.traffic_ends.done():
                    self.traffic_ends.set_result(None)
            else:
                self._heard.put(order)
        self._heard.put(None)
        # Who does not listen is busy with what nobody waits for any more.
        if not self._end_was_heard.wait(_PATIENCE_S):
            os.kill(os.getpid(), signal.SIGTERM)


def _say(message: AgentMessage) -> None:
    from tailscope.extra.laboratory.protocol import as_line

    line = as_line(message)
    with _MOUTH:
        sys.stdout.write(line)
        sys.stdout.flush()
