"""Topic deletion in ZooKeeper mode: brokers delete their replicas first; the topic is removed once
all replicas are confirmed deleted.

Deletion of a topic that is being reassigned, or has an offline replica, waits; its online replicas
are deleted anyway.
Source: kafka.controller.TopicDeletionManager, kafka.server.DelayedDeleteTopics.
"""

from collections.abc import Callable, Sequence

from kraftsim.metadata.events import TopicDeleted
from kraftsim.metadata.rules_topic_table import Topic
from kraftsim.server.config import NodeConfig
from kraftsim.zookeeper.context_reader import ContextReader
from kraftsim.zookeeper.metadata_writer import ZnodeWriter
from kraftsim.zookeeper.rules_znode_writes import WriteKind, ZnodeWrite
from kraftsim.zookeeper.znode_writer import FencedWrites
from protocol.errors import ErrorCode
from protocol.messages.k05_stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.uuids import uuid_text
from protocol.zookeeper.kafka_znodes import delete_topic_path

Replica = tuple[int, int]
"""Partition and broker."""


class TopicDeletions:
    """The topic deletions of one controller epoch. `send` sends StopReplica with deletion to all
    brokers, `resend` to some.
    """

    def __init__(
        self,
        config: NodeConfig,
        writer: ZnodeWriter,
        writes: FencedWrites,
        reading: ContextReader,
        *,
        send: Callable[[Sequence[bytes]], None],
        resend: Callable[[Sequence[bytes], Sequence[int]], None],
    ) -> None:
        self._config = config
        self._writer = writer
        self._writes = writes
        self._reading = reading
        self._send = send
        self._resend = resend
        self.queued: dict[str, None] = {}
        """Topics queued for deletion."""
        self._left: dict[str, dict[Replica, None]] = {}
        """Topic -> the replicas whose deletion is not confirmed."""
        self._going: dict[str, None] = {}
        """Topics whose removal is decided and not yet written: a new topic of the same name may be
        created meanwhile.
        """
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    async def look(self, _: str) -> None:
        """Process the requests in /admin/delete_topics."""
        for name in await self._reading.deletions():
            topic = self._writer.state.replication.topics.topic_named(name)
            if topic is None or not self._config.delete_topic_enable:
                await self._writes.carry(
                    [ZnodeWrite(kind=WriteKind.DROP, path=delete_topic_path(name))]
                )
            elif name not in self.queued:
                self.queued[name] = None
        self.retry()

    def when_gone(self, name: str, callback: Callable[[], None]) -> None:
        """Call back once a topic is removed."""
        self._waiting.setdefault(name, []).append(callback)

    def retry(self) -> None:
        """Start the deletions that can start now."""
        for name in [name for name in self.queued if name not in self._going]:
            topic = self._writer.state.replication.topics.topic_named(name)
            if topic is None:
                self._remove(name)
            elif name not in self._left and self._may_begin(topic):
                self._begin(topic)
            elif name in self._left:
                self._complete(topic)

    def on_brokers_started(self, broker_ids: Sequence[int]) -> None:
        """Send restarted brokers the deletions that they missed."""
        known = self._writer.state.replication.topics
        begun = [topic_id for name in self._left if (topic_id := known.topic_id(name)) is not None]
        self._resend(begun, broker_ids)
        self.retry()

    def on_stopped(
        self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse
    ) -> None:
        """Record which replicas a broker has deleted."""
        if response.error_code != ErrorCode.NONE:
            return
        deleted = _deleted(request)
        for row in response.partition_errors:
            left = self._left.get(row.topic_name)
            if (
                left is not None
                and row.error_code == ErrorCode.NONE
                and (row.topic_name, row.partition_index) in deleted
            ):
                left.pop((row.partition_index, broker_id), None)
        for name in dict.fromkeys(name for name, _ in deleted):
            topic = self._writer.state.replication.topics.topic_named(name)
            if topic is not None and name in self._left:
                self._complete(topic)

    def close(self) -> None:
        """Drop all callbacks."""
        self._waiting.clear()

    def on_applied(self) -> None:
        """Start deletions that were requested before the topics were acknowledged by ZooKeeper."""
        if self.queued.keys() - self._left.keys():
            self.retry()

    def _may_begin(self, topic: Topic) -> bool:
        """Only acknowledged partitions are deleted on brokers: the deletion of any other would
        never be confirmed.
        """
        known = self._writer.image.topic_by_id(topic.topic_id)
        return (
            known is not None
            and known.partitions.keys() >= topic.partitions.keys()
            and not any(partition.is_reassigning for partition in topic.partitions.values())
        )

    def _begin(self, topic: Topic) -> None:
        """Send StopReplica with deletion to all online replicas; brokers that start later receive
        it then.
        """
        self._left[topic.name] = {
            (number, replica): None
            for number in sorted(topic.partitions)
            for replica in topic.partitions[number].replicas
        }
        self._send([topic.topic_id])

    def _complete(self, topic: Topic) -> None:
        if self._left[topic.name]:
            return
        del self._left[topic.name]
        fact = TopicDeleted(
            topic=topic.name,
            topic_id=uuid_text(topic.topic_id),
            partition_count=len(topic.partitions),
        )
        self._going[topic.name] = None
        self._writer.write(
            [self._reading.removal(topic)],
            (fact,),
            lambda _: self._remove(topic.name),
            on_given_up=lambda: self._on_reverted(topic.name),
        )

    def _on_reverted(self, name: str) -> None:
        """The removal was reverted; `retry` starts it again."""
        self._going.pop(name, None)

    def _remove(self, name: str) -> None:
        self._going.pop(name, None)
        self.queued.pop(name, None)
        self._left.pop(name, None)
        for callback in self._waiting.pop(name, ()):
            callback()


def _deleted(request: StopReplicaRequest) -> dict[tuple[str, int], None]:
    """Return the partitions that a StopReplica request deletes, in any version."""
    by_state = {
        (topic.topic_name, each.partition_index): None
        for topic in request.topic_states
        for each in topic.partition_states
        if each.delete_partition
    }
    if not request.delete_partitions:
        return by_state
    older = {
        (topic.name, number): None for topic in request.topics for number in topic.partition_indexes
    }
    oldest = {(row.topic_name, row.partition_index): None for row in request.ungrouped_partitions}
    return {**by_state, **older, **oldest}
