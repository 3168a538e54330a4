"""Suricata's counters, read from its event log."""

from __future__ import annotations

from msgspec import Struct
from msgspec.json import decode

from tailscope.store.records.dataplane import SuricataCounts


# Only the fields that are read here are declared: the others differ by version.
class EveVerdicts(Struct, frozen=True, kw_only=True):
    """Verdicts on packets."""

    blocked: int = 0
    accepted: int = 0
    drop_reason: dict[str, int] = {}


class EveEngine(Struct, frozen=True, kw_only=True):
    """A detection engine and its rules; there is one for each tenant."""

    rules_loaded: int = 0
    rules_failed: int = 0


class EveAlerts(Struct, frozen=True, kw_only=True):
    """Alerts, and the engines that raised them."""

    alert: int = 0
    engines: list[EveEngine] = []


class EveStats(Struct, frozen=True, kw_only=True):
    """Counters since Suricata was started."""

    ips: EveVerdicts = EveVerdicts()
    detect: EveAlerts = EveAlerts()
    capture: dict[str, object] = {}


class EveEvent(Struct, frozen=True, kw_only=True):
    """A line of the log, with `stats` if it has counters."""

    event_type: str = ""
    stats: EveStats | None = None


def counts_of(log: str) -> SuricataCounts | None:
    """Return the last counters of a log; None if it has none."""
    events = (decode(line, type=EveEvent) for line in log.splitlines())
    stats = [event.stats for event in events if event.event_type == "stats"]
    if not stats or stats[-1] is None:
        return None
    ips = stats[-1].ips
    return SuricataCounts(
        dropped=ips.blocked,
        accepted=ips.accepted,
        alerts=stats[-1].detect.alert,
        capture=stats[-1].capture,
        rules_loaded=sum(engine.rules_loaded for engine in stats[-1].detect.engines),
        rules_failed=sum(engine.rules_failed for engine in stats[-1].detect.engines),
        drop_reasons={reason: count for reason, count in ips.drop_reason.items() if count},
    )
