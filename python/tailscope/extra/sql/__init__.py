"""Runs as tables of SQL."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition, Extra

ADDITION = Addition(
    commands=(
        AddedCommand(
            "sql",
            "Query runs in SQL: tables run, summary, tag, note, file, and the packets of all runs.",
            group="runs",
        ),
    ),
    extra=Extra("sql", {"duckdb": "duckdb"}),
)
