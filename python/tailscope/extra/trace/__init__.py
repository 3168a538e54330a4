"""A run as one timeline in the format of Perfetto."""

from __future__ import annotations

from tailscope.registry import Addition, Extra

ADDITION = Addition(
    formats={"perfetto": "timeline:write_timeline"},
    services={"write_trace": "perfetto:write_trace"},
    extra=Extra("trace", {"perfetto": "perfetto"}),
)
