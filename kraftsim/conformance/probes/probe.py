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


# --------------------------------------------------------------------------------------------------
# Compares the responses of several nodes: where they differ, and whether the probe explains it
#
# Nodes are named `Apache Kafka 3.9.1` or `kraftsim 3.9`; the first one is the oldest.

OURS = "kraftsim"
Answers = Mapping[str, Mapping[str, Sequence[str]]]
"""Node name -> probe name -> responses, step by step."""


def compare(asked: Probe, returned: Mapping[str, Sequence[str]]) -> dict[str, bool]:
    """Return the differences of one probe: between releases of Apache Kafka, and between kraftsim
    and the release that it emulates.
    """
    theirs = [name for name in returned if not name.startswith(OURS)]
    pairs = [
        (name, other)
        for name in returned
        if name.startswith(OURS)
        for other in theirs
        if line_of(name) == line_of(other)
    ]
    return {
        "since_4": any(not are_alike(returned[theirs[0]], returned[name]) for name in theirs[1:]),
        "ours": any(not are_alike(returned[name], returned[other]) for name, other in pairs),
    }


def unexplained(chosen: Sequence[tuple[str, Probe]], found: Answers) -> list[str]:
    """Return the errors: a difference without an explanation, or an explanation without a
    difference.
    """
    troubles = []
    for title, asked in chosen:
        returned = {name: answers[title] for name, answers in found.items()}
        for kind, differs in compare(asked, returned).items():
            why = getattr(asked, kind)
            if differs and not why:
                troubles.append(
                    f"{title}: differs ({kind}) without an explanation: {dict(returned)}"
                )
            if why and not differs:
                troubles.append(f"{title}: says why it differs ({kind}), and does not")
    return troubles


def line_of(name: str) -> str:
    """Return the release line in a node's name."""
    return ".".join(name.rpartition(" ")[2].split(".")[:2])


# --------------------------------------------------------------------------------------------------
# Reasons why newer releases respond differently than 3.9, each one once

START_IS_FORGOTTEN = (
    "On InitProducerId, 3.9 keeps the start time of the last transaction; 4.x clears it "
    "(TransactionMetadata)."
)
FENCE_REMEMBERS = (
    "In 4.x a fence stores the fenced epoch as the last one, so that its producer can bump the "
    "epoch and continue, as KIP-588 intended; 3.9 does not store it, and the producer is fenced "
    "for good."
)
END_BEFORE_EPOCH = (
    "4.x checks whether a transaction is completing before it checks the epoch, since EndTxn "
    "itself may have bumped it (KIP-890)."
)
OPEN_IN_ITS_EPOCH_ONLY = (
    "3.9 skips verification if a transaction of the id is open, whatever the epoch; 4.x accepts "
    "only the epoch of the open one (KIP-890)."
)
NO_GROUP_FOR_A_GENERATION = (
    "The coordinator of 4.x (KIP-848) creates no group for a commit with a generation; 3.9 "
    "creates one first, and then finds no such member in it."
)
LEVEL_TWO = (
    "A new cluster of 4.x has transaction.version 2 (KIP-890); ApiVersions 3 cannot say that a "
    "feature may be at 0, so it leaves the range out."
)
ID_BEFORE_IS_FORGOTTEN = (
    "4.x drops the previous producer id when a transaction starts, and fences producers that use "
    "it; 3.9 treats them as the same producer."
)
ANOTHER_ID_AT_ONCE = (
    "With transaction.version 2 an abort over a producer's head after its last epoch gives the "
    "name another id at once (KAFKA-20090); 3.9 stops at 32767, and the next InitProducerId "
    "returns the id."
)
NOTHING_LEFT_TO_FENCE_WITH = (
    "3.9 does not abort if no epoch is left to fence with, and the transaction stays open; 4.x "
    "aborts with the same epoch."
)
