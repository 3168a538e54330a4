"""Catalogue of the platforms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.platforms.bare import Bare
from tailscope.platforms.lxc import Lxc
from tailscope.platforms.podman import Podman
from tailscope.platforms.vm import Vm
from tailscope.units import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.platforms.platform import Platform

PLATFORMS: dict[str, type[Platform]] = {
    platform.name: platform for platform in (Bare, Lxc, Podman, Vm)
}
"""Kinds of platforms, by name."""


def platform_named(
    name: str, options: Mapping[str, str], kernel: str | None, boot: str | None
) -> Platform:
    """Make a platform of the kind that has this name."""
    refuse_unknown("--platform", name, PLATFORMS, "unknown-platform")
    return PLATFORMS[name](options, kernel, boot)
