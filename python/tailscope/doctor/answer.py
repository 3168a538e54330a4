"""What an examination found, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.noise.load import WORTH
from tailscope.units import percentile_name, share_text, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.store.records.doctor import DoctorRecord, Finding

_MOST_CHARACTERS = 160
_NAMED = 2
"""Most programs that the answer names."""
_STAMPS = {"all": "all frames", "some": "some frames", "none": "none"}


def answer(record: DoctorRecord) -> str:
    """Say in a sentence what can be measured, who is busy, and how far it can be believed."""
    wires = [wire.about for wire in present(record.wires)]
    if not wires:
        return f"This machine can analyse captures, and measure nothing: {record.wires[0].detail}"
    devices = f"{len(present(record.devices))} of {len(record.devices)} devices"
    platforms = f"on {', '.join(each.name for each in present(record.platforms))}"
    can = f"This machine can measure: {', '.join([*wires, devices])}, {platforms}"
    return "; ".join([can, f"busy: {busy_text(record)}", _believed(record)])


def present(findings: Sequence[Finding]) -> list[Finding]:
    """Return what is not missing."""
    return [each for each in findings if each.state != "missing"]


def busy_text(record: DoctorRecord) -> str:
    """Name the programs that took most of the CPUs, or the CPUs if no program is known."""
    programs = [each for each in record.load.programs if each.share >= WORTH]
    if programs:
        return ", ".join(f"{each.name} {share_text(each.share)}" for each in programs[:_NAMED])
    cpus = {cpu: share for cpu, share in record.load.cpus.items() if share >= WORTH}
    return ", ".join(f"CPU {cpu} {share_text(share)}" for cpu, share in cpus.items()) or "nobody"


def _believed(record: DoctorRecord) -> str:
    if record.floor is None:
        return f"its floor could not be measured: {record.no_floor}"
    if record.floor.believed_up_to is None:
        return "believed to no percentile: the instrument itself was held up"
    return f"believed to {percentile_name(record.floor.believed_up_to)} over shared memory"


def lines(record: DoctorRecord) -> Iterator[tuple[str, str]]:
    """Give titles and texts of all that is there; what is only found is said to be."""
    for title, findings in kinds(record):
        tried = [each.name for each in findings if each.state == "tried"]
        found = ", ".join(each.name for each in findings if each.state == "found")
        parts = (", ".join(tried), f"not tried: {found}" if found else "")
        yield title, "; ".join(filter(None, parts)) or "none"
    stamps = (f"{card.name}: {_STAMPS[card.stamps]}" for card in record.cards)
    yield "hardware stamps", ", ".join(stamps) or "no network card"


def lacks(record: DoctorRecord) -> Iterator[tuple[str, str | None]]:
    """Give what is missing, and the line that adds it; what one line adds stands together."""
    by_remedy: dict[tuple[str | None, str | None], list[str]] = {}
    for _, findings in kinds(record):
        for each in findings:
            if each.state == "missing":
                by_remedy.setdefault((each.remedy, each.detail), []).append(each.name)
    for (remedy, detail), names in by_remedy.items():
        yield f"{', '.join(names)}: {shortened(detail or '', _MOST_CHARACTERS)}", remedy


def kinds(record: DoctorRecord) -> tuple[tuple[str, Sequence[Finding]], ...]:
    """Return all that was examined, by kinds."""
    return (
        ("wires", record.wires),
        ("devices", record.devices),
        ("platforms", record.platforms),
        ("recordings", record.recordings),
        ("host", record.host_parts),
        ("extras", record.extras),
    )
