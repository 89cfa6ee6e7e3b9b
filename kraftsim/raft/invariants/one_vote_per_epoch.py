"""A voter votes for at most one candidate per epoch, across restarts.

A vote counts once it leaves the voter: in its response to a candidate, or when the voter is about
to request votes itself. If the vote is not on disk by then, a restart loses it, the voter may vote
again, and two candidates may win the same epoch.
Source: KIP-595, org.apache.kafka.raft.FileQuorumStateStore.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import VoteSent

NAME = "one-vote-per-epoch"


class FirstVote:
    """Tracks each voter's first vote in each epoch, across its incarnations."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._votes: dict[tuple[str, int], tuple[int, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a vote that left its voter."""
        assert isinstance(event, VoteSent)
        self._findings.examined += 1
        candidate, witness = self._votes.setdefault(
            (envelope.node, event.leader_epoch), (event.candidate_id, envelope.event_id)
        )
        if candidate == event.candidate_id:
            return None
        message = (
            f"{envelope.node} voted for {candidate} and for {event.candidate_id} in epoch "
            f"{event.leader_epoch}"
        )
        return self._findings.violation(
            f"{envelope.node}/{event.leader_epoch}", message, witness, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A voter votes for at most one candidate per epoch, across restarts.",
    source="KIP-595",
    watches=(VoteSent,),
    check=FirstVote,
    examined="SELECT run, count(*) FROM vote_sent GROUP BY run",
    violations="""
        WITH first_told AS (
            SELECT run, node, leader_epoch, min(position) AS position FROM vote_sent GROUP BY run,
                node, leader_epoch
        ), first_vote AS (
            SELECT v.run, v.node, v.leader_epoch, v.candidate_id, v.position
            FROM first_told AS f JOIN vote_sent AS v ON v.run = f.run AND v.position = f.position
        ), other_vote AS (
            SELECT v.run, v.node, v.leader_epoch, min(v.position) AS position
            FROM vote_sent AS v JOIN first_vote AS f
                ON v.run = f.run AND v.node = f.node AND v.leader_epoch = f.leader_epoch
                    AND v.candidate_id <> f.candidate_id
            GROUP BY v.run, v.node, v.leader_epoch
        )
        SELECT
            f.run,
            concat(f.node, '/', f.leader_epoch) AS key,
            concat(f.node, ' voted for ', f.candidate_id, ' and for ', v.candidate_id, ' in epoch ',
                f.leader_epoch) AS message,
            f.position AS first_witness,
            v.position AS second_witness
        FROM other_vote AS o
        JOIN first_vote AS f ON f.run = o.run AND f.node = o.node
            AND f.leader_epoch = o.leader_epoch
        JOIN vote_sent AS v ON v.run = o.run AND v.position = o.position
    """,
)
