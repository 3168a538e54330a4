"""What the exit status of a command means."""

__all__ = ["EXIT_STATUS", "INTERRUPTED", "UNDECIDED"]

INTERRUPTED = 130
"""The exit status of what somebody has ended before its time."""

UNDECIDED = 3
"""The exit status where the evidence does not suffice."""

EXIT_STATUS = {
    0: "it ran, and what was measured is within limits",
    1: "it could not run: usage, input, disk, rights; or a part of it failed",
    2: "it ran, and a limit was exceeded",
    UNDECIDED: "it ran, and the evidence does not suffice",
    INTERRUPTED: "it was interrupted",
}
"""What a command's exit status means."""
