"""A vote is on the voter's disk before it is sent, including a candidate's vote for itself.

This implies one vote per epoch. But that invariant is violated only if a restart and a second
candidate coincide, while this one reports every vote that was sent too early.
Source: KIP-595, org.apache.kafka.raft.FileQuorumStateStore.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import QuorumStateStored, VoteSent

NAME = "vote-stored-before-sent"


class StoredVotes:
    """Tracks the votes that each voter has stored; a later quorum state of the same epoch does not
    revoke a vote.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._stored: dict[tuple[str, int, int], None] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a stored quorum state, or a vote that was sent."""
        assert isinstance(event, QuorumStateStored | VoteSent)
        if isinstance(event, QuorumStateStored):
            self._stored[envelope.node, event.leader_epoch, event.voted_id] = None
            return None
        self._findings.examined += 1
        if (envelope.node, event.leader_epoch, event.candidate_id) in self._stored:
            return None
        message = (
            f"{envelope.node} reported its vote for {event.candidate_id} in epoch "
            f"{event.leader_epoch}, and had not stored it"
        )
        return self._findings.violation(
            f"{envelope.node}/{event.leader_epoch}/{event.candidate_id}", message, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A vote is on the voter's disk before it is sent.",
    source="KIP-595",
    watches=(QuorumStateStored, VoteSent),
    check=StoredVotes,
    examined="SELECT run, count(*) FROM vote_sent GROUP BY run",
    violations="""
        WITH stored AS (
            SELECT run, node, leader_epoch, voted_id, min(position) AS position
                FROM quorum_state_stored GROUP BY run, node, leader_epoch, voted_id
        ), reported AS (
            SELECT v.run, v.node, v.leader_epoch, v.candidate_id, min(v.position) AS position
            FROM vote_sent AS v LEFT JOIN stored AS s
                ON s.run = v.run AND s.node = v.node AND s.leader_epoch = v.leader_epoch
                    AND s.voted_id = v.candidate_id AND s.position < v.position
            WHERE s.position IS NULL
            GROUP BY v.run, v.node, v.leader_epoch, v.candidate_id
        )
        SELECT
            run,
            concat(node, '/', leader_epoch, '/', candidate_id) AS key,
            concat(node, ' reported its vote for ', candidate_id, ' in epoch ', leader_epoch,
                ', and had not stored it') AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM reported
    """,
)
