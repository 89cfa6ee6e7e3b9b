"""Which invariants a run can decide if its nodes write no event logs: brokers and controllers of
Apache Kafka, or any cluster behind a proxy.

What is left are the events of clients and of the harness, and those that are read from the disks
afterwards. An invariant that needs more would find nothing, or would blame a cluster for what only
an event of a node explains: it is not evaluated, and the result says so.
"""

from collections.abc import Sequence
from typing import Final

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Invariant
from kraftsim.invariants.verdict import Outcome, Verdict

OF_CLIENTS_AND_HARNESS: Final = ("kraftsim.clients.", "kraftsim.events.runs")
OF_DISKS: Final = "Final"
"""The first word of the kinds of events that are read from the disks at the end of a run."""
SEEN_BY_HARNESS: Final = ("MetadataCarriedOver", "ReplicaInSync", "ZookeeperCompared")
OF_KRAFTSIM: Final = "kraftsim."
NAMED_MAX: Final = 3


def is_of_node(kind: type[Event]) -> bool:
    """Return whether only a node emits events of this kind; those of extensions are of
    applications.
    """
    return (
        kind.__module__.startswith(OF_KRAFTSIM)
        and not kind.__module__.startswith(OF_CLIENTS_AND_HARNESS)
        and not kind.__name__.startswith(OF_DISKS)
        and kind.__name__ not in SEEN_BY_HARNESS
    )


def reason_without_nodes(invariant: Invariant) -> str:
    """Return why a run without events of nodes cannot decide an invariant; empty if it can."""
    kinds = [kind.__name__ for kind in invariant.watches if is_of_node(kind)]
    if not kinds or invariant.decides_without_nodes:
        return ""
    more = f" and {len(kinds) - NAMED_MAX} more" if len(kinds) > NAMED_MAX else ""
    return f"needs events that only kraftsim's nodes emit: {', '.join(kinds[:NAMED_MAX])}{more}"


def not_evaluated(invariants: Sequence[Invariant]) -> dict[str, str]:
    """Return the invariants that a run without events of nodes cannot decide, with the reasons."""
    reasons = {invariant.name: reason_without_nodes(invariant) for invariant in invariants}
    return {name: reason for name, reason in reasons.items() if reason}


def verdict_not_evaluated(invariant: Invariant, reason: str) -> Verdict:
    """Return the verdict of an invariant that a run cannot decide."""
    verdict = Verdict(
        invariant=invariant.name, outcome=Outcome.NOT_APPLICABLE, examined=0, reason=reason
    )
    return invariant.for_run(verdict, must_exercise=False)
