"""Topics on their way out: brokers delete what they hold first, and only when everybody has said so the topic is forgotten.

A topic that moves, or one of whose replicas is not there, waits; what is there of it is deleted all the same.
Source: kafka.controller.TopicDeletionManager, kafka.server.DelayedDeleteTopics.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kraftsim.core.metadata.topic_table import Topic
from kraftsim.core.zookeeper_mode.znode_writing import WriteKind, ZnodeWrite
from kraftsim.events.metadata import TopicDeleted
from protocol.errors import ErrorCode
from protocol.messages.k05_stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.uuids import uuid_text
from protocol.zookeeper.kafka_admin_znodes import delete_topic_path

if TYPE_CHECKING:
    from kraftsim.node.zookeeper_mode.reign import Reign

Replica = tuple[int, int]
"""Partition and broker."""


class TopicDeletions:
    """The deletions of one reign."""

    def __init__(self, reign: "Reign") -> None:
        self._reign = reign
        self.queued: dict[str, None] = {}
        """Topics that are to be deleted."""
        self._left: dict[str, dict[Replica, None]] = {}
        """Topic -> the replicas of which nobody has said that they are gone."""
        self._going: dict[str, None] = {}
        """Topics whose removal is decided and not written yet: another topic of that name may be decided meanwhile."""
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    async def look(self, _: str) -> None:
        """Take up what /admin/delete_topics asks for."""
        reign = self._reign
        for name in await reign.reading.deletions():
            topic = reign.ledger.state.replication.topics.topic_named(name)
            if topic is None or not reign.config.delete_topic_enable:
                await reign.writes.carry([ZnodeWrite(kind=WriteKind.DROP, path=delete_topic_path(name))])
            elif name not in self.queued:
                self.queued[name] = None
        self.retry()

    def when_gone(self, name: str, callback: Callable[[], None]) -> None:
        """Call back once a topic is forgotten."""
        self._waiting.setdefault(name, []).append(callback)

    def retry(self) -> None:
        """Begin to delete what can be deleted now."""
        for name in [name for name in self.queued if name not in self._going]:
            topic = self._reign.ledger.state.replication.topics.topic_named(name)
            if topic is None:
                self._forget(name)
            elif name not in self._left and self._may_begin(topic):
                self._begin(topic)
            elif name in self._left:
                self._complete(topic)

    def on_come(self, broker_ids: Sequence[int]) -> None:
        """Tell brokers that have come what they have missed."""
        known = self._reign.ledger.state.replication.topics
        begun = [topic_id for name in self._left if (topic_id := known.topic_id(name)) is not None]
        self._reign.tell_deletions_again(begun, broker_ids)
        self.retry()

    def on_stopped(self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse) -> None:
        """Take note of what a broker has deleted."""
        if response.error_code != ErrorCode.NONE:
            return
        deleted = _deleted(request)
        for row in response.partition_errors:
            left = self._left.get(row.topic_name)
            if left is not None and row.error_code == ErrorCode.NONE and (row.topic_name, row.partition_index) in deleted:
                left.pop((row.partition_index, broker_id), None)
        for name in dict.fromkeys(name for name, _ in deleted):
            topic = self._reign.ledger.state.replication.topics.topic_named(name)
            if topic is not None and name in self._left:
                self._complete(topic)

    def close(self) -> None:
        """Nobody is told any more."""
        self._waiting.clear()

    def on_applied(self) -> None:
        """Begin to delete topics that were asked for before ZooKeeper had them."""
        if self.queued.keys() - self._left.keys():
            self.retry()

    def _may_begin(self, topic: Topic) -> bool:
        """Only what is acknowledged is told to brokers: a partition that is not would never be said to be gone."""
        known = self._reign.ledger.image.topic_by_id(topic.topic_id)
        return (
            known is not None
            and known.partitions.keys() >= topic.partitions.keys()
            and not any(partition.is_reassigning for partition in topic.partitions.values())
        )

    def _begin(self, topic: Topic) -> None:
        """Tell everybody who is there to delete; who comes later is told again."""
        self._left[topic.name] = {(number, replica): None for number in sorted(topic.partitions) for replica in topic.partitions[number].replicas}
        self._reign.tell_deletions([topic.topic_id])

    def _complete(self, topic: Topic) -> None:
        if self._left[topic.name]:
            return
        reign = self._reign
        del self._left[topic.name]
        fact = TopicDeleted(topic=topic.name, topic_id=uuid_text(topic.topic_id), partition_count=len(topic.partitions))
        self._going[topic.name] = None
        reign.ledger.write(
            [reign.reading.removal(topic)],
            (fact,),
            lambda _: self._forget(topic.name),
            on_given_up=lambda: self._try_again(topic.name),
        )

    def _try_again(self, name: str) -> None:
        """The removal was undone; `retry` begins anew."""
        self._going.pop(name, None)

    def _forget(self, name: str) -> None:
        self._going.pop(name, None)
        self.queued.pop(name, None)
        self._left.pop(name, None)
        for callback in self._waiting.pop(name, ()):
            callback()


def _deleted(request: StopReplicaRequest) -> dict[tuple[str, int], None]:
    """Return the partitions that a broker was told to delete, in whatever version."""
    by_state = {
        (topic.topic_name, each.partition_index): None for topic in request.topic_states for each in topic.partition_states if each.delete_partition
    }
    if not request.delete_partitions:
        return by_state
    older = {(topic.name, number): None for topic in request.topics for number in topic.partition_indexes}
    oldest = {(row.topic_name, row.partition_index): None for row in request.ungrouped_partitions}
    return {**by_state, **older, **oldest}
