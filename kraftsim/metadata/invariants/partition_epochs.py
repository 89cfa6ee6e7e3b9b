"""Leader epochs of partitions step by one, and each step has a cause.

Each leader epoch costs a round of metadata, a restart of every follower's fetcher, and the reload
of a coordinator. The controller raises it when the leader changes, when a replica leaves the ISR,
and when the set of replicas changes; a change that only adds to the ISR keeps it.
A ZooKeeper controller also raises it when it finds the only in-sync replica of a partition without
leader offline: doRemoveReplicasFromIsr writes the same leader and ISR again, with a new epoch.
Source: PartitionChangeBuilder.triggerLeaderEpochBumpIfNeeded, KAFKA-15021;
kafka.controller.ZkReplicaStateMachine.doRemoveReplicasFromIsr.
"""

from typing import Final, NamedTuple

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import PartitionChanged, PartitionCreated
from kraftsim.zookeeper.events import ZookeeperControllerElected

NAME: Final = "leader-epoch-changes-have-cause"
NO_LEADER: Final = -1


class _State(NamedTuple):
    """A partition after its latest change."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: str
    replicas: str
    is_of_zookeeper: bool
    """Whether a controller in ZooKeeper mode made it."""
    event_id: str


class EpochsHaveCause:
    """Compares each change of a partition with the one right before, by the partition epoch.

    A change that another controller reports again is ignored. In ZooKeeper mode leaders change the
    ISR on their own, and no controller reports that; and only there a partition without leader gets
    a new epoch when its last in-sync replica is found offline. Partition epochs of KRaft and those
    of ZooKeeper, the versions of znodes, are not of one sequence: they are not compared.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._states: dict[tuple[str, int], _State] = {}
        self._zookeeper_controllers: dict[tuple[str, int], None] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a partition that was created or changed, or the election of a controller."""
        if isinstance(event, ZookeeperControllerElected):
            self._zookeeper_controllers[envelope.node, envelope.incarnation] = None
            return None
        assert isinstance(event, PartitionCreated | PartitionChanged)
        where = (event.topic_id, event.partition)
        before = self._states.get(where)
        is_new = isinstance(event, PartitionCreated)
        state = _State(
            event.leader,
            0 if isinstance(event, PartitionCreated) else event.leader_epoch,
            0 if isinstance(event, PartitionCreated) else event.partition_epoch,
            event.isr,
            event.replicas,
            (envelope.node, envelope.incarnation) in self._zookeeper_controllers,
            envelope.event_id,
        )
        if before is not None and state.partition_epoch <= before.partition_epoch:
            return None
        self._states[where] = state
        if (
            is_new
            or before is None
            or state.partition_epoch != before.partition_epoch + 1
            or state.is_of_zookeeper != before.is_of_zookeeper
        ):
            return None
        self._findings.examined += 1
        step = state.leader_epoch - before.leader_epoch
        if step == 0 or (step == 1 and _has_cause(before, state)):
            return None
        if step == 1 and state.is_of_zookeeper and _is_last_replica_offline(before, state):
            return None
        why = "without a cause" if step == 1 else f"by {step}"
        return self._findings.violation(
            f"{event.topic}/{event.partition}/{state.partition_epoch}",
            f"the leader epoch of {event.topic}-{event.partition} changed {why}, to "
            f"{state.leader_epoch}",
            before.event_id,
            state.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


def _has_cause(before: _State, after: _State) -> bool:
    has_grown = after.isr.count(",") > before.isr.count(",")
    return (
        after.leader != before.leader
        or after.replicas != before.replicas
        or (after.isr != before.isr and not has_grown)
    )


def _is_last_replica_offline(before: _State, after: _State) -> bool:
    return (
        before.leader == after.leader == NO_LEADER
        and after.isr == before.isr
        and "," not in after.isr
    )


_CHANGES = """
    reported AS (
        SELECT run, topic, topic_id, partition, leader, 0 AS leader_epoch, 0 AS partition_epoch,
            isr, replicas, position, node, incarnation FROM partition_created
        UNION ALL
        SELECT run, topic, topic_id, partition, leader, leader_epoch, partition_epoch, isr,
            replicas, position, node, incarnation FROM partition_changed
    ), zookeeper_since AS (
        SELECT run, node, incarnation, min(position) AS since FROM zookeeper_controller_elected
        GROUP BY run, node, incarnation
    ), made AS (
        SELECT r.*, coalesce(z.since < r.position, false) AS is_of_zookeeper
        FROM reported AS r
        LEFT JOIN zookeeper_since AS z ON z.run = r.run AND z.node = r.node
            AND z.incarnation = r.incarnation
    ), ranked AS (
        SELECT *, max(partition_epoch) OVER (PARTITION BY run, topic_id, partition
            ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
        FROM made
    ), step AS (
        SELECT *,
            lag(leader) OVER (PARTITION BY run, topic_id, partition ORDER BY position)
                AS leader_before,
            lag(leader_epoch) OVER (PARTITION BY run, topic_id, partition ORDER BY position)
                AS epoch_before,
            lag(isr) OVER (PARTITION BY run, topic_id, partition ORDER BY position) AS isr_before,
            lag(replicas) OVER (PARTITION BY run, topic_id, partition ORDER BY position)
                AS replicas_before,
            lag(partition_epoch) OVER (PARTITION BY run, topic_id, partition ORDER BY position)
                AS change_before,
            lag(is_of_zookeeper) OVER (PARTITION BY run, topic_id, partition ORDER BY position)
                AS was_of_zookeeper,
            lag(position) OVER (PARTITION BY run, topic_id, partition ORDER BY position)
                AS position_before
        FROM ranked WHERE latest IS NULL OR partition_epoch > latest
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="The leader epoch of a partition steps by one, and only when the leader or the replicas "
    "change or a replica leaves the ISR.",
    source="PartitionChangeBuilder, KAFKA-15021",
    watches=(PartitionCreated, PartitionChanged, ZookeeperControllerElected),
    check=EpochsHaveCause,
    examined=f"""
        WITH {_CHANGES} SELECT run, count(*) FROM step
        WHERE partition_epoch = change_before + 1 AND is_of_zookeeper = was_of_zookeeper
        GROUP BY run
    """,
    violations=f"""
        WITH {_CHANGES}
        SELECT
            run,
            concat(topic, '/', partition, '/', partition_epoch) AS key,
            concat('the leader epoch of ', topic, '-', partition, ' changed ',
                CASE WHEN leader_epoch - epoch_before = 1 THEN 'without a cause'
                    ELSE concat('by ', leader_epoch - epoch_before) END,
                ', to ', leader_epoch) AS message,
            position_before AS first_witness,
            position AS second_witness
        FROM step
        WHERE partition_epoch = change_before + 1 AND is_of_zookeeper = was_of_zookeeper
            AND leader_epoch <> epoch_before
            AND (leader_epoch <> epoch_before + 1 OR (leader = leader_before
                AND replicas = replicas_before AND (isr = isr_before
                    OR length(isr) - length(replace(isr, ',', ''))
                        > length(isr_before) - length(replace(isr_before, ',', '')))))
            AND NOT (is_of_zookeeper AND leader_epoch = epoch_before + 1
                AND leader = {NO_LEADER} AND leader_before = {NO_LEADER}
                AND isr = isr_before AND isr NOT LIKE '%,%')
    """,
)
