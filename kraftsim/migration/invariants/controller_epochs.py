"""Each controller epoch in ZooKeeper belongs to one controller, and a new quorum takes higher ones.

Brokers refuse requests of an earlier controller by its epoch. A broker that is elected, and a KRaft
controller that claims /controller, set /controller_epoch one higher. A metadata log that begins
at offset 0 again has epochs that begin again: the controller epoch must not.
Source: KIP-866, kafka.zk.KafkaZkClient.tryRegisterKRaftControllerAsActiveController.
"""

from kraftsim.events.event import Event
from kraftsim.events.runs import MetadataLogBegun
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.migration.events import ZookeeperControllerClaimed
from kraftsim.zookeeper.events import ZookeeperControllerElected

NAME = "controller-epochs-rise"


class EpochsRise:
    """Keeps the first controller of each epoch, and the highest epoch before the last quorum."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._first: dict[int, tuple[str, str]] = {}
        self._floor: tuple[int, str] | None = None
        """The highest epoch before the quorum was formatted, and its event."""

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a controller, or a new quorum."""
        if isinstance(event, MetadataLogBegun):
            highest = max(self._first, default=None)
            if highest is not None:
                self._floor = highest, self._first[highest][1]
            return None
        assert isinstance(event, ZookeeperControllerElected | ZookeeperControllerClaimed)
        self._findings.examined += 1
        epoch = event.controller_epoch
        known = self._first.setdefault(epoch, (envelope.node, envelope.event_id))
        if self._floor is not None and epoch <= self._floor[0]:
            message = (
                f"{envelope.node} took controller epoch {epoch}, after epoch {self._floor[0]} "
                "before the quorum was formatted"
            )
            witness = self._floor[1]
        elif known[0] != envelope.node:
            message = f"controller epoch {epoch} belongs to {known[0]} and to {envelope.node}"
            witness = known[1]
        else:
            return None
        return self._findings.violation(envelope.event_id, message, witness, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_TAKEN = """
    taken AS (
        SELECT run, node, incarnation, n, position, controller_epoch
        FROM zookeeper_controller_elected
        UNION ALL
        SELECT run, node, incarnation, n, position, controller_epoch
        FROM zookeeper_controller_claimed
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="A controller epoch in ZooKeeper belongs to one controller, and those of a new quorum are "
    "above all before.",
    source="KIP-866",
    watches=(ZookeeperControllerElected, ZookeeperControllerClaimed, MetadataLogBegun),
    check=EpochsRise,
    examined=f"WITH {_TAKEN} SELECT run, count(*) FROM taken GROUP BY run",
    violations=f"""
        WITH {_TAKEN}, place AS (
            SELECT run, controller_epoch, min(position) AS position FROM taken
            GROUP BY run, controller_epoch
        ), first AS (
            SELECT t.run, t.node, t.position, t.controller_epoch
            FROM place AS p JOIN taken AS t ON t.run = p.run AND t.position = p.position
        ), log_begun AS (
            SELECT b.run, b.position AS begun_at, max(f.controller_epoch) AS highest
            FROM metadata_log_begun AS b
            JOIN first AS f ON f.run = b.run AND f.position < b.position
            GROUP BY b.run, b.position
        ), floor AS (
            SELECT t.run, t.position, max(l.highest) AS highest
            FROM taken AS t JOIN log_begun AS l ON l.run = t.run AND l.begun_at < t.position
            GROUP BY t.run, t.position
        ), judged AS (
            SELECT t.run, t.node, t.incarnation, t.n, t.position, t.controller_epoch,
                f.node AS first_node, f.position AS first_position,
                CASE WHEN t.controller_epoch <= c.highest THEN c.highest END AS highest
            FROM taken AS t
            JOIN first AS f ON f.run = t.run AND f.controller_epoch = t.controller_epoch
            LEFT JOIN floor AS c ON c.run = t.run AND c.position = t.position
        )
        SELECT
            j.run,
            concat(j.node, '.', j.incarnation, '.', j.n) AS key,
            CASE WHEN j.highest IS NULL
                THEN concat('controller epoch ', j.controller_epoch, ' belongs to ', j.first_node,
                    ' and to ', j.node)
                ELSE concat(j.node, ' took controller epoch ', j.controller_epoch,
                    ', after epoch ', j.highest, ' before the quorum was formatted')
            END AS message,
            CASE WHEN j.highest IS NULL THEN j.first_position ELSE h.position END AS first_witness,
            j.position AS second_witness
        FROM judged AS j
        LEFT JOIN first AS h ON h.run = j.run AND h.controller_epoch = j.highest
        WHERE j.highest IS NOT NULL OR j.first_node <> j.node
    """,
)
