"""A leader resigns for lack of fetches only if fewer than a majority of the voters, itself
included, fetched within the timeout.

A leader that resigns while a majority follows it causes a needless election at each check, as long
as another voter is away. Checked only for static voters: with voters in the log, the majority may
have been of another voter set shortly before.
Source: KAFKA-15489, org.apache.kafka.raft.LeaderState.timeUntilCheckQuorumExpires.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import CheckQuorumFailed

NAME = "resignation-only-below-majority"


class TooFewFetched:
    """Compares the number of voters that fetched with a majority."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process the resignation of a leader."""
        assert isinstance(event, CheckQuorumFailed)
        if event.kraft_version:
            return None
        self._findings.examined += 1
        if 2 * event.reachable_count <= event.voter_count:
            return None
        message = (
            f"{envelope.node} gave epoch {event.leader_epoch} up, though it heard "
            f"{event.reachable_count} of {event.voter_count} voters"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A leader resigns for lack of fetches only if fewer than a majority of the voters "
    "fetched.",
    source="KAFKA-15489",
    watches=(CheckQuorumFailed,),
    check=TooFewFetched,
    examined="SELECT run, count(*) FROM check_quorum_failed WHERE kraft_version = 0 GROUP BY run",
    violations="""
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(node, ' gave epoch ', leader_epoch, ' up, though it heard ', reachable_count,
                ' of ', voter_count, ' voters') AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM check_quorum_failed WHERE kraft_version = 0 AND 2 * reachable_count > voter_count
    """,
)
