"""Which texts are expressions of Java: the columns are answers of java.util.regex.Pattern of OpenJDK 17."""

import time

import pytest

from kraftsim.core.java_expressions import is_java_expression
from kraftsim.core.metadata.client_metrics import DEFINITIONS, refuse_client_metrics
from protocol.errors import ErrorCode

TAKEN = (
    "",
    "a",
    ".*",
    "11.1.*",
    "(?i)kafka-(java|rust)",
    "x{5000}",
    "x{1,70000}",
    "[[:alpha:]]",
    "[^]a]",
    r"\p{Lu}\pL\P{N}",
    r"\07\x41\x{1F600}",
    r"\Qa[b\E",
    "(?<name>a)",
    r"\e\h\Z",
    "}",
)
REFUSED = (
    "(",
    "[",
    "*",
    "a**",
    "{",
    "x{",
    "x{a}",
    "x{2,1}",
    "x{9999999999}",
    r"\C",
    r"\E",
    r"\y",
    r"\0",
    r"[\0]",
    r"\p{Greek}",
    r"[\p{Greek}]",
    "(?P<n>a)",
    "(?<9>a)",
    "(?i)*",
    "[^[[:alpha:]]",
    "[z-a]",
)
BEYOND_RE2 = (r"(a)\1", "(?=a)", "(?<!a)", "a*+", "(?>a)", r"\R")
"""Java takes them."""


@pytest.mark.parametrize("text", TAKEN)
def test_what_java_and_re2_take_is_taken(text: str) -> None:
    assert is_java_expression(text)


@pytest.mark.parametrize("text", (*REFUSED, *BEYOND_RE2))
def test_what_java_or_re2_refuses_is_refused(text: str) -> None:
    assert not is_java_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "client_id=" + "(" * 900 + "a" + "+)" * 900,
        ",".join(f"client_id=(x{{{number}}}){{1000}}" for number in range(1000, 2300)),
        "client_id=" + "((a?){900}){900}" * 2000,
        "client_id=[" + r"\d" * 16_370 + "]",
        "client_id=[" + r"\pL" * 10_910 + "]",
        "client_id=" + r"\x{a}" * 6_550,
    ],
    ids=["nested", "many", "counted", "escapes", "categories", "numbers"],
)
def test_the_longest_text_takes_no_longer_than_its_length(text: str) -> None:
    """A string of the protocol has 32,767 bytes at most."""
    started = time.process_time()
    refuse_client_metrics("s", {"match": text[:32_767]}, DEFINITIONS)
    assert time.process_time() - started < 0.5


def test_an_expression_that_re2_cannot_take_gets_the_error_of_an_invalid_one() -> None:
    for expression in ("(", "(?=a)"):
        refusal = refuse_client_metrics("s", {"match": f"client_id={expression}"}, DEFINITIONS)
        assert refusal is not None and refusal.error is ErrorCode.INVALID_CONFIG
