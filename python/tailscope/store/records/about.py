"""``about`` in ``run.json``: what the user of captures or tables says of them."""

from __future__ import annotations

from tailscope.exceptions import UsageError
from tailscope.plan.field import fields_of
from tailscope.plan.fields import AboutFields


class AboutRecord(AboutFields, frozen=True, kw_only=True, omit_defaults=True):
    """The user's description of a measurement: device, machine and tools; the rest is unknown."""

    def __post_init__(self) -> None:
        for name, declared in fields_of(AboutFields).items():
            if declared.least is not None:
                try:
                    declared.check(getattr(self, name))
                except UsageError as error:
                    raise ValueError(f"{name}: {error}") from None
