"""What a process inherits and would stumble over: `reset` undoes it for this one and its children.

A supervisor, a shell or a daemon may have blocked signals, closed standard streams, or left a
umask, a limit or an encoding that suits nobody. Commands begin here, before they import others.
"""

import _signal  # type: ignore[import-not-found]  # signal imports enum, which takes a while
import os
import resource
import sys

_STREAMS = (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
"""How the null device stands for closed standard streams: input has ended, output is refused, and
messages have no reader. Otherwise, the next file that is opened would be such a stream."""


def reset() -> None:
    """Undo what was inherited, apart from ignored SIGINT and SIGHUP, which somebody has meant."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    # Children that are reaped unseen would all seem to have succeeded.
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    os.umask(os.umask(0o077) & 0o077)
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    for number, (name, flags) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))
    if sys.getfilesystemencoding() != "utf-8":
        # Names of files and texts of programs are read by it, which only a new start changes.
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
    os.environ["LC_ALL"] = "C.UTF-8"
    # NumPy's BLAS starts a thread for each CPU when it is imported, and none of them gets work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
