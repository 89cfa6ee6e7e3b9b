"""Each epoch of the metadata quorum has at most one leader.

Two leaders of one epoch would write different records at the same offsets, and followers could not
tell which to replicate.
Source: KIP-595 (election safety).
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import ControllerElected

NAME = "one-leader-per-epoch"


class FirstWinner:
    """Tracks the leader of each epoch."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._winners: dict[int, tuple[str, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an election."""
        assert isinstance(event, ControllerElected)
        self._findings.examined += 1
        winner, witness = self._winners.setdefault(
            event.leader_epoch, (envelope.node, envelope.event_id)
        )
        if winner == envelope.node:
            return None
        message = f"epoch {event.leader_epoch} was won by {winner} and by {envelope.node}"
        return self._findings.violation(
            str(event.leader_epoch), message, witness, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="Each epoch of the metadata quorum has at most one leader.",
    source="KIP-595",
    watches=(ControllerElected,),
    check=FirstWinner,
    examined="SELECT run, count(*) FROM controller_elected GROUP BY run",
    violations="""
        WITH first_election AS (
            SELECT run, leader_epoch, min(position) AS position FROM controller_elected
                GROUP BY run, leader_epoch
        ), winner AS (
            SELECT e.run, e.leader_epoch, e.node, e.position
            FROM first_election AS f JOIN controller_elected AS e ON e.run = f.run
                AND e.position = f.position
        ), rival AS (
            SELECT e.run, e.leader_epoch, min(e.position) AS position
            FROM controller_elected AS e JOIN winner AS w ON e.run = w.run
                AND e.leader_epoch = w.leader_epoch AND e.node <> w.node
            GROUP BY e.run, e.leader_epoch
        )
        SELECT
            w.run,
            concat('', w.leader_epoch) AS key,
            concat('epoch ', w.leader_epoch, ' was won by ', w.node, ' and by ', e.node) AS message,
            w.position AS first_witness,
            e.position AS second_witness
        FROM rival AS r
        JOIN winner AS w ON w.run = r.run AND w.leader_epoch = r.leader_epoch
        JOIN controller_elected AS e ON e.run = r.run AND e.position = r.position
    """,
)
