"""Checks of claims that are not tests: a command for the reader, and a function that runs the same
and returns figures.
"""

import json
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.run import run_scenario

TEST, INTEROP, CLAIMS = "make test", "make interop", "make claims"
AGAIN: Final = (TEST, INTEROP, CLAIMS)
"""The make targets that run a check again.

`make claims` only: measurements of time, or of interpreter memory.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """`name` starts with the command; words after `#` name a part of its output."""

    name: str
    measure: Callable[[], dict[str, object]]
    again: str = TEST


CHECKS: dict[str, Check] = {}


def check(
    name: str, again: str = TEST
) -> Callable[[Callable[[], dict[str, object]]], Callable[[], dict[str, object]]]:
    """Register a function as a check."""

    def register(measure: Callable[[], dict[str, object]]) -> Callable[[], dict[str, object]]:
        assert name not in CHECKS, name
        CHECKS[name] = Check(name=name, measure=measure, again=again)
        return measure

    return register


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """A scenario run: its result, and the events of its event log in order of time."""

    result: RunResult
    events: tuple[dict[str, object], ...]

    def of(self, *kinds: str, **fields: object) -> list[dict[str, object]]:
        """Return the events of the given kinds with the given fields."""
        return [
            each
            for each in self.events
            if each["kind"] in kinds
            and all(each.get(name) == value for name, value in fields.items())
        ]

    def count(self, *kinds: str, **fields: object) -> int:
        """Return the number of such events."""
        return len(self.of(*kinds, **fields))

    def violations_of(self, invariant: str) -> int:
        """Return the number of violations of an invariant."""
        return sum(each.startswith(invariant) for each in self.result.violations)


@cache
def scenario(command: str, *, violated: bool = False) -> ScenarioRun:
    """Run what `kraftsim scenario ...` would, in virtual time.

    Raises AssertionError if it does not end as expected.
    """
    name, given = _parsed(command)
    with tempfile.TemporaryDirectory() as scratch:
        result = run_scenario(
            name,
            seed=int(given.get("--seed", ["0"])[0]),
            release=given.get("--release", [""])[0],
            settings=dict(_pairs(given.get("--set", []))),
            work={parameter: int(value) for parameter, value in _pairs(given.get("--work", []))},
            bugs=tuple(given.get("--bug", [])),
            out=Path(scratch) / "run",
        )
        events = [
            json.loads(line)
            for file in sorted(Path(scratch).rglob("events/*.jsonl"))
            for line in file.open()
        ]
    assert (violated or result.trouble is None) and bool(result.violations) is violated, "\n".join(
        result.lines()
    )
    return ScenarioRun(
        result, tuple(sorted(events, key=lambda each: (each["t_ns"], each["node"], each["n"])))
    )


def _parsed(command: str) -> tuple[str, dict[str, list[str]]]:
    words = shlex.split(command.partition("#")[0])
    assert words[:2] == ["kraftsim", "scenario"], command
    given: dict[str, list[str]] = {}
    for option, value in zip(words[3::2], words[4::2], strict=True):
        given.setdefault(option, []).append(value)
    return words[2], given


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        key, _, value = word.partition("=")
        yield key, value
