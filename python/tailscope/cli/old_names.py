"""Names that lead on to a command: those of the version before, and those that mean the same.

Delete `OLD_NAMES` with the next version.
"""

from __future__ import annotations

from tailscope.cli.terminal import tell

OLD_NAMES = {
    "baseline": "compare",
    "baseline compare": "compare baseline",
    "baseline save": "compare save",
    "clean": "runs clean",
    "compare-instruments": "calibrate --instruments all",
    "duet": "compare duet",
    "export": "runs export",
    "finish": "runs finish",
    "import": "runs import",
    "list": "runs list",
    "note": "runs note",
    "publish": "runs publish",
    "rfc": "search standard",
    "show": "runs show",
    "sql": "runs sql",
    "tag": "runs tag",
    "trace": "report --format perfetto",
    "tune": "host tune",
}
"""Commands of the version before, by the words that called them."""

SYNONYMS = {
    "analyse": "analyze",
    "audit": "host audit",
    "bench": "run",
    "benchmark": "run",
    "calibration": "calibrate",
    "check": "verify",
    "diff": "compare",
    "gate": "init",
    "judge": "verify",
    "ls": "runs list",
    "measure": "run",
    "ndr": "search",
    "open": "report",
    "pdr": "search",
    "perfetto": "report --format perfetto",
    "predict": "model",
    "rfc2544": "search standard 2544 --dry-run",
    "rfc8219": "search standard 8219 --dry-run",
    "version": "--version",
    "view": "runs show",
    "why": "explain",
}
"""Words that people try first, and what they mean."""

NEW_NAMES = {**SYNONYMS, **OLD_NAMES}
_MOST_WORDS = 2


def led_on(words: list[str], *, quiet: bool) -> list[str]:
    """Return words that begin with the command that is meant, and say so unless `quiet`."""
    for count in range(min(_MOST_WORDS, len(words)), 0, -1):
        name = " ".join(words[:count])
        new = NEW_NAMES.get(name)
        if new is None:
            continue
        if not quiet:
            became = "is now" if name in OLD_NAMES else "means"
            tell("note", f"`tailscope {name}` {became} `tailscope {new}`")
        return [*new.split(), *words[count:]]
    return words
