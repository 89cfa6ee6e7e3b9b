"""The requests of a controller to its brokers, LeaderAndIsr, UpdateMetadata and StopReplica: their
versions, their batching, and the ids of topics that have none.

Source: kafka.controller.{AbstractControllerBrokerRequestBatch, ControllerChannelContext} (2.3, 3.0,
3.9); KIP-516, KIP-866.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Final, TypeAlias, TypeVar

from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_registrations import BrokerRegistration, PartitionRegistration
from kraftsim.metadata.rules_versions import BEFORE_KRAFT, METADATA_VERSIONS
from protocol.messages.k04_leader_and_isr import (
    UNKNOWN_REQUEST_TYPE,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.k05_stop_replica import (
    LEADER_EPOCH_DURING_DELETE,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from protocol.messages.k06_update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from protocol.uuids import ZERO_UUID

# --------------------------------------------------------------------------------------------------
# The versions, by inter.broker.protocol.version or, from KRaft, by metadata.version


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestVersions:
    """The request versions; they are not negotiated."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int


SINCE: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "leader_and_isr": (
        ("3.4-IV0", 7),
        ("3.2-IV0", 6),
        ("2.8-IV1", 5),
        ("2.4-IV1", 4),
        ("2.4-IV0", 3),
        ("2.2-IV0", 2),
    ),
    "update_metadata": (("3.4-IV0", 8), ("2.8-IV1", 7), ("2.4-IV1", 6), ("2.2-IV0", 5)),
    "stop_replica": (("3.4-IV0", 4), ("2.6-IV0", 3), ("2.4-IV1", 2), ("2.2-IV0", 1)),
}
"""Level -> version from this level on, newest first; levels before 2.2-IV0 are not supported."""


@cache
def request_versions(level: str) -> RequestVersions:
    """Return the versions for a level: 2.8-IV1, or 2.8 for the last one of a release.

    Raises ValueError.
    """
    present = _place(level)
    found = {
        name: next((version for since, version in rows if _place(since) <= present), None)
        for name, rows in SINCE.items()
    }
    leader_and_isr, update_metadata, stop_replica = (found[name] for name in SINCE)
    if leader_and_isr is None or update_metadata is None or stop_replica is None:
        raise ValueError(f"unsupported inter.broker.protocol.version {level}")
    return RequestVersions(
        leader_and_isr=leader_and_isr, update_metadata=update_metadata, stop_replica=stop_replica
    )


def _place(level: str) -> int:
    """Return the index of a level. Raises ValueError."""
    known = [*BEFORE_KRAFT.split(), *(version.name for version in METADATA_VERSIONS.values())]
    places = [place for place, name in enumerate(known) if level in (name, name.partition("-")[0])]
    if not places:
        raise ValueError(f"{level} is not a valid level")
    return places[-1]


# --------------------------------------------------------------------------------------------------
# Pending requests: collected per broker, then one LeaderAndIsr, UpdateMetadata and StopReplica for
# each, in this order
#
# A partition in a LeaderAndIsr request is sent to every broker in UpdateMetadata as well.

