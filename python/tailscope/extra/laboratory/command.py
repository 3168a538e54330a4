"""The command ``tailscope agent``, which `tailscope run` starts on another machine."""

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

EXAMPLE = "tailscope agent"

_PATIENCE_S = 1.0
_MOUTH = threading.Lock()


def command() -> int:
    """Read JSON objects from standard input, one per line, and answer in the same way.

    On end of file the agent tears down whatever it set up.
    """
    import tailscope._engine as _engine
    from tailscope.extra.laboratory.protocol import AgentError, HelloEvent, PlayOrder
    from tailscope.testbed.steady import SteadyClock

    clock = SteadyClock()
    inbox = _Inbox(clock)
    _say(HelloEvent(version=_engine.VERSION))
    try:
        part = inbox.hear()
        if part is None:
            return 0
        if not isinstance(part, PlayOrder):
            raise HostError(
                "agent: it has no role yet: expected the order to play one", code="agent-order"
            )
        from tailscope.extra.laboratory.roles import play

        play(part, _say, inbox.hear, inbox.traffic_ends, clock)
    except TailscopeError as error:
        _say(
            AgentError(
                message=str(error),
                code=error.code,
                hint=error.hint,
                other_kernel=isinstance(error, OtherKernelError),
            )
        )
        return 1
    except OSError as error:
        _say(AgentError(message=str(error), code="system", hint=None, other_kernel=False))
        return 1
    return 0


class _Inbox:
    """The incoming orders, and their end."""

    def __init__(self, clock: SteadyClock) -> None:
        self._clock = clock
        self._orders: queue.Queue[Order | HostError | None] = queue.Queue()
        self._has_ended = threading.Event()
        self.traffic_ends: Future[None] = Future()
        threading.Thread(target=self._listen, daemon=True).start()

    def hear(self) -> Order | None:
        """Wait for the next order; None at the end."""
        order = self._orders.get()
        if order is None:
            self._has_ended.set()
        if isinstance(order, HostError):
            raise order
        return order

    def _answer(self, number: int, heard_ns: int) -> None:
        from tailscope.extra.laboratory.protocol import AnswerEvent

        said_ns = self._clock.now_ns()
        with suppress(OSError):
            _say(AnswerEvent(number=number, heard_ns=heard_ns, said_ns=said_ns))

    def _listen(self) -> None:
        from tailscope.extra.laboratory.protocol import AskOrder, EndOrder, read_order

        # At its end, Python closes `sys.stdin`, and would wait for this thread.
        for line in os.fdopen(sys.stdin.fileno(), errors="replace", closefd=False):
            heard_ns = self._clock.now_ns()
            try:
                order = read_order(line)
            except HostError as error:
                self._orders.put(error)
                continue
            if isinstance(order, AskOrder):
                self._answer(order.number, heard_ns)
            elif isinstance(order, EndOrder):
                if not self.traffic_ends.done():
                    self.traffic_ends.set_result(None)
            else:
                self._orders.put(order)
        self._orders.put(None)
        # A role that does not read the end works on something that no one needs any more.
        if not self._has_ended.wait(_PATIENCE_S):
            os.kill(os.getpid(), signal.SIGTERM)


def _say(message: AgentMessage) -> None:
    from tailscope.extra.laboratory.protocol import as_line

    line = as_line(message)
    with _MOUTH:
        sys.stdout.write(line)
        sys.stdout.flush()
