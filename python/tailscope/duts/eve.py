"""What Suricata's log of events says of its counts."""

from __future__ import annotations

from msgspec import Struct
from msgspec.json import decode

from tailscope.store.records.dataplane import SuricataCounts


# Only what is read here is named: what else there is differs by version.
class EveVerdicts(Struct, frozen=True, kw_only=True):
    """What became of packets."""

    blocked: int = 0
    accepted: int = 0
    drop_reason: dict[str, int] = {}


class EveEngine(Struct, frozen=True, kw_only=True):
    """What searches by rules, and how many it has; one for each tenant."""

    rules_loaded: int = 0
    rules_failed: int = 0


class EveAlerts(Struct, frozen=True, kw_only=True):
    """What rules found."""

    alert: int = 0
    engines: list[EveEngine] = []


class EveStats(Struct, frozen=True, kw_only=True):
    """Counters since it was started."""

    ips: EveVerdicts = EveVerdicts()
    detect: EveAlerts = EveAlerts()
    capture: dict[str, object] = {}


class EveEvent(Struct, frozen=True, kw_only=True):
    """A line of the log; `stats` in those that have counters."""

    event_type: str = ""
    stats: EveStats | None = None


def counts_of(log: str) -> SuricataCounts | None:
    """What it counted last; None where it says nothing."""
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