State = TypeVar("State")
ControlRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
TopicPartition: TypeAlias = tuple[str, int]
FIRST_WITH_TYPE: Final = 5
FIRST_WITH_RECOVERY: Final = 6
FIRST_WITH_PARTITION_STATES: Final = 3
FIRST_UPDATE_WITH_TYPE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The sending controller, and its request versions.

    `controller_epoch` is that of /controller_epoch; `decided_in` returns the controller epoch of a
    partition state: per partition for a ZooKeeper-mode controller, the quorum epoch for a KRaft
    one. `listener` is the inter-broker listener. `reported_topic_id` returns the topic id to send.
    """

    controller_id: int
    controller_epoch: int
    is_kraft: bool
    listener: str
    versions: RequestVersions
    decided_in: Callable[[str, int], int]
    reported_topic_id: Callable[[bytes, str], bytes] = lambda topic_id, name: topic_id


@dataclass(frozen=True, slots=True)
class ToBroker:
    """A request to a broker, in its version."""

    broker_id: int
    request: ControlRequest
    version: int


class RequestBatch:
    """One batch for an image.

    `recipients` are the reachable brokers, `request_type` is the type of LeaderAndIsr and
    UpdateMetadata.
    """

    def __init__(
        self,
        image: MetadataImage,
        sender: Sender,
        recipients: Iterable[int],
        request_type: int = UNKNOWN_REQUEST_TYPE,
    ) -> None:
        self._image = image
        self._sender = sender
        self._recipients = sorted(recipients)
        self._request_type = request_type
        self._leader_and_isr: dict[int, dict[TopicPartition, LeaderAndIsrPartitionState]] = {}
        self._stop_replica: dict[int, dict[TopicPartition, StopReplicaPartitionState]] = {}
        self._updated: dict[int, None] = {}
        self._update_states: dict[TopicPartition, UpdateMetadataPartitionState] = {}

    def add_leader_and_isr(
        self, broker_ids: Iterable[int], topic: str, number: int, *, is_new: bool
    ) -> None:
        """Add a partition to the LeaderAndIsr of brokers, and to the UpdateMetadata of all.

        Once new, a partition stays so within a batch.
        """
        partition = self._image.partition(topic, number)
        assert partition is not None, f"{topic}-{number} does not exist"
        for broker_id in broker_ids:
            states = self._leader_and_isr.setdefault(broker_id, {})
            before = states.get((topic, number))
            states[topic, number] = self._leader_and_isr_state(
                topic, number, partition, is_new=is_new or (before is not None and before.is_new)
            )
        self.add_update(self.all_brokers(), [(topic, number)])

    def add_stop_replica(
        self,
        broker_ids: Iterable[int],
        topic: str,
        number: int,
        *,
        deletes: bool,
        is_going: bool = False,
    ) -> None:
        """Add a replica to the StopReplica of brokers.

        The leader epoch of a deleted topic, or one being deleted, is that of a deletion.
        """
        partition = None if is_going else self._image.partition(topic, number)
        for broker_id in broker_ids:
            states = self._stop_replica.setdefault(broker_id, {})
            before = states.get((topic, number))
            states[topic, number] = StopReplicaPartitionState(
                partition_index=number,
                leader_epoch=LEADER_EPOCH_DURING_DELETE
                if partition is None
                else partition.leader_epoch,
                delete_partition=deletes or (before is not None and before.delete_partition),
            )

    def add_update(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Add live brokers and partition states to UpdateMetadata; each broker of the batch gets
        all of its partitions.
        """
        self._updated.update(dict.fromkeys(broker_ids))
        for topic, number in partitions:
            partition = self._image.partition(topic, number)
            if partition is not None:
                self._update_states[topic, number] = self._update_state(topic, number, partition)

    def add_deletion(
        self,
        broker_ids: Iterable[int],
        topic: str,
        number: int,
        state: UpdateMetadataPartitionState,
    ) -> None:
        """Add a partition without leader because of deletion to UpdateMetadata."""
        self._updated.update(dict.fromkeys(broker_ids))
        self._update_states[topic, number] = state

    def all_brokers(self) -> list[int]:
        """Return all registered brokers, fenced or not."""
        return [broker.broker_id for broker in self._image.brokers()]

    def requests(self, topic_ids: Mapping[str, bytes] | None = None) -> list[ToBroker]:
        """Return the requests, in this order for each broker.

        `topic_ids` are those of topics that are not in the image any more.
        """
        known = self._topic_ids(topic_ids or {})
        requests = [
            request
            for broker_id in self._recipients
            for request in self._leader_and_isr_requests(broker_id, known)
        ]
        requests += [
            request
            for broker_id in self._recipients
            if broker_id in self._updated
            for request in self._update_requests(broker_id, known)
        ]
        return requests + [
            request for broker_id in self._recipients for request in self._stop_requests(broker_id)
        ]

    # LeaderAndIsr
    # ----------------------------------------------------------------------------------------------

    def _leader_and_isr_state(
        self, topic: str, number: int, partition: PartitionRegistration, *, is_new: bool
    ) -> LeaderAndIsrPartitionState:
        says_recovery = self._sender.versions.leader_and_isr >= FIRST_WITH_RECOVERY
        return LeaderAndIsrPartitionState(
            partition_index=number,
            controller_epoch=self._sender.decided_in(topic, number),
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            partition_epoch=partition.partition_epoch,
            replicas=list(partition.replicas),
            adding_replicas=list(partition.adding_replicas),
            removing_replicas=list(partition.removing_replicas),
            is_new=is_new,
            leader_recovery_state=partition.leader_recovery_state if says_recovery else 0,
        )

    def _leader_and_isr_requests(
        self, broker_id: int, topic_ids: Mapping[str, bytes]
    ) -> list[ToBroker]:
        states = self._leader_and_isr.get(broker_id)
        if not states:
            return []
        sender = self._sender
        leaders = sorted({state.leader for state in states.values()})
        live = (broker for broker in map(self._image.broker, leaders) if broker is not None)
        version = sender.versions.leader_and_isr
        request = LeaderAndIsrRequest(
            controller_id=sender.controller_id,
            is_kraft_controller=sender.is_kraft,
            controller_epoch=sender.controller_epoch,
            broker_epoch=self._broker_epoch(broker_id),
            type=self._request_type if version >= FIRST_WITH_TYPE else UNKNOWN_REQUEST_TYPE,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name=name, topic_id=topic_ids[name], partition_states=list(found)
                )
                for name, found in _by_topic(states).items()
            ],
            live_leaders=[leader for broker in live for leader in self._live_leader(broker)],
        )
        return [ToBroker(broker_id, request, version)]

    def _live_leader(self, broker: BrokerRegistration) -> list[LeaderAndIsrLiveLeader]:
        listener = broker.listener(self._sender.listener)
        return (
            []
            if listener is None
            else [
                LeaderAndIsrLiveLeader(
                    broker_id=broker.broker_id, host_name=listener.host, port=listener.port
                )
            ]
        )

    # UpdateMetadata
    # ----------------------------------------------------------------------------------------------

    def _update_state(
        self, topic: str, number: int, partition: PartitionRegistration
    ) -> UpdateMetadataPartitionState:
        return UpdateMetadataPartitionState(
            partition_index=number,
            controller_epoch=self._sender.decided_in(topic, number),
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            zk_version=partition.partition_epoch,
            replicas=list(partition.replicas),
            offline_replicas=[
                replica for replica in partition.replicas if self._image.broker(replica) is None
            ],
        )

    def _update_requests(self, broker_id: int, topic_ids: Mapping[str, bytes]) -> list[ToBroker]:
        sender = self._sender
        version = sender.versions.update_metadata
        request = UpdateMetadataRequest(
            controller_id=sender.controller_id,
            is_kraft_controller=sender.is_kraft,
            type=self._request_type if version >= FIRST_UPDATE_WITH_TYPE else UNKNOWN_REQUEST_TYPE,
            controller_epoch=sender.controller_epoch,
            broker_epoch=self._broker_epoch(broker_id),
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name=name, topic_id=topic_ids[name], partition_states=list(found)
                )
                for name, found in _by_topic(self._update_states).items()
            ],
            live_brokers=[_live_broker(broker) for broker in self._image.brokers()],
        )
        return [ToBroker(broker_id, request, version)]

    # StopReplica
    # ----------------------------------------------------------------------------------------------

    def _stop_requests(self, broker_id: int) -> list[ToBroker]:
        states = self._stop_replica.get(broker_id)
        if not states:
            return []
        if self._sender.versions.stop_replica >= FIRST_WITH_PARTITION_STATES:
            topics = [
                StopReplicaTopicState(topic_name=name, partition_states=list(found))
                for name, found in _by_topic(states).items()
            ]
            return [self._stop_request(broker_id, topic_states=topics)]
        requests = []
        for deletes in (True, False):  # before 2.6-IV0 deletion is a field of the whole request
            some = {
                key: state for key, state in states.items() if state.delete_partition is deletes
            }
            old = [
                StopReplicaTopicV1(
                    name=name, partition_indexes=[state.partition_index for state in found]
                )
                for name, found in _by_topic(some).items()
            ]
            if old:
                requests.append(self._stop_request(broker_id, deletes=deletes, topics=old))
        return requests

    def _stop_request(
        self,
        broker_id: int,
        *,
        deletes: bool = False,
        topics: Sequence[StopReplicaTopicV1] = (),
        topic_states: Sequence[StopReplicaTopicState] = (),
    ) -> ToBroker:
        sender = self._sender
        request = StopReplicaRequest(
            controller_id=sender.controller_id,
            is_kraft_controller=sender.is_kraft,
            controller_epoch=sender.controller_epoch,
            broker_epoch=self._broker_epoch(broker_id),
            delete_partitions=deletes,
            topics=list(topics),
            topic_states=list(topic_states),
        )
        return ToBroker(broker_id, request, sender.versions.stop_replica)

    # Recipients and contents
    # ------------------------------------------------------------------------------------------

    def _broker_epoch(self, broker_id: int) -> int:
        broker = self._image.broker(broker_id)
        assert broker is not None, f"broker {broker_id} is not registered"
        return broker.broker_epoch

    def _topic_ids(self, gone: Mapping[str, bytes]) -> dict[str, bytes]:
        states = [key for requests in self._leader_and_isr.values() for key in requests] + list(
            self._update_states
        )
        found = {}
        for name in dict.fromkeys(topic for topic, _ in states):
            topic = self._image.topic(name)
            topic_id = gone[name] if topic is None else topic.topic_id
            found[name] = self._sender.reported_topic_id(topic_id, name)
        return found


