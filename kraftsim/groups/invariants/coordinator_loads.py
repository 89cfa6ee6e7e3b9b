"""A coordinator loads a partition only after its broker has been elected its leader once more.

A load reads the whole partition, and refuses requests meanwhile. Changes of the ISR and of other
partitions are no reason for one.
Source: BrokerMetadataPublisher.updateCoordinator, LocalReplicaChanges.electedLeaders.
"""

from typing import Final

from kraftsim.events.event import Event
from kraftsim.groups.events import GroupsLoaded
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import LeaderElected
from kraftsim.share_groups.events_states import ShareStatesLoaded
from kraftsim.transactions.events import TransactionsLoaded

NAME: Final = "coordinator-loads-follow-elections"
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SHARES = "__share_group_state"

Replica = tuple[str, int, str, int]
"""Node, incarnation, topic, partition."""


class LoadsFollowElections:
    """Counts elections and loads of each replica of a coordinator's topics."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._spare: dict[Replica, int] = {}
        """Elections that no load has followed yet."""

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an election or a load."""
        match event:
            case LeaderElected(topic=topic, partition=partition):
                if topic in (OFFSETS, TRANSACTIONS, SHARES):
                    replica = (envelope.node, envelope.incarnation, topic, partition)
                    self._spare[replica] = self._spare.get(replica, 0) + 1
                return None
            case GroupsLoaded(partition=partition):
                topic = OFFSETS
            case TransactionsLoaded(partition=partition):
                topic = TRANSACTIONS
            case ShareStatesLoaded(partition=partition):
                topic = SHARES
            case _:
                return None
        self._findings.examined += 1
        replica = (envelope.node, envelope.incarnation, topic, partition)
        self._spare[replica] = self._spare.get(replica, 0) - 1
        if self._spare[replica] >= 0:
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{envelope.node} loaded {topic}-{partition} once more than it was elected its leader",
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_LOADS = f"""
    step AS (
        SELECT run, node, incarnation, n, topic, partition, position, 1 AS spare, 0 AS loads
        FROM leader_elected WHERE topic IN ('{OFFSETS}', '{TRANSACTIONS}', '{SHARES}')
        UNION ALL
        SELECT run, node, incarnation, n, '{OFFSETS}' AS topic, partition, position, -1 AS spare,
            1 AS loads
        FROM groups_loaded
        UNION ALL
        SELECT run, node, incarnation, n, '{TRANSACTIONS}' AS topic, partition, position,
            -1 AS spare, 1 AS loads
        FROM transactions_loaded
        UNION ALL
        SELECT run, node, incarnation, n, '{SHARES}' AS topic, partition, position, -1 AS spare,
            1 AS loads
        FROM share_states_loaded
    ), summed AS (
        SELECT *, sum(spare) OVER (PARTITION BY run, node, incarnation, topic, partition
            ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS left_over
        FROM step
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="A coordinator loads a partition at most once for each time that its broker is elected "
    "the leader.",
    source="BrokerMetadataPublisher.updateCoordinator",
    watches=(LeaderElected, GroupsLoaded, TransactionsLoaded, ShareStatesLoaded),
    check=LoadsFollowElections,
    examined=f"WITH {_LOADS} SELECT run, count(*) FROM step WHERE loads = 1 GROUP BY run",
    violations=f"""
        WITH {_LOADS}
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(node, ' loaded ', topic, '-', partition,
                ' once more than it was elected its leader') AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM summed WHERE loads = 1 AND left_over < 0
    """,
)
