"""Partition reassignments and preferred leader elections, requested through znodes or RPCs.

A reassignment starts with its own leader epoch, so that all replicas learn of the new replica set.
Once the target replicas are in sync, leadership moves, the removed replicas leave the ISR one by
one, and only the target replicas remain.
Source: kafka.controller.KafkaController (onPartitionReassignment, maybeCompleteReassignment,
processReplicaLeaderElection), KIP-455.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_registrations import PartitionRegistration
from kraftsim.metadata.rules_topic_table import PartitionKey, Topic
from kraftsim.zookeeper.context_reader import ContextReader
from kraftsim.zookeeper.metadata_writer import ZnodeWriter
from kraftsim.zookeeper.rules_partitions import (
    NOT_MADE,
    ZnodeAssignment,
    assigned,
    assignment_of,
    elected_of,
    renewed,
)
from kraftsim.zookeeper.rules_znode_writes import WriteKind, ZnodeWrite, read_at
from kraftsim.zookeeper.topic_deletions import TopicDeletions
from kraftsim.zookeeper.znode_writer import FencedWrites
from protocol.errors import ErrorCode
from protocol.zookeeper.kafka_znodes import (
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    build_reassignments,
    parse_partitions,
    parse_reassignments,
)

NOTHING_MOVES = Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
NO_PARTITION = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


class MovedPartitions(Protocol):
    """The partitions of a controller, and what changes them."""

    def partition(self, key: PartitionKey) -> PartitionRegistration | None:
        """Return a partition."""
        ...

    def topic_of(self, key: PartitionKey) -> Topic:
        """Return the topic of an existing partition."""
        ...

    def is_online(self, broker_id: int, key: PartitionKey) -> bool:
        """Return whether a broker may lead a partition."""
        ...

    def is_being_deleted(self, key: PartitionKey) -> bool:
        """Return whether the topic of a partition is queued for deletion."""
        ...

    def change(self, steps: Iterable[tuple[PartitionKey, PartitionRegistration | None]]) -> None:
        """Change partitions to the given states; None: unchanged."""
        ...

    def lose(self, broker_id: int, keys: Sequence[PartitionKey]) -> None:
        """Remove a broker from ISRs."""
        ...

    def elect_preferred(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, bool]:
        """Elect preferred replicas; return which of them are leaders now."""
        ...

    def queue_event(self, event: str) -> None:
        """Queue an event."""
        ...


class Reassignments:
    """The reassignments of one controller epoch."""

    def __init__(
        self,
        partitions: MovedPartitions,
        writer: ZnodeWriter,
        writes: FencedWrites,
        reading: ContextReader,
        deletions: TopicDeletions,
    ) -> None:
        self._partitions = partitions
        self._writer = writer
        self._writes = writes
        self._reading = reading
        self._deletions = deletions
        self._by_znode: dict[tuple[str, int], list[int]] = {}
        """Reassignments requested through the znode that have started."""

    def ask(self, key: PartitionKey | None, target: Sequence[int] | None) -> Refusal | None:
        """Start a reassignment, or cancel it (no target); return the reason if it is refused."""
        partitions = self._partitions
        partition = None if key is None else partitions.partition(key)
        if target is not None:
            refusal = self._refuse(partition, target)
            if refusal is not None:
                return refusal
        if key is None or partition is None:
            return NO_PARTITION if target is not None else NOTHING_MOVES
        present = assignment_of(partition)
        if target is None and not present.is_moving:
            return NOTHING_MOVES
        if partitions.is_being_deleted(key):
            return NO_PARTITION
        self._move(key, present.moved_to(present.origin if target is None else target))
        return None

    def look(self, keys: Iterable[PartitionKey]) -> None:
        """Complete the reassignments that can be completed, after ISR changes."""
        for key in keys:
            partition = self._partitions.partition(key)
            if partition is not None and partition.is_reassigning and _is_complete(partition):
                self._complete(key, assignment_of(partition))

    async def resume(self, about: str) -> None:
        """Continue reassignments: all after a controller failover, or those that wait for a broker
        that has started.
        """
        for key in self._writer.state.replication.topics.reassigning():
            partition = self._partitions.partition(key)
            is_meant = partition is not None and (
                not about or int(about) in assignment_of(partition).target
            )
            if partition is not None and is_meant and partition.partition_epoch != NOT_MADE:
                if _is_complete(partition):
                    self._complete(key, assignment_of(partition))
                else:
                    self._partitions.change([(key, renewed(partition))])

    async def process_reassignment_znode(self, _: str) -> None:
        """Start the reassignments in /admin/reassign_partitions; invalid or completed entries are
        removed from it.
        """
        data = await self._reading.asked(REASSIGN_PARTITIONS)
        if data is None:
            return
        with read_at(REASSIGN_PARTITIONS):
            asked = parse_reassignments(data)
        done = [each for each, target in asked.items() if self._is_done(each, target)]
        await self._remove_entries(asked, done)

    def _is_done(self, asked: tuple[str, int], target: list[int]) -> bool:
        """Start a requested reassignment if it has not started; return whether the znode entry can
        be removed.
        """
        key = self._key(*asked)
        if self._by_znode.get(asked) != target:
            self._by_znode[asked] = target
            if self.ask(key, target) is not None:
                del self._by_znode[asked]
                return True
        partition = None if key is None else self._partitions.partition(key)
        if partition is not None and partition.is_reassigning:
            return False
        self._by_znode.pop(asked, None)
        return True

    async def _remove_entries(
        self, asked: dict[tuple[str, int], list[int]], done: Sequence[tuple[str, int]]
    ) -> None:
        left = {each: target for each, target in asked.items() if each not in done}
        if left:
            write = ZnodeWrite(
                kind=WriteKind.SET, path=REASSIGN_PARTITIONS, data=build_reassignments(left)
            )
        else:
            write = ZnodeWrite(kind=WriteKind.DROP, path=REASSIGN_PARTITIONS)
        if done:
            await self._writes.carry([write])
            await self._reading.asked(REASSIGN_PARTITIONS)  # sets the watch again

    async def process_election_znode(self, _: str) -> None:
        """Run the elections in /admin/preferred_replica_election, and delete the znode."""
        data = await self._reading.asked(PREFERRED_REPLICA_ELECTION)
        if data is None:
            return
        with read_at(PREFERRED_REPLICA_ELECTION):
            asked = parse_partitions(data)
        wanted = []
        for topic, number in asked:
            key = self._key(topic, number)
            partition = None if key is None else self._partitions.partition(key)
            if (
                key is not None
                and partition is not None
                and not partition.has_preferred_leader
                and not self._partitions.is_being_deleted(key)
            ):
                wanted.append(key)
        self._partitions.elect_preferred(wanted)
        await self._writes.carry([ZnodeWrite(kind=WriteKind.DROP, path=PREFERRED_REPLICA_ELECTION)])
        self._partitions.queue_event("preferred")

    def _key(self, topic: str, number: int) -> PartitionKey | None:
        topic_id = self._writer.state.replication.topic_id(topic)
        return None if topic_id is None else (topic_id, number)

    def _refuse(
        self, partition: PartitionRegistration | None, target: Sequence[int]
    ) -> Refusal | None:
        """Return why the target replicas of a partition are invalid."""
        listed = f"List({', '.join(map(str, target))})"
        if not target:
            return _invalid("Empty replica list specified in partition reassignment.")
        if len(set(target)) != len(target):
            return _invalid(
                f"Duplicate replica ids in partition reassignment replica list: {listed}"
            )
        if any(replica < 0 for replica in target):
            return _invalid(f"Invalid broker id in replica list: {listed}")
        present = ZnodeAssignment(replicas=()) if partition is None else assignment_of(partition)
        cluster = self._writer.state.cluster
        if not all(cluster.is_active(replica) for replica in present.moved_to(target).adding):
            live = ", ".join(
                str(broker.broker_id) for broker in cluster.brokers() if broker.is_active
            )
            return _invalid(
                f"Replica assignment has brokers that are not alive. Replica list: {listed}, "
                f"live broker list: Set({live})"
            )
        return None

    def _move(self, key: PartitionKey, following: ZnodeAssignment) -> None:
        """Change to another assignment: replicas that it does not need are removed immediately, and
        the rest starts to move or is complete already.
        """
        partitions = self._partitions
        partition = partitions.partition(key)
        assert partition is not None, "it was looked up"
        unneeded = [replica for replica in partition.replicas if replica not in following.replicas]
        if partition.partition_epoch == NOT_MADE:
            partitions.change([(key, assigned(partition, following))])
            return
        if _is_complete(assigned(partition, following)):
            for replica in unneeded:
                partitions.lose(replica, [key])
            self._complete(key, following)
            return
        partitions.change([(key, assigned(partition, following))])
        for replica in unneeded:
            partitions.lose(replica, [key])
        present = partitions.partition(key)
        assert present is not None, "it is moving"
        partitions.change([(key, renewed(present))])

    def _complete(self, key: PartitionKey, move: ZnodeAssignment) -> None:
        """Make the target replicas the only replicas."""
        partitions = self._partitions
        partition = partitions.partition(key)
        assert partition is not None, "it is moving"
        target = ZnodeAssignment(replicas=move.target)
        settled = assigned(partition, target)
        if partition.leader in target.replicas and partitions.is_online(partition.leader, key):
            following: PartitionRegistration | None = renewed(settled)
        else:
            following = elected_of(
                settled, target.replicas, lambda replica: partitions.is_online(replica, key)
            )
        partitions.change([(key, following or settled)])
        for replica in move.removing:
            partitions.lose(replica, [key])
        if (partitions.topic_of(key).name, key[1]) in self._by_znode:
            partitions.queue_event("reassignments")
        self._deletions.retry()


def _is_complete(partition: PartitionRegistration) -> bool:
    """Return whether all target replicas are in sync, or no reassignment is in progress."""
    assignment = assignment_of(partition)
    return not assignment.is_moving or all(
        replica in partition.isr for replica in assignment.target
    )


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
