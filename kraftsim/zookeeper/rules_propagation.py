"""The metadata that a controller sends to brokers in ZooKeeper mode: all of it at first, then
changes.

A ZooKeeper-mode controller sends changes only. A KRaft controller, during a migration, sends what
the migration of 3.4 to 3.9 does: broker changes first to all brokers, each partition as new to each
replica every time, and never StopReplica because of a snapshot.
Source: kafka.controller.{KafkaController, PartitionStateMachine, ReplicaStateMachine},
kafka.migration.MigrationPropagator, KIP-866.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kraftsim.metadata.rules_image import ImageChanges, MetadataImage, TopicImage
from kraftsim.metadata.rules_registrations import BrokerRegistration, PartitionRegistration
from kraftsim.zookeeper.rules_control_requests import RequestBatch, Sender, ToBroker, TopicPartition
from protocol.messages.k04_leader_and_isr import FULL_REQUEST, INCREMENTAL_REQUEST
from protocol.messages.k06_update_metadata import LEADER_DURING_DELETE, UpdateMetadataPartitionState

PartitionKey: TypeAlias = tuple[bytes, int]
Moved: TypeAlias = tuple[str, int, PartitionRegistration, PartitionRegistration | None]
"""Topic, partition, its state, and its former state; None: it is new."""


@dataclass(slots=True)
class _SentMetadata:
    """The metadata last sent to brokers, so that deletions can be sent."""

    partitions: dict[PartitionKey, PartitionRegistration] = field(default_factory=dict)
    topics: dict[bytes, str] = field(default_factory=dict)
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)

    def take(self, image: MetadataImage) -> None:
        """Replace it by an image; everything in it is sent."""
        self.partitions = {
            (topic.topic_id, number): each
            for topic in image.topics()
            for number, each in topic.partitions.items()
        }
        self.topics = {topic.topic_id: topic.name for topic in image.topics()}
        self.brokers = {broker.broker_id: broker for broker in image.brokers()}

    def changed_partitions(self, image: MetadataImage, changes: ImageChanges) -> list[Moved]:
        """Store and return the partitions that changed."""
        found = []
        for topic_id, number in changes.partitions:
            topic = image.topic_by_id(topic_id)
            partition = None if topic is None else topic.partitions.get(number)
            before = self.partitions.get((topic_id, number))
            if topic is not None and partition is not None and partition != before:
                self.partitions[topic_id, number] = partition
                self.topics[topic_id] = topic.name
                found.append((topic.name, number, partition, before))
        return found

    def deleted_topics(self, image: MetadataImage, changes: ImageChanges) -> list[TopicImage]:
        """Remove and return the deleted topics."""
        lost = [
            topic_id
            for topic_id in changes.topics
            if topic_id in self.topics and image.topic_by_id(topic_id) is None
        ]
        return [self.forget(topic_id) for topic_id in lost]

    def forget(self, topic_id: bytes) -> TopicImage:
        """Remove and return a topic in its former state."""
        keys = [key for key in self.partitions if key[0] == topic_id]
        return TopicImage(
            self.topics.pop(topic_id), topic_id, {key[1]: self.partitions.pop(key) for key in keys}
        )

    def changed_brokers(self, image: MetadataImage, changes: ImageChanges) -> list[int]:
        """Store the brokers that changed, and return those that are new or different."""
        found = []
        for broker_id in changes.brokers:
            broker = image.broker(broker_id)
            if broker is None:
                self.brokers.pop(broker_id, None)
            elif self.brokers.get(broker_id) != broker:
                self.brokers[broker_id] = broker
                found.append(broker_id)
        return found


class ZookeeperPropagation:
    """The requests of the current ZooKeeper-mode controller.

    Every broker of the image is alive. One object per controller epoch.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._sent = _SentMetadata()

    def begin(self, image: MetadataImage) -> list[ToBroker]:
        """Send everything to all brokers: UpdateMetadata, then LeaderAndIsr."""
        self._sent.take(image)
        return [*self._news_of_brokers(image, _ids(image)), *self._holdings(image, _ids(image))]

    def changed(self, image: MetadataImage, changes: ImageChanges) -> list[ToBroker]:
        """Send the changes."""
        requests: list[ToBroker] = []
        if changes.brokers and not self._are_only_leaving(image, changes):
            newcomers = self._sent.changed_brokers(image, changes)
            requests += self._news_of_brokers(
                image, [broker_id for broker_id in _ids(image) if broker_id not in newcomers]
            )
            requests += self._everything(image, newcomers)
            requests += self._holdings(image, newcomers)
        requests += self._deletions(image, self._sent.deleted_topics(image, changes))
        moved = self._sent.changed_partitions(image, changes)
        for deletes in (False, True):
            requests += self._moves(image, moved, deletes=deletes)
        return requests

    def deleting(self, image: MetadataImage, topic_ids: Iterable[bytes]) -> list[ToBroker]:
        """Send the deletion of topics that are still in the image; their removal from it is not
        sent again.
        """
        return self._deletions(
            image,
            [
                self._sent.forget(topic_id)
                for topic_id in topic_ids
                if topic_id in self._sent.topics
            ],
        )

    def leaving(
        self, image: MetadataImage, broker_id: int, partitions: Iterable[TopicPartition]
    ) -> list[ToBroker]:
        """Send StopReplica, without deletion, to a broker in controlled shutdown for the partitions
        that it follows: it ceases to fetch, and does not rejoin their ISRs.
        """
        batch = self._batch(image)
        for topic, number in partitions:
            batch.add_stop_replica([broker_id], topic, number, deletes=False)
        return batch.requests()

    def resend_deletions_of(
        self, image: MetadataImage, topic_ids: Iterable[bytes], broker_ids: Collection[int]
    ) -> list[ToBroker]:
        """Send StopReplica with deletion to brokers that were not alive, for topics that are being
        deleted.
        """
        batch = self._batch(image)
        for topic in (image.topic_by_id(topic_id) for topic_id in topic_ids):
            for number, partition in sorted(topic.partitions.items()) if topic is not None else ():
                held = [replica for replica in partition.replicas if replica in broker_ids]
                batch.add_stop_replica(
                    held, "" if topic is None else topic.name, number, deletes=True, is_going=True
                )
        return batch.requests()

    def holdings(self, image: MetadataImage, broker_ids: Iterable[int]) -> list[ToBroker]:
        """Send LeaderAndIsr to brokers again: the responses name the replicas that failed."""
        return self._holdings(image, broker_ids)

    def _news_of_brokers(self, image: MetadataImage, broker_ids: Iterable[int]) -> list[ToBroker]:
        batch = self._batch(image)
        batch.add_update(broker_ids)
        return batch.requests()

    def _everything(self, image: MetadataImage, broker_ids: Iterable[int]) -> list[ToBroker]:
        batch = self._batch(image)
        batch.add_update(broker_ids, _all_partitions(image))
        return batch.requests()

    def _holdings(self, image: MetadataImage, broker_ids: Iterable[int]) -> list[ToBroker]:
        batch, wanted = self._batch(image), list(broker_ids)
        for topic in image.topics():
            for number, partition in sorted(topic.partitions.items()):
                batch.add_leader_and_isr(
                    [each for each in partition.replicas if each in wanted],
                    topic.name,
                    number,
                    is_new=False,
                )
        return batch.requests() if wanted else []

    def _moves(
        self, image: MetadataImage, moved: Sequence[Moved], *, deletes: bool
    ) -> list[ToBroker]:
        """Send leader changes; removed replicas are stopped in a first round and deleted in a
        second.
        """
        batch = self._batch(image)
        for topic, number, partition, before in moved:
            if not deletes:
                self._add_change(batch, topic, number, partition, before)
            removed = (
                []
                if before is None
                else [each for each in before.replicas if each not in partition.replicas]
            )
            batch.add_stop_replica(removed, topic, number, deletes=deletes)
        return batch.requests()

    def _add_change(
        self,
        batch: RequestBatch,
        topic: str,
        number: int,
        partition: PartitionRegistration,
        before: PartitionRegistration | None,
    ) -> None:
        """Send LeaderAndIsr to the replicas on a new leader epoch or assignment; UpdateMetadata
        with all changes goes to all brokers.
        """
        batch.add_update(batch.all_brokers(), [(topic, number)])
        if before is None:
            batch.add_leader_and_isr(partition.replicas, topic, number, is_new=True)
            return
        added = [each for each in partition.replicas if each not in before.replicas]
        if (
            partition.leader_epoch != before.leader_epoch
            or added
            or partition.is_reassigning != before.is_reassigning
        ):
            batch.add_leader_and_isr(
                [
                    each
                    for each in partition.replicas
                    if each not in added and (each == before.leader or not self._leaves(each))
                ],
                topic,
                number,
                is_new=False,
            )
            batch.add_leader_and_isr(added, topic, number, is_new=True)

    def _leaves(self, broker_id: int) -> bool:
        """Return whether a broker is in controlled shutdown: it gets LeaderAndIsr for the
        partitions alone whose leadership moves away from it.
        """
        broker = self._sent.brokers.get(broker_id)
        return broker is not None and broker.in_controlled_shutdown

    def _are_only_leaving(self, image: MetadataImage, changes: ImageChanges) -> bool:
        """Store the changes of brokers and return True, if they have but begun their controlled
        shutdown: no broker is notified.
        """
        for broker_id in changes.brokers:
            before, after = self._sent.brokers.get(broker_id), image.broker(broker_id)
            if before is None or after is None:
                return False
            if replace(before, in_controlled_shutdown=after.in_controlled_shutdown) != after:
                return False
        self._sent.changed_brokers(image, changes)
        return True

    def _deletions(self, image: MetadataImage, topics: Sequence[TopicImage]) -> list[ToBroker]:
        requests: list[ToBroker] = []
        for deletes in (False, True):
            batch, gone = self._batch(image), {}
            for topic in topics:
                gone[topic.name] = topic.topic_id
                for number, partition in sorted(topic.partitions.items()):
                    if not deletes:
                        batch.add_deletion(
                            batch.all_brokers(),
                            topic.name,
                            number,
                            _deleted(image, number, partition, self._sender.controller_epoch),
                        )
                    batch.add_stop_replica(
                        partition.replicas, topic.name, number, deletes=deletes, is_going=True
                    )
            requests += batch.requests(gone)
        return requests

    def _batch(self, image: MetadataImage) -> RequestBatch:
        return RequestBatch(image, self._sender, _ids(image))


