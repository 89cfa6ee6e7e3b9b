"""Compares the responses of several nodes: where they differ, and whether the probe explains it.

Nodes are named `Apache Kafka 3.9.1` or `kraftsim 3.9`; the first one is the oldest.
"""

from collections.abc import Mapping, Sequence

from kraftsim.conformance.probes.probe import Probe, are_alike

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
