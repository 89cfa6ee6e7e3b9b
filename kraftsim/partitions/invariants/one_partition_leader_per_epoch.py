"""Each leader epoch of a partition has at most one leader.

Two leaders would write different records at the same offsets, and no follower could tell which to
replicate.
Source: KIP-101, KIP-631 (PartitionChangeRecord).
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import LeaderElected

NAME = "one-partition-leader-per-epoch"


class FirstLeader:
    """Tracks the first leader in each epoch of each partition."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._leaders: dict[tuple[str, int, int], tuple[str, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process the election of a partition leader."""
        assert isinstance(event, LeaderElected)
        self._findings.examined += 1
        epoch = (event.topic, event.partition, event.leader_epoch)
        leader, witness = self._leaders.setdefault(epoch, (envelope.node, envelope.event_id))
        if leader == envelope.node:
            return None
        message = (
            f"{event.topic}-{event.partition}: epoch {event.leader_epoch} is led by {leader} and "
            f"by {envelope.node}"
        )
        return self._findings.violation(
            "/".join(map(str, epoch)), message, witness, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_EPOCH = "run, topic, partition, leader_epoch"
_SAME = " AND ".join(f"e.{column} = w.{column}" for column in _EPOCH.split(", "))

INVARIANT = Invariant(
    name=NAME,
    rule="Each leader epoch of a partition has at most one leader.",
    source="KIP-101, KIP-631",
    watches=(LeaderElected,),
    check=FirstLeader,
    examined="SELECT run, count(*) FROM leader_elected GROUP BY run",
    violations=f"""
        WITH first_election AS (
            SELECT {_EPOCH}, min(position) AS position FROM leader_elected GROUP BY {_EPOCH}
        ), winner AS (
            SELECT e.* FROM first_election AS f JOIN leader_elected AS e ON e.run = f.run
                AND e.position = f.position
        ), rival AS (
            SELECT e.run, e.topic, e.partition, e.leader_epoch, min(e.position) AS position
            FROM leader_elected AS e JOIN winner AS w ON {_SAME} AND e.node <> w.node
            GROUP BY e.run, e.topic, e.partition, e.leader_epoch
        )
        SELECT
            w.run,
            concat(w.topic, '/', w.partition, '/', w.leader_epoch) AS key,
            concat(w.topic, '-', w.partition, ': epoch ', w.leader_epoch, ' is led by ', w.node,
                ' and by ', e.node) AS message,
            w.position AS first_witness,
            e.position AS second_witness
        FROM rival AS r
        JOIN winner AS w ON {_SAME.replace("e.", "r.")}
        JOIN leader_elected AS e ON e.run = r.run AND e.position = r.position
    """,
)
