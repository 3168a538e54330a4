"""The program: ``tailscope``, which ``python -m tailscope`` starts, too.

It handles Ctrl-C and the like before it imports anything: imports take most of the time of a short
command, and Python shows a traceback of whichever one is interrupted.
"""

import _signal  # type: ignore[import-not-found]  # signal imports enum, which takes a while
import gc
import os
import sys

_INTERRUPTED = 130
"""As `tailscope.cli.status` has it, which is not imported yet."""
_ALLOCATIONS_PER_COLLECTION = 10_000
"""Objects made between two looks for reference cycles: a process that ends soon has few of them."""
_SIGNALS = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)


def main() -> int:
    """Run the command line and return its exit status."""
    # What is ignored stays so: Ctrl-C in the background, the end of the terminal under nohup.
    handled = [each for each in _SIGNALS if _signal.getsignal(each) != _signal.SIG_IGN]
    for number in handled:
        _signal.signal(number, _end)
    from tailscope.inherited import reset

    reset()
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)
    from tailscope.cli import main as run

    # When Python ends it looks through everything else: what is imported by now is never garbage.
    gc.freeze()
    try:
        status = run()
    except KeyboardInterrupt:
        status = _INTERRUPTED
    # The command has ended, and its status is known: Python tidies up undisturbed.
    for number in handled:
        _signal.signal(number, _signal.SIG_IGN)
    # Python would end as by SIGINT if Ctrl-C had ever left text that it evaluated, such as a
    # dataclass has, though it was handled since. It remembers the last text only.
    exec("")  # noqa: S102
    return status


def _end(_number: int, _frame: object) -> None:
    """End at once: nothing has been begun."""
    try:
        os.write(2, b"error: interrupted\n")
    finally:
        os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
