"""What a service level may say."""

from __future__ import annotations

import pytest
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
    ("text", "said"),
    [
        ("", "got ''"),
        ("p99", "expected a term or one of urllc-itu"),
        ("p99<1ms,", "got ''"),
        ("p99>1ms", "one of < <= ="),
        ("p99<1ms<2ms", "one of < <= ="),
        ("p99=1ms", "expected < or <="),
        ("p99<1", "is not a duration"),
        ("p99<nanms", "is not a duration"),
        ("p99<-1ms", "is not a duration"),
        ("p99<0ms", "at least 1ns"),
        ("p0<1ms", "more than p0"),
        ("p100<1ms", "got 'p100'"),
        ("p<1ms", "got 'p'"),
        ("q99<1ms", "got 'q99'"),
        ("<1ms", "got ''"),
        ("loss<0", "between 0 and 1"),
        ("loss<nan", "between 0 and 1"),
        ("loss<1", "between 0 and 1"),
        ("loss<1e-999", "between 0 and 1"),
        ("loss<1ms", "between 0 and 1"),
        ("loss=0", "expected < or <="),
        ("reordered<1%", "a number of packets"),
        ("reordered=-1", "a number of packets"),
        (f"reordered={'9' * 5_000}", "a number of packets"),
        ("lost=\u0663", "a number of packets"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_level(text)
    assert str(refused.value).startswith("--slo: ")
    assert said in str(refused.value)


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
