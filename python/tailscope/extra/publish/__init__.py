"""A campaign as a static site, without what is private to a machine."""

from __future__ import annotations

from tailscope.registry import AddedCommand, AddedFile, Addition, Extra

ADDITION = Addition(
    commands=(
        AddedCommand(
            "publish",
            "Publish a campaign as a static site: pages, data, plan, environment, figures.",
            group="runs",
        ),
    ),
    files=(
        AddedFile(
            "publication.json",
            "The files of a published campaign, and of which one.",
            "records:PublicationRecord",
        ),
        AddedFile(
            "environment.json",
            "Machines, knobs and versions, each with the runs that have it.",
            "records:EnvironmentsRecord",
        ),
    ),
    extra=Extra("publish", {"detect_secrets": "detect-secrets"}),
)
