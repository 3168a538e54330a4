"""Tests of standards: RFC 2544, RFC 8219, ETSI GS NFV-TST 009, and MLRsearch (RFC 9971)."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "rfc",
            "Make the tests of RFC 2544, RFC 8219, TST 009 or MLRsearch; the report cites clauses.",
            measures=True,
        ),
        AddedCommand(
            "search",
            "Find the highest rates without loss (NDR) and with a permitted loss (PDR).",
            measures=True,
            module="search_command",
        ),
    ),
)
