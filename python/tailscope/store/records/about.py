"""``about`` in ``run.json``: what the user of captures or tables says of them."""

from __future__ import annotations

from tailscope.plan.field import check_declared
from tailscope.plan.fields import AboutFields


class AboutRecord(AboutFields, frozen=True, kw_only=True, omit_defaults=True):
    """The user's description of a measurement: device, machine and tools; the rest is unknown."""

    def __post_init__(self) -> None:
        check_declared(self, AboutFields)
