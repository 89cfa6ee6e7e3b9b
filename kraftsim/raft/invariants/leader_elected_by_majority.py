"""The leader of an epoch received votes from a majority of the voters in that epoch, its own
included.

This implies one leader per epoch. But that invariant is violated only if a second leader is
elected, while this one reports every leader with too few votes.
Source: KIP-595, Election Safety of Raft (Ongaro and Ousterhout 2014, section 5.2).
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import ControllerElected
from kraftsim.raft.events import VoteSent

NAME = "leader-elected-by-majority"


class CountedVotes:
    """Counts the votes sent for each candidate.

    A candidate's own vote counts whether or not it was sent; a sole voter sends none.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._voters: dict[tuple[int, int], dict[str, None]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a vote or an election."""
        if isinstance(event, VoteSent):
            self._voters.setdefault((event.leader_epoch, event.candidate_id), {})[envelope.node] = (
                None
            )
            return None
        assert isinstance(event, ControllerElected)
        if event.voter_count < 1:
            return None
        self._findings.examined += 1
        others = self._voters.get((event.leader_epoch, event.leader_id), {}).keys() - {
            envelope.node
        }
        count = len(others) + 1
        if 2 * count > event.voter_count:
            return None
        message = (
            f"{envelope.node} leads epoch {event.leader_epoch} with {count} of "
            f"{event.voter_count} votes"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="The leader of an epoch received votes from a majority of the voters in that epoch.",
    source="KIP-595",
    watches=(VoteSent, ControllerElected),
    check=CountedVotes,
    examined="SELECT run, count(*) FROM controller_elected WHERE voter_count > 0 GROUP BY run",
    violations="""
        WITH counted AS (
            SELECT
                e.run, e.node, e.incarnation, e.n, e.position, e.leader_epoch, e.voter_count,
                    1 + count(DISTINCT v.node) AS vote_count
            FROM controller_elected AS e LEFT JOIN vote_sent AS v
                ON v.run = e.run AND v.leader_epoch = e.leader_epoch
                    AND v.candidate_id = e.leader_id AND v.node <> e.node
                    AND v.position < e.position
            WHERE e.voter_count > 0
            GROUP BY e.run, e.node, e.incarnation, e.n, e.position, e.leader_epoch, e.voter_count
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(node, ' leads epoch ', leader_epoch, ' with ', vote_count, ' of ', voter_count,
                ' votes') AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM counted WHERE 2 * vote_count <= voter_count
    """,
)