class KraftPropagation:
    """The requests of a KRaft controller to brokers in ZooKeeper mode: those registered as
    migrating and unfenced.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._sent = _SentMetadata()

    def begin(self, image: MetadataImage) -> list[ToBroker]:
        """Send everything: UpdateMetadata with all partitions, then a full LeaderAndIsr to each
        broker.
        """
        self._sent.take(image)
        batch = self._batch(image)
        batch.add_update(_migrating(image), _all_partitions(image))
        requests = batch.requests()
        batch = self._batch(image, FULL_REQUEST)
        for topic, number in _all_partitions(image):
            batch.add_leader_and_isr(_replicas(image, topic, number), topic, number, is_new=True)
        return [*requests, *batch.requests()]

    def changed(self, image: MetadataImage, changes: ImageChanges) -> list[ToBroker]:
        """Send the changes: brokers first, then partitions."""
        if not (changes.brokers or changes.topics or changes.partitions):
            return []
        newcomers = [
            broker_id
            for broker_id in self._sent.changed_brokers(image, changes)
            if broker_id in _migrating(image)
        ]
        others = [broker_id for broker_id in _migrating(image) if broker_id not in newcomers]
        batch = self._batch(image)
        if newcomers:
            batch.add_update(newcomers, _all_partitions(image))
        if changes.brokers:
            batch.add_update(others)
        return [*batch.requests(), *self._changed_partitions(image, changes, newcomers, others)]

    def _changed_partitions(
        self, image: MetadataImage, changes: ImageChanges, newcomers: list[int], others: list[int]
    ) -> list[ToBroker]:
        batch, topic_ids = self._batch(image, INCREMENTAL_REQUEST), {}
        for topic, number in _all_partitions(image) if newcomers else ():
            held = [replica for replica in _replicas(image, topic, number) if replica in newcomers]
            if held:
                batch.add_leader_and_isr(held, topic, number, is_new=True)
        if changes.topics or changes.partitions:
            batch.add_update(others)
        for gone in self._sent.deleted_topics(image, changes):
            topic_ids[gone.name] = gone.topic_id
            for number, partition in sorted(gone.partitions.items()):
                batch.add_stop_replica(
                    partition.replicas, gone.name, number, deletes=True, is_going=True
                )
                batch.add_deletion(
                    others,
                    gone.name,
                    number,
                    _deleted(image, number, partition, self._sender.controller_epoch),
                )
        for topic, number, partition, before in self._sent.changed_partitions(image, changes):
            batch.add_leader_and_isr(partition.replicas, topic, number, is_new=True)
            removed = (
                []
                if before is None
                else [each for each in before.replicas if each not in partition.replicas]
            )
            if removed:
                batch.add_stop_replica(removed, topic, number, deletes=True)
        return batch.requests(topic_ids)

    def _batch(self, image: MetadataImage, request_type: int = 0) -> RequestBatch:
        return RequestBatch(image, self._sender, _migrating(image), request_type)


def migrating_brokers(image: MetadataImage) -> Mapping[int, BrokerRegistration]:
    """Return the brokers in ZooKeeper mode that are unfenced, which a KRaft controller sends
    requests to.
    """
    return {
        broker.broker_id: broker
        for broker in image.brokers()
        if broker.is_migrating_zk_broker and not broker.fenced
    }


def _migrating(image: MetadataImage) -> list[int]:
    return list(migrating_brokers(image))


def _ids(image: MetadataImage) -> list[int]:
    return [broker.broker_id for broker in image.brokers()]


def _all_partitions(image: MetadataImage) -> Iterator[TopicPartition]:
    return ((topic.name, number) for topic in image.topics() for number in sorted(topic.partitions))


def _replicas(image: MetadataImage, topic: str, number: int) -> tuple[int, ...]:
    partition = image.partition(topic, number)
    assert partition is not None, "the partition is in the image"
    return partition.replicas


def _deleted(
    image: MetadataImage, number: int, partition: PartitionRegistration, controller_epoch: int
) -> UpdateMetadataPartitionState:
    """Return the UpdateMetadata state of a partition whose topic is deleted.

    As in 3.4 to 3.9 the offline replicas include online ones.
    """
    return UpdateMetadataPartitionState(
        partition_index=number,
        controller_epoch=controller_epoch,
        leader=LEADER_DURING_DELETE,
        leader_epoch=0,
        isr=list(partition.isr),
        zk_version=0,
        replicas=list(partition.replicas),
        offline_replicas=[
            replica for replica in partition.replicas if image.broker(replica) is not None
        ],
    )
