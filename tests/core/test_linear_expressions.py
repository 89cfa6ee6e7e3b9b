"""Regular expressions that nodes apply to foreign strings match in linear time.

Expressions from clients use RE2; these are the ones in the code. A new one is checked without being
listed.
"""

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from itertools import product

import pytest

import protocol
from tools.concerns import concern_names

TEXT_CHARACTERS = 16_000
"""Half the length of the longest protocol string."""
SECONDS_MAX = 0.03
"""A linear expression takes less than 5 ms of CPU time, one that backtracks per character 70 ms,
and one with nested repetitions never ends.
"""
ROOMS = (*(importlib.import_module(f"kraftsim.{name}") for name in concern_names()), protocol)
HEADS = (
    "",
    "a",
    "TLS_",
    "n,,n=a,r=",
    "a required ",
    "n,a=",
    "c=a,r=",
    "r=a,s=a,i=1",
    "0.",
    "host://[",
    "1@[",
)
REPEATED = (
    *"a0-._ =,\"\\[]:/()+E'*;{@é",
    *[
        "a=a,",
        "n=a,",
        "m=a,",
        "a:",
        "TLS_",
        "e-1",
        "a.",
        "0.",
        "-a",
        "1@a:1,",
        "_128_",
        "a-1",
        "ab",
    ],
    *("a=a ", 'a="a" ', '\\"', "a "),
)
TAILS = ("", "!", "\0", "\n")


def patterns() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes]]]:
    """Yield each expression in a module of a node, by its name."""
    for room in ROOMS:
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            module = importlib.import_module(found.name)
            yield from (
                (f"{found.name}.{name}", value)
                for name, value in vars(module).items()
                if isinstance(value, re.Pattern)
            )


PATTERNS = dict(patterns())


def longest_seconds(pattern: re.Pattern[str] | re.Pattern[bytes]) -> float:
    """Return the longest time for any of many strings."""
    longest = 0.0
    for head, repeated, tail in product(HEADS, REPEATED, TAILS):
        text = head + repeated * (TEXT_CHARACTERS // len(repeated)) + tail
        for apply in (pattern.fullmatch, pattern.match):
            began = time.process_time()
            apply(text.encode() if isinstance(pattern.pattern, bytes) else text)
            longest = max(longest, time.process_time() - began)
            if longest > SECONDS_MAX:
                return longest
    return longest


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_expression_matching_is_linear(name: str) -> None:
    assert longest_seconds(PATTERNS[name]) < SECONDS_MAX


def test_superlinear_expression_is_detected() -> None:
    assert longest_seconds(re.compile(r"a*a*b")) > SECONDS_MAX


def test_there_are_expressions_to_check() -> None:
    assert len(PATTERNS) > 20
