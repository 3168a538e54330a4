"""Changes to the settings of a running machine, and their reversal."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError, TuningError, UsageError
from tailscope.host import remedies
from tailscope.host.entries import Entry
from tailscope.host.journal import Journal, journal_file, tuning_lock
from tailscope.host.knobs.catalogue import KNOBS, knobs_named
from tailscope.host.knobs.power import CpuDmaLatency
from tailscope.host.machine import chosen
from tailscope.signals import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tailscope.host.knobs.knob import Change, Cpus, Knob
    from tailscope.host.machine import Machine

_SETTABLE = ("runtime", "held")
_ADDED = "+"


@dataclass(frozen=True)
class Choice:
    """The knobs to set."""

    knobs: list[Knob]
    """Knobs that would change something."""
    left_out: dict[str, str]
    """Reason by name for each other knob: why it is not set, or what undoes it."""


@dataclass(frozen=True)
class KnobOutcome:
    """The outcome of one change."""

    knob: str
    path: str
    original: str | None
    """Previous text; None if the path did not exist or cannot be read."""
    wanted: str
    refused: str | None
    """Reason why the change failed; None if it succeeded."""


@dataclass
class Reverted:
    """The outcome of a reversal."""

    by: str | None = None
    """Command that tuned the host; None if the host was not tuned."""
    restored: list[Entry] = field(default_factory=list)
    """Restored changes, the last change first."""
    failed: list[tuple[Entry, str]] = field(default_factory=list)
    """Changes that could not be restored, each with the reason; the journal is kept for another
    try."""
    aside: Path | None = None
    """Path to which the journal was moved if the machine was rebooted, which reverts everything."""


def applicable(
    machine: Machine, cpus: Cpus, only: Iterable[str] | None = None, *, holding: bool = True
) -> Choice:
    """Choose the knobs that would change something here."""
    choice = Choice([], {})
    for knob in _settable(None if only is None else list(only)):
        nothing = _nothing_to_do(knob, machine, cpus)
        if nothing:
            # Without named knobs, the ones that need no change are not listed.
            choice.left_out.update({} if only is None else {knob.name: nothing})
        elif knob.asked and only is None:
            choice.left_out[knob.name] = f"{knob.asked}; set only by name (--only)"
        elif knob.kind == "held" and not holding:
            choice.left_out[knob.name] = "it must be held during a run: `tailscope run --tune`"
        else:
            choice.knobs.append(knob)
    for name in filter(None, [knob.undone_by for knob in choice.knobs]):
        [other] = knobs_named([name])
        if other.recommended(machine, cpus) is not None and not other.is_good(machine, cpus):
            advice = "; ".join(str(setting) for setting in other.lasting(machine, cpus))
            choice.left_out[name] = f"{other.why}: {advice}"
    return choice


def planned(
    machine: Machine, cpus: Cpus, only: Iterable[str] | None = None
) -> list[tuple[Knob, list[Change]]]:
    """List the writes that `apply` would do, by knob; parameters as for `applicable`."""
    return _plan(machine, cpus, applicable(machine, cpus, only, holding=False))


def apply(
    machine: Machine, cpus: Cpus, only: Iterable[str] | None = None, *, by: str
) -> list[KnobOutcome]:
    """Set knobs until `revert`; continue after a refusal, which the outcomes report.

    An exception, Ctrl-C included, reverts the changes. If every change was refused, no journal is
    kept.
    """
    needs_root(machine)
    with tuning_lock(machine):
        plan = planned(machine, cpus, only)
        with _changed(machine, cpus, plan, by, keep=True) as outcomes:
            return outcomes


@contextmanager
def tuned(
    machine: Machine, cpus: Cpus, only: Iterable[str] | None = None, *, by: str
) -> Iterator[list[KnobOutcome]]:
    """Set knobs within a block, including those that must be held."""
    needs_root(machine)
    with tuning_lock(machine):
        choice = applicable(machine, cpus, only)
        # What the kernel gives back late would tune the next run, too.
        choice.knobs[:] = [knob for knob in choice.knobs if only is not None or not knob.lags]
        plan = _plan(machine, cpus, choice)
        with _changed(machine, cpus, plan, by, keep=False) as outcomes, ExitStack() as held:
            knobs = [knob for knob in choice.knobs if knob.kind == "held"]
            yield [*outcomes, *(_hold(machine, held, knob.name) for knob in knobs)]


def revert(machine: Machine, *, dry_run: bool = False) -> Reverted:
    """Restore the settings, also after a crash; repeating it does nothing."""
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
            entries = [entry for entry in journal.entries if not _is_restored(entry, machine)]
            return Reverted(by=journal.by, restored=entries[::-1])
        return _revert(machine, journal)


def needs_root(machine: Machine) -> None:
    """Raise `TestbedError` unless this process may change the machine."""
    if machine.is_this and os.geteuid() != 0:
        raise TestbedError(
            f"changing settings of the host requires root: got user {os.geteuid()}, expected 0",
            code="root-required",
            remedy=remedies.SUDO,
            hint="look at them without root: `tailscope host audit`",
        )


def _settable(only: list[str] | None) -> list[Knob]:
    knobs = KNOBS if only is None else knobs_named(only)
    for knob in knobs:
        if only is not None and knob.name in only and knob.kind not in _SETTABLE:
            raise UsageError(
                f"got {knob.name!r}, expected a knob that can be set at runtime",
                code="knob-needs-boot",
                hint="`tailscope host export` writes what needs a reboot",
            )
    return [knob for knob in knobs if knob.kind in _SETTABLE]


def _nothing_to_do(knob: Knob, machine: Machine, cpus: Cpus) -> str:
    """Return the reason why a knob would change nothing; empty if it would change something."""
    if knob.recommended(machine, cpus) is None:
        return "it does not apply here"
    if knob.is_good(machine, cpus):
        return "it is already as it should be"
    if knob.kind == "runtime" and not knob.changes(machine, cpus):
        return "it cannot be set for these CPUs"
    return ""


def _plan(machine: Machine, cpus: Cpus, choice: Choice) -> list[tuple[Knob, list[Change]]]:
    knobs = [knob for knob in choice.knobs if knob.kind == "runtime"]
    return [(knob, knob.changes(machine, cpus)) for knob in knobs]


def _hold(machine: Machine, held: ExitStack, name: str) -> KnobOutcome:
    path, content = CpuDmaLatency.path, CpuDmaLatency.content
    refused = None
    try:
        held.enter_context(machine.holding(path, content))
    except OSError as error:
        refused = error.strerror
    return KnobOutcome(name, path, None, "0 µs", refused)


@contextmanager
def _changed(
    machine: Machine, cpus: Cpus, plan: list[tuple[Knob, list[Change]]], by: str, *, keep: bool
) -> Iterator[list[KnobOutcome]]:
    """Set knobs and restore them after the block, unless `keep` is set and it ends well."""
    if not plan:
        yield []
        return
    Journal.expect_none(machine)
    stays = False
    try:
        journal = Journal.create(machine, by)
        outcomes = [
            outcome
            for knob, changes in plan
            for outcome in _set(machine, knob, changes, cpus, journal)
        ]
        yield outcomes
        is_set = any(outcome.refused is None for outcome in outcomes)
        has_changed = any(not _is_restored(entry, machine) for entry in journal.entries)
        stays = keep and is_set and has_changed
    finally:
        if not stays:
            _take_back(machine)


def _set(
    machine: Machine, knob: Knob, changes: list[Change], cpus: Cpus, journal: Journal
) -> Iterator[KnobOutcome]:
    for change in changes:
        original = machine.read(change.path)
        if original is None and not change.path.endswith("/"):
            refused: str | None = "not set, because it cannot be read"
        else:
            journal.add(Entry(knob.name, change.path, original, change.text))
            refused = _write(machine, knob, change, cpus)
        yield KnobOutcome(knob.name, change.path, original, change.text, refused)
        if refused is not None and getattr(knob, "together", False):
            return


def _write(machine: Machine, knob: Knob, change: Change, cpus: Cpus) -> str | None:
    """Make a change; return the reason if it failed."""
    try:
        machine.write(change.path, change.text)
    except OSError as error:
        return knob.refusal(machine) or error.strerror or str(error)
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
            code="not-restored",
            hint="`tailscope host revert` tries again",
        )


def _revert(machine: Machine, journal: Journal) -> Reverted:
    reverted = Reverted(by=journal.by)
    with uninterrupted():
        for entry in reversed(journal.entries):
            why = _restore(machine, entry)
            if why is None:
                reverted.restored.append(entry)
            else:
                reverted.failed.append((entry, why))
        if not reverted.failed:
            journal.remove()
    return reverted


def _restore(machine: Machine, entry: Entry) -> str | None:
    """Restore a path; return the reason if it failed."""
    if _is_out_of_sight(entry, machine):
        return (
            "the card is not here: `tailscope runs clean` brings back that of a killed run; of one"
            f" that was taken out nothing is left to restore: remove {journal_file(machine)}"
        )
    if _is_restored(entry, machine):
        return None
    try:
        if entry.original is None:
            machine.remove_folder(entry.path)
        else:
            machine.write(entry.path, _accepted(entry))
    except OSError as error:
        return error.strerror or str(error)
    if _is_restored(entry, machine):
        return None
    return f"got {_shown(machine.read(entry.path))}, expected {_shown(entry.original)}"


def _is_restored(entry: Entry, machine: Machine) -> bool:
    """Return True if a path has its original text, or no longer exists, as for a finished task."""
    now = machine.read(entry.path)
    if now is None:
        return not machine.exists(entry.path) and not _is_out_of_sight(entry, machine)
    if entry.wanted.startswith(_ADDED):
        # Other programs may have changed other words since.
        word = entry.wanted.removeprefix(_ADDED)
        return (word in now.split()) == (word in (entry.original or "").split())
    return now == entry.original


def _is_out_of_sight(entry: Entry, machine: Machine) -> bool:
    """Return True if a card is in another namespace, at another driver, or taken out."""
    return entry.path.startswith("ethtool:") and not machine.exists(entry.path)


def _accepted(entry: Entry) -> str:
    """Return the text that makes the kernel show the original: one word of a list, or a removal."""
    original = entry.original or ""
    if entry.wanted.startswith(_ADDED):
        return f"-{entry.wanted.removeprefix(_ADDED)}"
    return chosen(original) if "[" in original else original


def _shown(text: str | None) -> str:
    return "nothing" if text is None else repr(text.strip())
