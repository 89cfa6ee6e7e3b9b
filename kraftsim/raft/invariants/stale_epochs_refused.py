"""A replica rejects every request with an epoch older than its own.

The sender is behind: it receives the current epoch, and must find the leader of that epoch before
any of its requests or responses count.
Source: KIP-595 (FENCED_LEADER_EPOCH of Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and
FetchSnapshot), KafkaRaftClient.validateLeaderOnlyRequest.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import LaterEpochAnswered

NAME = "stale-epochs-refused"


class RefusedOrNot:
    """Checks the error code of each response that has a later epoch than its request."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a response."""
        assert isinstance(event, LaterEpochAnswered)
        self._findings.examined += 1
        if event.error_code:
            return None
        message = (
            f"node {event.asked_node_id} is in epoch {event.leader_epoch}, and served "
            f"{envelope.node} in epoch {event.asked_epoch}"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A replica rejects every request with an epoch older than its own.",
    source="KIP-595",
    watches=(LaterEpochAnswered,),
    check=RefusedOrNot,
    examined="SELECT run, count(*) FROM later_epoch_answered GROUP BY run",
    violations="""
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat('node ', asked_node_id, ' is in epoch ', leader_epoch, ', and served ', node,
                ' in epoch ', asked_epoch) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM later_epoch_answered WHERE error_code = 0
    """,
)
