"""After all faults are healed there is a leader, brokers serve, controllers catch up, and client
calls complete, each within its bound.

A cluster that does nothing would satisfy every other invariant. Source: TigerBeetle's liveness
mode.
"""

from kraftsim.events.event import Event
from kraftsim.events.runs import Settled
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME = "recovers-after-heal"


class WithinBounds:
    """Compares each duration with its bound."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a duration after the last fault was healed."""
        assert isinstance(event, Settled)
        self._findings.examined += 1
        if event.is_settled and event.after_ms <= event.limit_ms:
            return None
        message = (
            f"{event.what}: {event.after_ms} ms after all faults were healed, not within "
            f"{event.limit_ms} ms"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="After all faults are healed there is a leader within 10 s, all brokers serve and all "
    "controllers have caught up within 30 s, and every call"
    " of a client is settled within 2 delivery time-outs.",
    source="TigerBeetle's liveness mode",
    watches=(Settled,),
    check=WithinBounds,
    examined="SELECT run, count(*) FROM settled GROUP BY run",
    violations="""
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(what, ': ', after_ms, ' ms after all faults were healed, not within ', limit_ms,
                ' ms') AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM settled WHERE NOT is_settled OR after_ms > limit_ms
    """,
)