def _live_broker(broker: BrokerRegistration) -> UpdateMetadataBroker:
    endpoints = [
        UpdateMetadataEndpoint(
            port=each.port,
            host=each.host,
            listener=each.name,
            security_protocol=each.security_protocol,
        )
        for each in broker.listeners
    ]
    return UpdateMetadataBroker(id=broker.broker_id, endpoints=endpoints, rack=broker.rack)


def _by_topic(states: Mapping[TopicPartition, State]) -> dict[str, list[State]]:
    """Return topic -> states, both in order of insertion."""
    found: dict[str, list[State]] = {}
    for (topic, _), state in states.items():
        found.setdefault(topic, []).append(state)
    return found


# --------------------------------------------------------------------------------------------------
# Ids for topics without one: below inter.broker.protocol.version 2.8 topics have names only
#
# A broker's image is keyed by ids, so such a topic gets one derived from its name; it is not sent
# to other nodes and not written to disk.

_MARK: Final = b"\xfdNONE"
"""The prefix of derived ids, not expected in a random uuid.

The uuid version, in the seventh byte, comes after it.
"""
UUID_BYTES: Final = 16


def derived_topic_id(name: str) -> bytes:
    """Return the derived id of a topic without one."""
    return _MARK + sha256(name.encode()).digest()[: UUID_BYTES - len(_MARK)]


def is_derived(topic_id: bytes) -> bool:
    """Return whether an id is a derived one."""
    return topic_id.startswith(_MARK)


def reported_topic_id(topic_id: bytes) -> bytes:
    """Return the id to send to others: zeros for a derived one."""
    return ZERO_UUID if is_derived(topic_id) else topic_id
