"""What a service level may say."""

from __future__ import annotations

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st

from tailscope.exceptions import UsageError
from tailscope.verdict.slo import PROFILES, parse_level


def test_every_kind_of_term_is_read() -> None:
    level = parse_level("p99.999<1ms, loss<0.001%, max <= 2 ms,reordered=0, pdv-p50<=1.5us")
    assert [term.text for term in level.terms] == [
        "p99.999<1ms",
        "loss<0.001%",
        "max<=2 ms",
        "reordered=0",
        "pdv-p50<=1.5us",
    ]
    assert [term.limit for term in level.terms] == [1_000_000, 1e-5, 2_000_000, 0, 1_500]
    assert [term.kind for term in level.terms] == ["latency", "loss", "max", "count", "pdv"]
    assert [term.is_observed for term in level.terms] == [False, False, True, True, False]
    assert level.terms[0].quantile == 0.99999
    assert level.terms[0].allowed == 1e-5
    assert level.terms[4].allowed == 0.5


@pytest.mark.parametrize(
    ("text", "value", "met"),
    [
        ("max<1us", 999, True),
        ("max<1us", 1000, False),
        ("max<=1us", 1000, True),
        ("lost=0", 0, True),
        ("lost=0", 1, False),
        ("reordered<=3", 3, True),
        ("corrupt<3", 3, False),
    ],
)
def test_operators_mean_what_they_say(text: str, value: float, met: bool) -> None:
    (term,) = parse_level(text).terms
    assert term.is_met_by(value) is met


def test_profiles_are_levels_with_a_source() -> None:
    limits = {
        "urllc-itu": (1_000_000, 1e-5),
        "urllc-22.104": (500_000, 1e-7),
        "nf-350us": (350_000, 1e-5),
    }
    assert set(limits) == set(PROFILES)
    for name, expected in limits.items():
        (term,) = parse_level(name).terms
        assert (term.limit, term.allowed) == expected
        assert PROFILES[name].source
    level = parse_level("nf-350us, loss<1e-6")
    assert [term.name for term in level.terms] == ["p99.999", "loss"]
    assert level.profiles == ("nf-350us",)


@pytest.mark.parametrize(
    ("text", "code", "got"),
    [
        ("", "slo-profile", "''"),
        ("p99", "slo-profile", "'p99'"),
        ("p99<1ms,", "slo-profile", "''"),
        ("p99>1ms", "slo-term", "'p99>1ms'"),
        ("p99<1ms<2ms", "slo-term", "'p99<1ms<2ms'"),
        ("p99=1ms", "slo-equals", "'p99=1ms'"),
        ("p99<1", "duration", '"1"'),
        ("p99<nanms", "duration", '"nanms"'),
        ("p99<-1ms", "duration", '"-1ms"'),
        ("p99<0ms", "duration", "0ms"),
        ("p0<1ms", "slo-quantile", "p0"),
        ("p100<1ms", "slo-figure", "'p100'"),
        ("p<1ms", "slo-figure", "'p'"),
        ("q99<1ms", "slo-figure", "'q99'"),
        ("<1ms", "slo-figure", "''"),
        ("loss<0", "slo-share", "'0'"),
        ("loss<nan", "slo-share", "'nan'"),
        ("loss<1", "slo-share", "'1'"),
        ("loss<1e-999", "slo-share", "'1e-999'"),
        ("loss<1ms", "slo-share", "'1ms'"),
        ("loss=0", "slo-equals", "'loss=0'"),
        ("reordered<1%", "slo-count", "'1%'"),
        ("reordered=-1", "slo-count", "'-1'"),
        (f"reordered={'9' * 5_000}", "slo-count", "'999"),
        ("lost=\u0663", "slo-count", "'\u0663'"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, code: str, got: str) -> None:
    with raises(UsageError, code) as refused:
        parse_level(text)
    assert str(refused.value).startswith("--slo: ")
    assert got in str(refused.value)


def test_terms_of_the_same_figure_all_hold() -> None:
    level = parse_level("urllc-itu, nf-350us, p99.999<2ms, p99.999<2ms")
    assert [term.text for term in level.terms] == ["p99.999<=1ms", "p99.999<=350us", "p99.999<2ms"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("urlcc-itu", "did you mean urllc-itu?"),
        ("nf-350", "did you mean nf-350us?"),
        ("loss=0", "lost=0"),
        ("nonsense", "such as 'p99.999<1ms"),
    ],
)
def test_hints_say_what_may_have_been_meant(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_level(text)
    assert hint in (refused.value.hint or "")


words = st.sampled_from(["p", "99", ".9", "pdv-", "<", "<=", "=", "loss", "max", "1ms", ",", "e-5"])


@given(st.text() | st.lists(words | st.text(max_size=2)).map("".join))
def test_any_text_is_a_level_or_refused(text: str) -> None:
    try:
        level = parse_level(text)
    except UsageError:
        return
    assert level.terms
    for term in level.terms:
        assert term.is_observed or 0 < (term.allowed or 0) < 1
