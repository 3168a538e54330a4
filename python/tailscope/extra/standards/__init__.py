"""Tests of standards: RFC 2544, RFC 8219, ETSI GS NFV-TST 009, and MLRsearch (RFC 9971)."""

from __future__ import annotations

from tailscope.registry import AddedCommand, AddedFile, Addition, Extra

SEARCH = "search.json"
STANDARD = "standard.json"

ADDITION = Addition(
    commands=(
        AddedCommand(
            "search",
            "Find the highest rates without and with some loss (NDR, PDR).",
            measures=True,
            module="search_command",
            section="Measuring",
        ),
        AddedCommand(
            "standard",
            "Make the tests of RFC 2544, RFC 8219, TST 009 or MLRsearch; the report cites clauses.",
            measures=True,
            group="search",
        ),
    ),
    files=(
        AddedFile(
            SEARCH,
            "What a search found; with `--forwarder` the runs `forwarder`, `function` and `bursts`"
            " lie beside it.",
            "search_records:SearchRecord",
        ),
        AddedFile(
            STANDARD,
            "What the tests of a standard found, by size of frames and by clause"
            " ([rfc.md](rfc.md)).",
            "records:StandardRecord",
        ),
        AddedFile("report.html", "The same as a page: one file, works offline."),
    ),
    services={"figures": "figures:FIGURES"},
    extra=Extra("standards", {"MLRsearch": "MLRsearch"}),
)
