"""What a probe is: a few requests in a row, written as data, and what is answered to each.

A requirement says what must be; a probe only asks. Two nodes that should answer alike are asked the same, and where they do not, the probe has to say
why: a difference that nobody explains is a mistake of somebody's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kraftsim.conformance.expect import Unmet
from kraftsim.conformance.probes.conversation import Conversation, NotOffered

NOT_OFFERED = "not offered"
"""How the answer begins where a node has no such version of an API: what it does offer stands in its ApiVersions and needs no other explanation."""


class Step(Protocol):
    """One request, or one wait."""

    def words(self) -> str:
        """Say what is asked."""
        ...

    def put(self, talk: Conversation) -> str:
        """Ask, and say what was answered."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One talk. `title` says what is wanted to know; it is also the probe's name.

    `since_4` explains why newer releases answer otherwise than 3.9, `ours` why kraftsim answers otherwise than Apache Kafka: only what differs is
    explained.
    """

    title: str
    steps: tuple[Step, ...]
    since_4: str = ""
    ours: str = ""


def probe(title: str, *steps: Step, since_4: str = "", ours: str = "") -> Probe:
    """Return a probe."""
    return Probe(title=title, steps=steps, since_4=since_4, ours=ours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """Probes about one thing, in their order. `settings` are those of the node that is asked, on top of what it has for the others."""

    title: str
    probes: Sequence[Probe]
    settings: Mapping[str, str] = field(default_factory=dict)


def put(asked: Probe, talk: Conversation) -> list[str]:
    """Ask everything of a probe in turn, and return the answers. A connection that is closed, or a node that says nothing, is an answer, too.

    With a version that the node does not offer the talk is over: what follows would be asked about something that never happened.
    """
    answers: list[str] = []
    for step in asked.steps:
        try:
            answers.append(step.put(talk))
        except NotOffered as lack:
            return [*answers, f"{NOT_OFFERED}: {lack}"]
        except Unmet as lack:
            return [*answers, str(lack)]
        except TimeoutError:
            return [*answers, "no answer"]
        except ConnectionError:
            talk.connect_again()
            answers.append("the connection is closed")
    return answers


def are_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """Tell whether two nodes answered alike, as far as both offer what was asked: after a step that only one of them offers, nothing is compared."""
    for mine, others in zip(one, other, strict=False):
        if mine.startswith(NOT_OFFERED) or others.startswith(NOT_OFFERED):
            return True
        if mine != others:
            return False
    return len(one) == len(other)
