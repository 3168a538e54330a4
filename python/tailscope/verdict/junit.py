"""Verdicts as JUnit's XML, which CI servers read."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from tailscope.text import printable
from tailscope.verdict.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.verdict.verdict import RunVerdict

__all__ = ["junit"]

_ELEMENTS = {Outcome.FAIL: "failure", Outcome.INCONCLUSIVE: "error"}


def junit(runs: Sequence[RunVerdict], text: str, said: Sequence[Sequence[str]]) -> str:
    """A suite for each run, a case for each term; what is inconclusive is an error, not skipped.

    Parameters
    ----------
    runs : sequence of RunVerdict
    text : str
        The service level.
    said : sequence of sequence of str
        For each run, what is said of each of its terms.
    """
    root = ET.Element("testsuites", name=printable(f"tailscope verify {text}"))
    for run, sentences in zip(runs, said, strict=True):
        cases = [(each.term.text, each.outcome) for each in run.terms] or [(text, run.outcome)]
        outcomes = [outcome for _, outcome in cases]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=printable(run.name),
            tests=str(len(cases)),
            failures=str(outcomes.count(Outcome.FAIL)),
            errors=str(outcomes.count(Outcome.INCONCLUSIVE)),
        )
        for (name, outcome), sentence in zip(cases, sentences, strict=True):
            case = ET.SubElement(
                suite, "testcase", classname=printable(run.name), name=printable(name)
            )
            kind = _ELEMENTS.get(outcome, "system-out")
            found = ET.SubElement(case, kind)
            found.text = printable(sentence)
            if outcome in _ELEMENTS:
                found.set("message", printable(f"{outcome}: {sentence}"))
                found.set("type", str(outcome))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
