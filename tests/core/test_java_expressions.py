"""Which strings are valid Java expressions: the columns are results of java.util.regex.Pattern of
OpenJDK 17.
"""

import time

import pytest

from kraftsim.core.expressions import is_java_expression
from kraftsim.metadata.rules_config_releases import DEFINITIONS, refuse_client_metrics
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
"""Java accepts them."""


@pytest.mark.parametrize("text", TAKEN)
def test_expression_accepted_by_java_and_re2_is_accepted(text: str) -> None:
    assert is_java_expression(text)


@pytest.mark.parametrize("text", (*REFUSED, *BEYOND_RE2))
def test_expression_rejected_by_java_or_re2_is_rejected(text: str) -> None:
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
def test_matching_is_linear_for_the_longest_string(text: str) -> None:
    """A string of the protocol has 32,767 bytes at most."""
    started = time.process_time()
    refuse_client_metrics("s", {"match": text[:32_767]}, DEFINITIONS)
    assert time.process_time() - started < 0.5


def test_expression_unsupported_by_re2_returns_the_invalid_regex_error() -> None:
    for expression in ("(", "(?=a)"):
        refusal = refuse_client_metrics("s", {"match": f"client_id={expression}"}, DEFINITIONS)
        assert refusal is not None and refusal.error is ErrorCode.INVALID_CONFIG
