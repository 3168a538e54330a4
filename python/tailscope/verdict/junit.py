"""Verdicts as JUnit's XML, which CI servers read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree as ET

from tailscope.units import printable
from tailscope.verdict.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

_ELEMENTS = {Outcome.FAIL: "failure", Outcome.INCONCLUSIVE: "error"}


class Case(NamedTuple):
    """A verdict, and what is said of it."""

    name: str
    outcome: Outcome
    said: str


class Suite(NamedTuple):
    """The verdicts on a run, or on a comparison."""

    name: str
    cases: Sequence[Case]


def junit(title: str, suites: Sequence[Suite]) -> str:
    """Write suites and their cases; what is inconclusive is an error, not skipped."""
    root = ET.Element("testsuites", name=printable(title))
    for name, cases in suites:
        outcomes = [case.outcome for case in cases]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=printable(name),
            tests=str(len(cases)),
            failures=str(outcomes.count(Outcome.FAIL)),
            errors=str(outcomes.count(Outcome.INCONCLUSIVE)),
        )
        for case in cases:
            element = ET.SubElement(
                suite, "testcase", classname=printable(name), name=printable(case.name)
            )
            outcome = ET.SubElement(element, _ELEMENTS.get(case.outcome, "system-out"))
            outcome.text = printable(case.said)
            if case.outcome in _ELEMENTS:
                outcome.set("message", printable(f"{case.outcome}: {case.said}"))
                outcome.set("type", str(case.outcome))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
