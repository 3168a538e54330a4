"""Service levels: what they may say, and the ones that have a name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from tailscope.exceptions import UsageError
from tailscope.units import did_you_mean, positive_duration_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind: TypeAlias = Literal["latency", "pdv", "max", "loss", "count"]
Operator: TypeAlias = Literal["<", "<=", "="]

_COUNTS = ("lost", "reordered", "duplicated", "corrupt", "dropped")
_EXAMPLE = "such as 'p99.999<1ms, loss<1e-5, max<2ms, reordered=0'"
_KNOWN = f"pQ (p99.9), pdv-pQ, max, loss, {', '.join(_COUNTS)}"
_TERM = re.compile(r"\s*([^<>=\s]*)\s*(<=|<|=)\s*([^<>=]*?)\s*")
_QUANTILE = re.compile(r"(pdv-)?p(\d{1,2}(?:\.\d+)?)", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,18}")
_SHARE = re.compile(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*(%?)", re.ASCII)


@dataclass(frozen=True)
class NamedLevel:
    """A service level that others have set."""

    text: str
    """The name as it would be written."""
    source: str


PROFILES = {
    "urllc-itu": NamedLevel(
        "p99.999<=1ms",
        "ITU-R M.2410-0 (2017), as in NOMS 2020 (Gallenmüller et al., 5G QoS), section I",
    ),
    "urllc-22.104": NamedLevel(
        "p99.99999<0.5ms",
        "3GPP TS 22.104 V17.3.0, as in IEEE Communications Magazine 2020 (Gallenmüller et al.,"
        " 5G URLLC), section I",
    ),
    "nf-350us": NamedLevel(
        "p99.999<=350us",
        "the share of a chain of network functions (Xiang et al.), as in NOMS 2020, section V",
    ),
}
"""Service levels by name."""


@dataclass(frozen=True)
class Term:
    """One demand of a service level."""

    text: str
    """The term as it was written."""
    name: str
    kind: Kind
    """Kind of its figure: a quantile of latency or of its variation, the maximum, a ratio, or a
    number.
    """
    operator: Operator
    limit: float
    """Limit in nanoseconds, as a share, or as a number."""
    allowed: float | None = None
    """The share of packets that may lie beyond: of quantiles, what the quantile leaves; of a loss
    ratio, the limit. None where the packets of the run are counted, and nothing else."""
    quantile: float | None = None

    @property
    def is_observed(self) -> bool:
        """True if it is about the packets of the run alone."""
        return self.allowed is None

    @property
    def is_time(self) -> bool:
        """True if its limit is in nanoseconds."""
        return self.kind in ("latency", "pdv", "max")

    def is_met_by(self, value: float) -> bool:
        """Return whether a value is within the limit."""
        if self.operator == "=":
            return value == self.limit
        return value < self.limit or (self.operator == "<=" and value == self.limit)


@dataclass(frozen=True)
class Level:
    """A service level: all its terms hold together."""

    text: str
    """The service level as it was written."""
    terms: tuple[Term, ...]
    profiles: tuple[str, ...]
    """Names that stand for some of them."""


def parse_level(text: str, name: str = "--slo") -> Level:
    """Read a service level: terms and names of profiles, separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    terms = dict.fromkeys(term for part in parts for term in _terms(part, name))
    return Level(text.strip(), tuple(terms), tuple(part for part in parts if part in PROFILES))


def _terms(part: str, name: str) -> Iterator[Term]:
    if not any(sign in part for sign in "<>="):
        yield from (_term(term.strip(), name) for term in _profile(part, name).text.split(","))
    else:
        yield _term(part, name)


def _profile(part: str, name: str) -> NamedLevel:
    if part in PROFILES:
        return PROFILES[part]
    raise UsageError(
        f"{name}: got {part!r}, expected a term or one of {', '.join(PROFILES)}",
        code="slo-profile",
        hint=did_you_mean(part, PROFILES) or _EXAMPLE,
    )


def _term(part: str, name: str) -> Term:
    match = _TERM.fullmatch(part)
    if match is None:
        raise UsageError(
            f"{name}: got {part!r}, expected NAME, one of < <= =, and a limit",
            code="slo-term",
            hint=_EXAMPLE,
        )
    what, value = match.group(1), " ".join(match.group(3).split())
    operator = cast("Operator", match.group(2))
    part = f"{what}{operator}{value}"
    quantile = _QUANTILE.fullmatch(what)
    figures = ("max", "loss", *_COUNTS)
    if quantile is None and what not in figures:
        raise UsageError(
            f"{name}: got {what!r} in {part!r}, expected {_KNOWN}",
            code="slo-figure",
            hint=did_you_mean(what, figures) or _EXAMPLE,
        )
    if what in _COUNTS:
        return Term(part, what, "count", operator, _whole(value, part, name))
    if operator == "=":
        hint = "lost=0 says that no packet of the run was lost" if what == "loss" else None
        raise UsageError(
            f"{name}: got = in {part!r}, expected < or <=", code="slo-equals", hint=hint
        )
    if what == "loss":
        share = _share(value, part, name)
        return Term(part, what, "loss", operator, share, allowed=share)
    limit_ns = positive_duration_ns(value, f"{name}: {part}")
    if quantile is None:
        return Term(part, what, "max", operator, limit_ns)
    percent = Decimal(quantile.group(2))
    if not percent:
        raise UsageError(
            f"{name}: got {what} in {part!r}, expected more than p0", code="slo-quantile"
        )
    return Term(
        part,
        what,
        "pdv" if quantile.group(1) else "latency",
        operator,
        limit_ns,
        allowed=float((100 - percent) / 100),
        quantile=float(percent / 100),
    )


def _whole(value: str, part: str, name: str) -> int:
    if not _WHOLE.fullmatch(value):
        raise UsageError(
            f"{name}: got {value!r} in {part!r}, expected a number of packets", code="slo-count"
        )
    return int(value)


def _share(value: str, part: str, name: str) -> float:
    match = _SHARE.fullmatch(value)
    share = float(match.group(1)) / (100 if match.group(2) else 1) if match else 0.0
    if not 0 < share < 1:
        raise UsageError(
            f"{name}: got {value!r} in {part!r}, expected a share between 0 and 1,"
            " such as 1e-5 or 0.001%",
            code="slo-share",
        )
    return share
