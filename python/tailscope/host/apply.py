"""Set what can be set while a machine runs, and take it back."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError, TuningError, UsageError
from tailscope.host.journal import Entry, Journal, journal_file, tuning_lock
from tailscope.host.knobs.catalogue import KNOBS, knobs_named
from tailscope.host.knobs.power import CpuDmaLatency
from tailscope.host.machine import chosen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tailscope.host.knobs.knob import Change, Cpus, Knob
    from tailscope.host.machine import Machine

__all__ = [
    "Outcome",
    "Reverted",
    "applicable",
    "apply",
    "needs_root",
    "planned",
    "revert",
    "tuned",
]

_SETTABLE = ("runtime", "held")


@dataclass(frozen=True)
class Outcome:
    """What became of one change.

    Attributes
    ----------
    knob, path, wanted : str
    original : str or None
        What was there; None where nothing was, or it cannot be read.
    refused : str or None
        Why it was not taken; None where it was.
    """

    knob: str
    path: str
    original: str | None
    wanted: str
    refused: str | None


@dataclass
class Reverted:
    """What was taken back.

    Attributes
    ----------
    by : str or None
        What had tuned; None where nothing had.
    restored : list of Entry
        What is as it was, the last change first.
    failed : list of tuple of Entry and str
        What is not, and why; the journal is kept for another try.
    aside : Path or None
        Where the journal is now if the machine was booted since, which takes all back.
    """

    by: str | None = None
    restored: list[Entry] = field(default_factory=list)
    failed: list[tuple[Entry, str]] = field(default_factory=list)
    aside: Path | None = None


def applicable(machine: Machine, cpus: Cpus) -> list[Knob]:
    """List the knobs that `tuned` would change here, unless told which.

    Parameters
    ----------
    machine : Machine
    cpus : tuple of int
        The CPUs to keep free.
    """
    return [
        knob
        for knob in KNOBS
        if knob.kind in _SETTABLE
        and not knob.asked
        and (knob.changes(machine, cpus) or _is_to_hold(knob, machine, cpus))
    ]


def planned(
    machine: Machine, cpus: Cpus, only: Iterable[str] | None = None
) -> list[tuple[Knob, list[Change]]]:
    """List the writes that `apply` would do, by knob; knobs without any are left out.

    Parameters
    ----------
    machine : Machine
    cpus : tuple of int
    only : iterable of str, optional
        Names of knobs, in which ``*`` stands for anything. By default all but those that want to
        be asked for.

    Raises
    ------
    UsageError
        If one of the names is no knob's, or that of one which cannot be set.
    """
    plan = [(knob, knob.changes(machine, cpus)) for knob in _knobs(only) if knob.kind == "runtime"]
    return [(knob, changes) for knob, changes in plan if changes]


def apply(
    machine: Machine, cpus: Cpus, only: Iterable[str] | None = None, *, by: str
) -> list[Outcome]:
    """Set knobs, to stay until `revert`; what is refused is said, and the rest goes on.

    An exception, Ctrl-C included, takes back what was done.

    Parameters
    ----------
    machine, cpus, only
        As for `planned`.
    by : str
        The command, for those who find the host tuned.

    Raises
    ------
    TestbedError
        If this is not root.
    TuningError
        If the host is tuned already.
    """
    needs_root(machine)
    with tuning_lock(machine):
        return _apply(machine, cpus, planned(machine, cpus, only), by)


@contextmanager
def tuned(
    machine: Machine, cpus: Cpus, only: Iterable[str] | None = None, *, by: str
) -> Iterator[list[Outcome]]:
    """Set knobs within a block, those that have to be held included.

    Parameters
    ----------
    machine, cpus, only, by
        As for `apply`; no name at all sets nothing.

    Yields
    ------
    list of Outcome

    Raises
    ------
    TestbedError
        If this is not root.
    TuningError
        If the host is tuned already, or not all could be taken back.
    """
    needs_root(machine)
    only = None if only is None else list(only)
    with tuning_lock(machine):
        plan = planned(machine, cpus, only)
        outcomes = _apply(machine, cpus, plan, by)
        try:
            with ExitStack() as held:
                knobs = [knob for knob in _knobs(only) if _is_to_hold(knob, machine, cpus)]
                yield [*outcomes, *(_hold(machine, held, knob.name) for knob in knobs)]
        finally:
            if plan:
                _take_back(machine)


def revert(machine: Machine, *, dry_run: bool = False) -> Reverted:
    """Take back what was set, also after a crash; a second time there is nothing to do.

    Parameters
    ----------
    machine : Machine
    dry_run : bool
        Only say what would be.

    Raises
    ------
    TestbedError
        If this is not root.
    TuningError
        If the journal is damaged, or another machine's.
    """
    needs_root(machine)
    with tuning_lock(machine):
        journal = Journal.read(machine)
        if journal is None:
            return Reverted()
        journal.check(machine)
        if journal.is_of_another_boot(machine):
            aside = journal_file(machine) if dry_run else journal.set_aside()
            return Reverted(by=journal.by, aside=aside)
        if dry_run:
            entries = [each for each in journal.entries if machine.read(each.path) != each.original]
            return Reverted(by=journal.by, restored=entries[::-1])
        return _revert(machine, journal)


def needs_root(machine: Machine) -> None:
    """See that this process may change the machine.

    Raises
    ------
    TestbedError
        If not.
    """
    if machine.is_this and os.geteuid() != 0:
        raise TestbedError(
            f"settings of the host are root's: got user {os.geteuid()}, expected 0",
            hint="run it with sudo; `tailscope host audit` needs no root",
        )


def _knobs(only: Iterable[str] | None) -> list[Knob]:
    if only is None:
        return [knob for knob in KNOBS if not knob.asked]
    names = list(only)
    found = knobs_named(names)
    for knob in found:
        if knob.name in names and knob.kind not in _SETTABLE:
            raise UsageError(
                f"got {knob.name!r}, expected a knob that can be set at runtime",
                hint="`tailscope host export` writes what needs a reboot",
            )
    return found


def _is_to_hold(knob: Knob, machine: Machine, cpus: Cpus) -> bool:
    applies = knob.kind == "held" and knob.recommended(machine, cpus) is not None
    return applies and not knob.is_good(machine, cpus)


def _hold(machine: Machine, held: ExitStack, name: str) -> Outcome:
    path, content = CpuDmaLatency.path, CpuDmaLatency.content
    refused = None
    try:
        held.enter_context(machine.holding(path, content))
    except OSError as error:
        refused = error.strerror
    return Outcome(name, path, None, "0 µs", refused)


def _apply(
    machine: Machine, cpus: Cpus, plan: list[tuple[Knob, list[Change]]], by: str
) -> list[Outcome]:
    if not plan:
        return []
    Journal.expect_none(machine)
    try:
        journal = Journal.create(machine, by)
        return [
            outcome
            for knob, changes in plan
            for outcome in _set(machine, knob, changes, cpus, journal)
        ]
    except BaseException:
        _take_back(machine)
        raise


def _set(
    machine: Machine, knob: Knob, changes: list[Change], cpus: Cpus, journal: Journal
) -> Iterator[Outcome]:
    for change in changes:
        original = machine.read(change.path)
        if original is None and not change.path.endswith("/"):
            refused: str | None = "what cannot be read is not set"
        else:
            journal.add(Entry(knob.name, change.path, original, change.text))
            refused = _write(machine, knob, change, cpus)
        yield Outcome(knob.name, change.path, original, change.text, refused)
        if refused is not None and getattr(knob, "together", False):
            return


def _write(machine: Machine, knob: Knob, change: Change, cpus: Cpus) -> str | None:
    """Make a change; why it was not taken, if it was not."""
    try:
        machine.write(change.path, change.text)
    except OSError as error:
        return error.strerror or str(error)
    now = machine.read(change.path)
    if now is not None and knob.takes(now, change, cpus):
        return None
    return f"it reads {_shown(now)}"


def _take_back(machine: Machine) -> None:
    journal = Journal.read(machine)
    if journal is None:
        return
    failed = _revert(machine, journal).failed
    if failed:
        entry, why = failed[0]
        raise TuningError(
            f"{entry.path}: it could not be restored: {why}; {len(failed)} in all",
            hint="`tailscope host revert` tries again",
        )


def _revert(machine: Machine, journal: Journal) -> Reverted:
    found = Reverted(by=journal.by)
    for entry in reversed(journal.entries):
        why = _restore(machine, entry)
        if why is None:
            found.restored.append(entry)
        else:
            found.failed.append((entry, why))
    if not found.failed:
        journal.remove()
    return found


def _restore(machine: Machine, entry: Entry) -> str | None:
    """Make a path what it was; why it is not, if it is not."""
    now = machine.read(entry.path)
    if now == entry.original:
        return None
    if now is None and not machine.exists(entry.path):
        return None  # A task that has ended, a card that was taken out: nothing is left to restore.
    try:
        if entry.original is None:
            machine.remove_folder(entry.path)
        else:
            machine.write(entry.path, _accepted(entry, now or ""))
    except OSError as error:
        return error.strerror or str(error)
    after = machine.read(entry.path)
    if after == entry.original:
        return None
    return f"got {_shown(after)}, expected {_shown(entry.original)}"


def _accepted(entry: Entry, now: str) -> str:
    """What makes the kernel say the original again: a word of a list, or what to take away."""
    original = entry.original or ""
    if entry.path.endswith("/cgroup.subtree_control"):
        return " ".join(f"-{word}" for word in now.split() if word not in original.split())
    return chosen(original) if "[" in original else original


def _shown(text: str | None) -> str:
    return "nothing" if text is None else repr(text.strip())
