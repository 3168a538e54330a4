"""Exit statuses of the commands."""

INTERRUPTED = 130
"""The exit status of what somebody has ended before its time."""

UNDECIDED = 3
"""The exit status where the evidence does not suffice."""

OF_VERDICTS = {"pass": 0, "fail": 2, "inconclusive": UNDECIDED}
"""The exit status of a command that judges."""

EXIT_STATUS = {
    0: "completed, and within limits",
    1: "could not run (usage, input, disk, permissions), or a part of it failed",
    2: "completed, but a limit was exceeded",
    UNDECIDED: "completed, but there is not enough evidence",
    INTERRUPTED: "interrupted",
}
"""Meaning of the exit statuses."""
