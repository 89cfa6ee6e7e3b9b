"""Regular expressions from clients: the syntax of RE2/J, in linear time.

Source: KIP-848, KIP-1152, com.google.re2j.Pattern 1.8.
"""

import subprocess
import time
from pathlib import Path
from random import Random
from typing import Final

import pytest

from kraftsim.core.expressions import InvalidExpression, client_expression, tokens
from tests.apache_kafka.class_path import NEWEST_RELEASE, class_path, java

TEXTS: Final = ("", "a", "aa", "ab", "b", "A", "é", "日", "aaa", ".", "-", "a-b", "a.b", "orders-1")
FITS: Final = {
    "": [""],
    "a|ab": ["a", "ab"],
    "(a+)+": ["a", "aa", "aaa"],
    "(?i)a": ["a", "A"],
    r"\Qa.b\E": ["a.b"],
    r"\Q\C\E": [],
    r"[\\C]": [],
    r"\pL": ["a", "b", "A", "é", "日"],
    r"\é": ["é"],
    "[]a]": ["a"],
    "[[:alpha:]]+-[0-9]": ["orders-1"],
    "(?P<n>a)(?<m>b)": ["ab"],
    "[(?P<n>a)(?P<n>b)]": ["a", "b"],
    "^.$": ["a", "b", "A", "é", "日", ".", "-"],
}
REFUSED: Final = {
    "a(?=b)": "invalid or unsupported Perl syntax",
    "(?<=a)b": "invalid named capture",
    r"\1": "invalid escape sequence",
    r"a\C": "invalid escape sequence",
    r"(?P<n>\C)": "invalid escape sequence",
    "a**": "invalid nested repetition operator",
    "+": "missing argument to repetition operator",
    "a{1001}": "invalid repeat count",
    "(": "missing closing )",
    ")": "regexp/syntax: internal error",
    "[": "missing closing ]",
    "[^]": "missing closing ]",
    "[b-a]": "invalid character class range",
    "\\": "trailing backslash at end of expression",
    "(?P<n>a)(?P<n>b)": "duplicate capture group name",
    "(?P<é>a)": "invalid named capture",
}
PIECES: Final = (
    *(
        "a",
        "b",
        ".",
        r"\d",
        r"\w",
        "[a-c]",
        "[^a]",
        r"\pL",
        r"\p{Greek}",
        "[[:alpha:]]",
        r"\Q.\E",
        r"\.",
        r"\x41",
        r"\1",
        r"\z",
        r"\C",
        r"\é",
        "é",
        "日",
    ),
    *(
        "^",
        "$",
        "[]a]",
        "[b-a]",
        "(?i)",
        "(?s)",
        "(?i:",
        "(?:",
        "(",
        "(?P<n>",
        "(?<n>",
        "(?<=",
        "(?=",
        "(?>",
        ")",
        ")",
        "*",
        "+?",
        "**",
        "{2}",
        "{1,2}",
    ),
    *("|", "\\", r"\p{Foo}", "-"),
)


def judged(expression: str) -> str:
    """Return which strings match, one digit each, or RE2/J's error message."""
    try:
        compiled = client_expression(expression)
    except InvalidExpression as mistake:
        return mistake.description
    return "".join("1" if compiled.fullmatch(text) else "0" for text in TEXTS)


@pytest.mark.parametrize("expression", FITS)
def test_expression_matches_whole_strings(expression: str) -> None:
    """Pattern.matches."""
    assert [
        text for text, digit in zip(TEXTS, judged(expression), strict=True) if digit == "1"
    ] == FITS[expression]


@pytest.mark.parametrize("expression", REFUSED)
def test_rejected_expressions_have_re2js_error_message(expression: str) -> None:
    """PatternSyntaxException.getDescription."""
    assert judged(expression) == REFUSED[expression]


@pytest.mark.parametrize("expression", [r"\pL{1000}", "(a{1000}){1000}", "\udc80"])
def test_oversized_expression_is_rejected(expression: str) -> None:
    """RE2/J accepts the first two and needs much memory; the third is a string that cannot be sent
    as UTF-8.
    """
    with pytest.raises(InvalidExpression):
        client_expression(expression)


def test_catastrophic_backtracking_expression_matches_quickly() -> None:
    """With Python's `re` this test would not end."""
    assert client_expression("(a+)+$").fullmatch("a" * 200 + "-") is None
    assert client_expression("(a|a)*b").fullmatch("a" * 200) is None


@pytest.mark.parametrize(
    "text",
    ["[" + "[:" * 16_000, "[[:a]" * 6_000, "(?<" * 10_000, r"\Q" * 16_000],
    ids=["named", "classes", "groups", "quotes"],
)
def test_expression_parsing_is_linear(text: str) -> None:
    """Even if opening brackets are never closed."""
    started = time.process_time()
    assert "".join(tokens(text)) == text
    assert time.process_time() - started < 0.1


@pytest.mark.interop
def test_random_expressions_give_the_same_result_as_re2j() -> None:
    """Results, and error messages where the expression has one error: with several errors RE2 and
    RE2/J report a different one first.
    """
    rng = Random(7)
    drawn = ["".join(rng.choice(PIECES) for _ in range(1 + rng.randrange(4))) for _ in range(3000)]
    expressions = [*FITS, *REFUSED, *dict.fromkeys(drawn)]
    lines = "".join("\t".join((each, *TEXTS)) + "\n" for each in expressions)
    jars = ":".join(map(str, class_path(NEWEST_RELEASE)))
    program = Path(__file__).parents[1] / "apache_kafka" / "Expressions.java"
    done = subprocess.run(
        [java(), "-cp", jars, program],
        input=lines,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    theirs = done.stdout.split("\n")[:-1]
    pairs = [
        (each, judged(each), expected) for each, expected in zip(expressions, theirs, strict=True)
    ]
    differing = [row for row in pairs if row[1] != row[2]]
    assert [row for row in differing if row[1].isdigit() or row[2].isdigit()] == []
    assert len(differing) < len(pairs) // 20, differing
