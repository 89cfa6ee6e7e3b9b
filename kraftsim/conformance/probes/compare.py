"""Lays the answers of several nodes side by side: where they differ, and whether the probe says why.

Nodes are called `Apache Kafka 3.9.1` or `kraftsim 3.9`; the first that is named is the oldest.
"""

from collections.abc import Mapping, Sequence

from kraftsim.conformance.probes.probe import Probe, are_alike

OURS = "kraftsim"
Answers = Mapping[str, Mapping[str, Sequence[str]]]
"""From the node's name over the probe's to the answers, step by step."""


def compare(asked: Probe, told: Mapping[str, Sequence[str]]) -> dict[str, bool]:
    """Return which differences there are to one probe: between releases of Apache Kafka, and between kraftsim and the release that it plays."""
    theirs = [name for name in told if not name.startswith(OURS)]
    pairs = [(name, other) for name in told if name.startswith(OURS) for other in theirs if line_of(name) == line_of(other)]
    return {
        "since_4": any(not are_alike(told[theirs[0]], told[name]) for name in theirs[1:]),
        "ours": any(not are_alike(told[name], told[other]) for name, other in pairs),
    }


def unexplained(chosen: Sequence[tuple[str, Probe]], found: Answers) -> list[str]:
    """Return what is wrong: a difference that is not explained, or an explanation of none."""
    troubles = []
    for title, asked in chosen:
        told = {name: answers[title] for name, answers in found.items()}
        for kind, differs in compare(asked, told).items():
            why = getattr(asked, kind)
            if differs and not why:
                troubles.append(f"{title}: differs ({kind}) and nobody says why: {dict(told)}")
            if why and not differs:
                troubles.append(f"{title}: says why it differs ({kind}), and does not")
    return troubles


def line_of(name: str) -> str:
    """Return the release line in a node's name."""
    return ".".join(name.rpartition(" ")[2].split(".")[:2])
