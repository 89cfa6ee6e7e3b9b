"""Moves of partitions to other brokers, and elections of preferred leaders, as they are asked for in znodes or by requests.

A move begins with a leader epoch of its own, so that everybody hears of the new replicas; it is done when all that shall stay are in sync, and then
the leader moves, those who go leave the in-sync replicas one by one, and only the target is left.
Source: kafka.controller.KafkaController (onPartitionReassignment, maybeCompleteReassignment, processReplicaLeaderElection), KIP-455.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.partition_registration import PartitionRegistration
from kraftsim.core.metadata.topic_table import PartitionKey
from kraftsim.core.zookeeper_mode.partition_rules import NOT_MADE, Assignment, assigned, assignment_of, elected_of, renewed
from kraftsim.core.zookeeper_mode.znode_checking import read_at
from kraftsim.core.zookeeper_mode.znode_writing import WriteKind, ZnodeWrite
from protocol.errors import ErrorCode
from protocol.zookeeper.kafka_admin_znodes import build_reassignments, parse_partitions, parse_reassignments
from protocol.zookeeper.kafka_znodes import PREFERRED_REPLICA_ELECTION, REASSIGN_PARTITIONS

if TYPE_CHECKING:
    from kraftsim.node.zookeeper_mode.reign import Reign

NOTHING_MOVES = Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
NO_PARTITION = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


class Moves:
    """The moves of one reign."""

    def __init__(self, reign: "Reign") -> None:
        self._reign = reign
        self._by_znode: dict[tuple[str, int], list[int]] = {}
        """What was asked for in a znode, and begun."""

    def ask(self, key: PartitionKey | None, target: Sequence[int] | None) -> Refusal | None:
        """Begin to move a partition, or call its move off (no target); return why it cannot be."""
        reign = self._reign
        partition = None if key is None else reign.partition(key)
        if target is not None:
            refusal = self._refuse(partition, target)
            if refusal is not None:
                return refusal
        if key is None or partition is None:
            return NO_PARTITION if target is not None else NOTHING_MOVES
        present = assignment_of(partition)
        if target is None and not present.is_moving:
            return NOTHING_MOVES
        if reign.is_going(key):
            return NO_PARTITION
        self._move(key, present.moved_to(present.origin if target is None else target))
        return None

    def look(self, keys: Iterable[PartitionKey]) -> None:
        """Complete what can be completed of moves, now that others are in sync."""
        for key in keys:
            partition = self._reign.partition(key)
            if partition is not None and partition.is_reassigning and _is_complete(partition):
                self._complete(key, assignment_of(partition))

    async def resume(self, about: str) -> None:
        """Go on with what is under way: all of it after a change of controllers, or what hangs on a broker that has come."""
        for key in self._reign.ledger.state.replication.topics.reassigning():
            partition = self._reign.partition(key)
            is_meant = partition is not None and (not about or int(about) in assignment_of(partition).target)
            if partition is not None and is_meant and partition.partition_epoch != NOT_MADE:
                if _is_complete(partition):
                    self._complete(key, assignment_of(partition))
                else:
                    self._reign.change([(key, renewed(partition))])

    async def look_at_znode(self, _: str) -> None:
        """Begin what /admin/reassign_partitions asks for; what cannot be or is done is taken out of it."""
        data = await self._reign.reading.asked(REASSIGN_PARTITIONS)
        if data is None:
            return
        with read_at(REASSIGN_PARTITIONS):
            asked = parse_reassignments(data)
        done = [each for each, target in asked.items() if self._is_done(each, target)]
        await self._take_out(asked, done)

    def _is_done(self, asked: tuple[str, int], target: list[int]) -> bool:
        """Begin what a znode asks for, if it is not begun; tell whether it need not stand there any more."""
        key = self._key(*asked)
        if self._by_znode.get(asked) != target:
            self._by_znode[asked] = target
            if self.ask(key, target) is not None:
                del self._by_znode[asked]
                return True
        partition = None if key is None else self._reign.partition(key)
        if partition is not None and partition.is_reassigning:
            return False
        self._by_znode.pop(asked, None)
        return True

    async def _take_out(self, asked: dict[tuple[str, int], list[int]], done: Sequence[tuple[str, int]]) -> None:
        left = {each: target for each, target in asked.items() if each not in done}
        if left:
            write = ZnodeWrite(kind=WriteKind.SET, path=REASSIGN_PARTITIONS, data=build_reassignments(left))
        else:
            write = ZnodeWrite(kind=WriteKind.DROP, path=REASSIGN_PARTITIONS)
        if done:
            await self._reign.writes.carry([write])
            await self._reign.reading.asked(REASSIGN_PARTITIONS)  # to be watched for again

    async def look_at_elections(self, _: str) -> None:
        """Hold the elections that /admin/preferred_replica_election asks for, and remove it."""
        data = await self._reign.reading.asked(PREFERRED_REPLICA_ELECTION)
        if data is None:
            return
        with read_at(PREFERRED_REPLICA_ELECTION):
            asked = parse_partitions(data)
        wanted = []
        for topic, number in asked:
            key = self._key(topic, number)
            partition = None if key is None else self._reign.partition(key)
            if key is not None and partition is not None and not partition.has_preferred_leader and not self._reign.is_going(key):
                wanted.append(key)
        self._reign.elect_preferred(wanted)
        await self._reign.writes.carry([ZnodeWrite(kind=WriteKind.DROP, path=PREFERRED_REPLICA_ELECTION)])
        self._reign.has_happened("preferred")

    def _key(self, topic: str, number: int) -> PartitionKey | None:
        topic_id = self._reign.ledger.state.replication.topic_id(topic)
        return None if topic_id is None else (topic_id, number)

    def _refuse(self, partition: PartitionRegistration | None, target: Sequence[int]) -> Refusal | None:
        """Return why these cannot be the replicas of a partition."""
        listed = f"List({', '.join(map(str, target))})"
        if not target:
            return _invalid("Empty replica list specified in partition reassignment.")
        if len(set(target)) != len(target):
            return _invalid(f"Duplicate replica ids in partition reassignment replica list: {listed}")
        if any(replica < 0 for replica in target):
            return _invalid(f"Invalid broker id in replica list: {listed}")
        present = Assignment(replicas=()) if partition is None else assignment_of(partition)
        cluster = self._reign.ledger.state.cluster
        if not all(cluster.is_active(replica) for replica in present.moved_to(target).adding):
            live = ", ".join(str(broker.broker_id) for broker in cluster.brokers() if broker.is_active)
            return _invalid(f"Replica assignment has brokers that are not alive. Replica list: {listed}, live broker list: Set({live})")
        return None

    def _move(self, key: PartitionKey, following: Assignment) -> None:
        """Go on to another assignment: who is not needed for it goes at once, and the rest begins to move, or is there already."""
        reign = self._reign
        partition = reign.partition(key)
        assert partition is not None, "it was looked up"
        unneeded = [replica for replica in partition.replicas if replica not in following.replicas]
        if partition.partition_epoch == NOT_MADE:
            reign.change([(key, assigned(partition, following))])
            return
        if _is_complete(assigned(partition, following)):
            for replica in unneeded:
                reign.lose(replica, [key])
            self._complete(key, following)
            return
        reign.change([(key, assigned(partition, following))])
        for replica in unneeded:
            reign.lose(replica, [key])
        present = reign.partition(key)
        assert present is not None, "it is moving"
        reign.change([(key, renewed(present))])

    def _complete(self, key: PartitionKey, move: Assignment) -> None:
        """Let a target be all that there is."""
        reign = self._reign
        partition = reign.partition(key)
        assert partition is not None, "it is moving"
        target = Assignment(replicas=move.target)
        settled = assigned(partition, target)
        if partition.leader in target.replicas and reign.is_online(partition.leader, key):
            following: PartitionRegistration | None = renewed(settled)
        else:
            following = elected_of(settled, target.replicas, lambda replica: reign.is_online(replica, key))
        reign.change([(key, following or settled)])
        for replica in move.removing:
            reign.lose(replica, [key])
        if (reign.topic_of(key).name, key[1]) in self._by_znode:
            reign.has_happened("reassignments")
        reign.deletions.retry()


def _is_complete(partition: PartitionRegistration) -> bool:
    """Tell whether all that shall stay are in sync, or nothing moves."""
    assignment = assignment_of(partition)
    return not assignment.is_moving or all(replica in partition.isr for replica in assignment.target)


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
