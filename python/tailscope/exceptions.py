"""The errors of tailscope.

::

    TailscopeError
    ├── UsageError                 arguments that cannot be understood or contradict each other
    ├── AnalysisError              the engine could not reach a true answer
    │   ├── CaptureError           a capture cannot be read
    │   ├── ClocksApartError       two captures were taken by clocks that differ
    │   ├── KeyChangesError        packets change their form within two captures
    │   ├── SwappedError           two captures seem to be named in the wrong order
    │   └── KeysRepeatError        slices of a pair do not tell its packets apart
    ├── ModelError                 figures do not carry the conclusion that is asked for
    │   └── EvidenceError          there are too few of them, or they say too little
    ├── ClusterError               work cannot be handed to the workers of a scheduler
    │   ├── NotSharedError         a worker does not see what the command sees
    │   └── WorkerLostError        a task ends every worker that takes it
    ├── TestbedError               a measurement cannot be set up on this machine
    │   ├── DataplaneError         a process of the data plane is missing, or failed
    │   ├── HostError              a machine of a laboratory refuses, fails or is gone
    │   ├── OtherKernelError       another kernel has to be booted first
    │   └── TuningError            the host cannot be tuned, or taken back to what it was
    ├── DatabaseError              a database refuses, fails or is not there
    └── RunError                   something is wrong with a run directory
        ├── RunExistsError         it would have to be overwritten
        ├── RunIncompleteError     it was never finished
        ├── RunUnfinishedError     it is whole, but lacks what can be made of it again
        └── RunCorruptError        it is not what was once written

The text of an error says what happened, with file, offset, got and expected where there are such;
``hint`` says what can be done about it, ``remedy`` how to add what is missing. Everything that
tailscope raises on purpose is a `TailscopeError`, apart from the `OSError` of a disk that refuses.
"""

from __future__ import annotations

import errno
from traceback import walk_tb

__all__ = [
    "AnalysisError",
    "CaptureError",
    "ClocksApartError",
    "ClusterError",
    "DatabaseError",
    "DataplaneError",
    "EvidenceError",
    "HostError",
    "KeyChangesError",
    "KeysRepeatError",
    "ModelError",
    "NotSharedError",
    "OtherKernelError",
    "RunCorruptError",
    "RunError",
    "RunExistsError",
    "RunIncompleteError",
    "RunUnfinishedError",
    "SwappedError",
    "TailscopeError",
    "TestbedError",
    "TuningError",
    "UsageError",
    "WorkerLostError",
    "said",
]


class TailscopeError(Exception):
    """Base of all errors of tailscope.

    Parameters
    ----------
    message : str
        What happened, with file, offset, got and expected where there are such.
    code : str, optional
        The kind of error, such as ``run-exists``. It stays as it is when the message improves, so
        programs and tests compare codes. The default is the code of the class.
    hint : str, optional
        What can be done about it; beside a remedy, what can be done instead.
    remedy : str, optional
        The line that adds what is missing: one of `tailscope.host.remedies`. The hint begins with
        it, and leads to ``tailscope doctor``, which prints the same line.
    """

    code = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.remedy = remedy
        if remedy is not None:
            ways = ", or ".join(filter(None, (remedy, hint)))
            hint = f"{ways}; `tailscope doctor` shows all that is missing"
        self.hint = hint
        if hint is not None:
            # Where Python itself prints the error, as in a notebook.
            self.add_note(f"hint: {hint}")

    def retold(self, message: str, kind: type[TailscopeError] | None = None) -> TailscopeError:
        """Return the error with more to say: its code, hint and remedy stay."""
        error = (kind or type(self))(message, code=self.code, hint=self.hint)
        error.remedy = self.remedy
        return error


class UsageError(TailscopeError):
    """Arguments that cannot be understood or contradict each other."""

    code = "usage"


class AnalysisError(TailscopeError):
    """An analysis that reached no true answer."""

    code = "analysis"


class CaptureError(AnalysisError):
    """A capture that cannot be read."""

    code = "capture"


class ClocksApartError(AnalysisError):
    """Two captures of clocks that differ by an unknown amount."""

    code = "clocks-apart"


class SwappedError(AnalysisError):
    """Two captures that seem to be swapped: packets were seen behind the device first."""

    code = "swapped"


class KeyChangesError(AnalysisError):
    """Packets that change their form within two captures: only a less specific key joins them.

    Attributes
    ----------
    key : str
        That key.
    """

    code = "key-changes"

    def __init__(
        self, message: str, *, key: str, code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.key = key


class KeysRepeatError(AnalysisError):
    """Packets that share a key over more than a window, so that slices do not tell them apart."""

    code = "keys-repeat"


class ModelError(TailscopeError):
    """Figures that do not carry the conclusion that is asked for."""

    code = "model"


class EvidenceError(ModelError):
    """Figures that are too few, or say too little, for a conclusion."""

    code = "evidence"


class ClusterError(TailscopeError):
    """Work that cannot be handed to the workers of a scheduler."""

    code = "cluster"


class WorkerLostError(ClusterError):
    """A task that ends every worker that takes it."""

    code = "worker-lost"


class NotSharedError(ClusterError):
    """A worker that does not see what the command sees."""

    code = "not-shared"


class TestbedError(TailscopeError):
    """A measurement that cannot be set up on this machine."""

    code = "testbed"
    __test__ = False


class DataplaneError(TestbedError):
    """A process of the data plane that is missing, or failed."""

    code = "dataplane"


class HostError(TestbedError):
    """A machine of a laboratory that refuses, fails or is gone."""

    code = "host"


class OtherKernelError(TestbedError):
    """A measurement that needs another kernel to be booted first."""

    code = "other-kernel"


class TuningError(TestbedError):
    """A host that cannot be tuned, or taken back to what it was."""

    code = "tuning"


class DatabaseError(TailscopeError):
    """A database that refuses, fails or is not there."""

    code = "database"


class RunError(TailscopeError):
    """A fault of a run directory."""

    code = "run"


class RunExistsError(RunError):
    """A run directory that would have to be overwritten."""

    code = "run-exists"


class RunIncompleteError(RunError):
    """A run directory that was never finished."""

    code = "run-incomplete"


class RunUnfinishedError(RunError):
    """A run directory that is whole, but lacks what can be made of it again."""

    code = "run-unfinished"


class RunCorruptError(RunError):
    """A run directory that is not what was once written."""

    code = "run-corrupt"


STANDARD_OUTPUT = "standard output"
"""How errors of writing to it name it."""
_OF_FILES = {
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "a part of it is a file, expected folders",
    errno.EISDIR: "a folder, expected a file",
    errno.EEXIST: "it exists already",
    errno.EACCES: "permission denied",
}
"""What is wrong with a file, in the words of all errors."""


def said(error: Exception) -> str:
    """Return the message of an error, wherever it comes from."""
    if isinstance(error, TailscopeError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        file = error.filename or _file_at_hand(error)
        name = "" if file is None else f"{file}: "
        return f"{name}{_OF_FILES.get(error.errno or 0, error.strerror)}"
    return f"{type(error).__name__}: {error}"


def _file_at_hand(error: OSError) -> object:
    """Return the file of an error that names none: the path that was at hand then."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return frames[-1].f_locals.get("path") if frames else None
