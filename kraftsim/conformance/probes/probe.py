"""A probe: a few requests in sequence, written as data, and the response to each.

A requirement says what must be; a probe only records responses. Two nodes of the same release must
give the same responses; if they do not, the probe has to explain it: an unexplained difference is a
bug.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kraftsim.conformance.expect import Unmet
from kraftsim.conformance.probes.conversation import NotOffered, ProbeConversation

NOT_OFFERED = "not offered"
"""The prefix of a response where a node does not support the version of an API: ApiVersions lists
what it supports, and no explanation is needed.
"""


class ProbeStep(Protocol):
    """One request, or one wait."""

    def words(self) -> str:
        """Return the request as text."""
        ...

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request, and return the response as text."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One conversation. `title` is the question and the name of the probe.

    `since_4` explains why newer releases respond differently than 3.9, `ours` why kraftsim responds
    differently than Apache Kafka: only differences are explained.
    """

    title: str
    steps: tuple[ProbeStep, ...]
    since_4: str = ""
    ours: str = ""


def probe(title: str, *steps: ProbeStep, since_4: str = "", ours: str = "") -> Probe:
    """Return a probe."""
    return Probe(title=title, steps=steps, since_4=since_4, ours=ours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """Probes of one subject, in order.

    `settings` are configurations of the node, in addition to those for all probes.
    """

    title: str
    probes: Sequence[Probe]
    settings: Mapping[str, str] = field(default_factory=dict)


def put(asked: Probe, conversation: ProbeConversation) -> list[str]:
    """Run the steps of a probe in order, and return the responses.

    A closed connection, or a missing response, is a response, too.

    The conversation ends with a version that the node does not support: the following steps would
    depend on something that did not happen.
    """
    answers: list[str] = []
    for step in asked.steps:
        try:
            answers.append(step.put(conversation))
        except NotOffered as lack:
            return [*answers, f"{NOT_OFFERED}: {lack}"]
        except Unmet as lack:
            return [*answers, str(lack)]
        except TimeoutError:
            return [*answers, "no answer"]
        except ConnectionError:
            conversation.reconnect()
            answers.append("the connection is closed")
    return answers


def are_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two nodes responded alike, as far as both support the requests: after an
    unsupported step nothing is compared.
    """
    for mine, others in zip(one, other, strict=False):
        if mine.startswith(NOT_OFFERED) or others.startswith(NOT_OFFERED):
            return True
        if mine != others:
            return False
    return len(one) == len(other)
