"""The requests of a ZooKeeper-mode controller to a broker, as metadata records: brokers use the
same image in both modes.

UpdateMetadata has the cluster's state, LeaderAndIsr the partitions that this broker leads and
follows, StopReplica those that it stops. Requests of a deposed controller, or for an earlier
incarnation of this broker, are refused.
Source: kafka.server.{KafkaApis, ReplicaManager.becomeLeaderOrFollower,
ReplicaManager.stopReplicas}, ZkMetadataCache.updateMetadata (3.9).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_image import MetadataImage, TopicImage
from kraftsim.metadata.rules_registrations import (
    PartitionRegistration,
    partition_of,
    partition_record,
    registration_of,
)
from kraftsim.metadata.rules_registries import MetadataRecord
from kraftsim.metadata.rules_topic_names import why_name_is_invalid
from kraftsim.metadata.rules_versions import MetadataLevel
from kraftsim.zookeeper.rules_control_requests import derived_topic_id, is_derived
from protocol.errors import ErrorCode
from protocol.messages.k04_leader_and_isr import (
    RECOVERED,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
)
from protocol.messages.k05_stop_replica import (
    LEADER_EPOCH_DURING_DELETE,
    NO_LEADER_EPOCH,
    StopReplicaRequest,
)
from protocol.messages.k06_update_metadata import (
    LEADER_DURING_DELETE,
    PLAINTEXT,
    SASL_PLAINTEXT,
    SASL_SSL,
    SSL,
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from protocol.metadata.registrations import (
    BrokerEndpoint,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from protocol.metadata.settings import TOPIC_RESOURCE, ConfigRecord
from protocol.metadata.topics import PartitionRecord, RemoveTopicRecord, TopicRecord
from protocol.uuids import LOST_DIRECTORY_ID, MIGRATING_DIRECTORY_ID, ZERO_UUID

NO_BROKER_EPOCH: Final = -1
FULL: Final = 2
INITIAL_CONTROLLER_EPOCH: Final = 0
FIRST_WITH_DIRECTORIES: Final = 17
PROTOCOL_NAMES: Final = {
    PLAINTEXT: "PLAINTEXT",
    SSL: "SSL",
    SASL_PLAINTEXT: "SASL_PLAINTEXT",
    SASL_SSL: "SASL_SSL",
}
"""Before listeners had names their names were those of the security protocols."""
PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPartition:
    """A local partition: its current leader epoch, and the topic id of its log (None: not assigned
    yet).
    """

    leader_epoch: int
    topic_id: bytes | None
    is_offline: bool = False


LocalPartitionLookup = Callable[[str, int], LocalPartition | None]
"""The local partition of a topic and number; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataUpdate:
    """The result of a request: records for the image, and errors of single partitions.

    `adopted` has topics that get an id, which is applied before the records. `roles` are the
    partitions that this broker then leads or follows according to the image. `stopped`: other
    partitions, and whether to delete them; `keeps`: the partitions to keep (None: all).
    """

    records: list[MetadataRecord] = field(default_factory=list)
    adopted: dict[str, bytes] = field(default_factory=dict)
    roles: dict[PartitionKey, None] = field(default_factory=dict)
    stopped: dict[PartitionKey, bool] = field(default_factory=dict)
    keeps: frozenset[PartitionKey] | None = None
    answers: dict[PartitionKey, ErrorCode] = field(default_factory=dict)
    named: dict[bytes, str] = field(default_factory=dict)
    """The topics that this request names by an id."""

    def id_for(self, name: str, received_id: bytes, image: MetadataImage) -> bytes:
        """Return the id that a request has for a topic, or zeros if another topic has the same one.

        No controller reuses an id, but any client with CLUSTER_ACTION can send this request. The
        image keeps topics by id, where Kafka's metadata cache keeps them by name: a second name
        under one id would overwrite the first.
        """
        if received_id == ZERO_UUID:
            return received_id
        present = image.topic_by_id(received_id)
        is_free = (present is None or present.name == name) and self.named.get(
            received_id, name
        ) == name
        if is_free:
            self.named[received_id] = name
        return received_id if is_free else ZERO_UUID


class ReceivedMetadata:
    """A broker's state of the controllers that have sent requests.

    Each method handles one request; only the controller epoch is kept.

    `deletes_what_is_missing`: a migrating broker handles a full LeaderAndIsr as such (KIP-866).
    """

    def __init__(
        self, broker_id: int, incarnation_id: bytes, *, deletes_what_is_missing: bool = False
    ) -> None:
        self._broker_id = broker_id
        self._incarnation_id = incarnation_id
        self._deletes_what_is_missing = deletes_what_is_missing
        self.controller_epoch = INITIAL_CONTROLLER_EPOCH
        self.controller_id: int | None = None
        """The id of the last controller that sent UpdateMetadata; None before the first."""
        self.is_kraft_controller = False

    # UpdateMetadata
    # ----------------------------------------------------------------------------------------------

    def update(
        self, request: UpdateMetadataRequest, image: MetadataImage
    ) -> MetadataUpdate | Refusal:
        """Handle UpdateMetadata. Fails with STALE_CONTROLLER_EPOCH."""
        refusal = self._listen(request.controller_epoch)
        if refusal is not None:
            return refusal
        self.controller_id = request.controller_id if request.controller_id >= 0 else None
        self.is_kraft_controller = request.is_kraft_controller
        result = MetadataUpdate()
        result.records.extend(self._brokers(request.live_brokers, image))
        topics = _updated_topics(request)
        if request.is_kraft_controller and request.type == FULL and self._deletes_what_is_missing:
            result.records.extend(
                RemoveTopicRecord(topic_id=topic.topic_id)
                for topic in image.topics()
                if topic.name not in topics
            )
        for name, (requested_id, states) in topics.items():
            self._update_topic(
                name, result.id_for(name, requested_id, image), states, image, result
            )
        return result

    def _brokers(
        self, live: list[UpdateMetadataBroker], image: MetadataImage
    ) -> Iterator[MetadataRecord]:
        """Yield the changed brokers: a broker that is not listed is not alive."""
        named = {broker.id: None for broker in live}
        for broker in list(image.brokers()):
            if broker.broker_id not in named:
                yield UnregisterBrokerRecord(
                    broker_id=broker.broker_id, broker_epoch=broker.broker_epoch
                )
        for each in live:
            record = self._registration(each)
            if image.broker(each.id) != registration_of(record):
                yield record

    def _registration(self, broker: UpdateMetadataBroker) -> RegisterBrokerRecord:
        """Return the registration of a live broker.

        The request has no epoch and incarnation; only this broker's own are known.
        """
        end_points = [
            BrokerEndpoint(
                name=each.listener or PROTOCOL_NAMES.get(each.security_protocol, "PLAINTEXT"),
                host=each.host,
                port=each.port,
                security_protocol=each.security_protocol,
            )
            for each in broker.endpoints
        ]
        if not end_points:
            end_points = [
                BrokerEndpoint(
                    name="PLAINTEXT",
                    host=broker.v0_host,
                    port=broker.v0_port,
                    security_protocol=PLAINTEXT,
                )
            ]
        return RegisterBrokerRecord(
            broker_id=broker.id,
            incarnation_id=self._incarnation_id if broker.id == self._broker_id else ZERO_UUID,
            broker_epoch=NO_BROKER_EPOCH,
            end_points=end_points,
            rack=broker.rack,
            fenced=False,
        )

    def _update_topic(
        self,
        name: str,
        requested_id: bytes,
        states: Mapping[int, UpdateMetadataPartitionState],
        image: MetadataImage,
        result: MetadataUpdate,
    ) -> None:
        gone = frozenset(
            partition for partition, state in states.items() if state.leader == LEADER_DURING_DELETE
        )
        there = {partition: state for partition, state in states.items() if partition not in gone}
        known = image.topic(name)
        if (
            known is not None
            and requested_id not in (ZERO_UUID, known.topic_id)
            and not is_derived(known.topic_id)
        ):
            result.records.append(
                RemoveTopicRecord(topic_id=known.topic_id)
            )  # another topic with the same name
            known = None
        if known is not None and requested_id not in (ZERO_UUID, known.topic_id):
            result.adopted[name] = requested_id
            known = replace(
                known, topic_id=requested_id
            )  # adopted before the records below are applied
        if known is not None and gone:
            result.records.extend(_without(known, gone, image))
            if gone.issuperset(known.partitions):
                known = None
        if not there:
            return
        topic_id = self._named(name, requested_id, known, result)
        for partition, state in there.items():
            present = None if known is None else known.partitions.get(partition)
            if present is None or state.leader_epoch >= present.leader_epoch:
                record = _updated_partition(topic_id, state, present)
                if present is None or partition_of(record) != present:
                    result.records.append(record)

    @staticmethod
    def _named(
        name: str, requested_id: bytes, known: TopicImage | None, result: MetadataUpdate
    ) -> bytes:
        """Return the id of a topic in the image, existing or new."""
        if known is None:
            topic_id = requested_id if requested_id != ZERO_UUID else derived_topic_id(name)
            result.records.append(TopicRecord(name=name, topic_id=topic_id))
            return topic_id
        if requested_id not in (ZERO_UUID, known.topic_id):
            result.adopted[name] = requested_id
            return requested_id
        return known.topic_id

    # LeaderAndIsr
    # ----------------------------------------------------------------------------------------------

    def apply_leader_and_isr(
        self, request: LeaderAndIsrRequest, image: MetadataImage, held: LocalPartitionLookup
    ) -> MetadataUpdate | Refusal:
        """Handle LeaderAndIsr. Fails as a whole with STALE_CONTROLLER_EPOCH.

        Partition errors: KAFKA_STORAGE_ERROR, INCONSISTENT_TOPIC_ID, STALE_CONTROLLER_EPOCH for an
        old leader epoch, UNKNOWN_TOPIC_OR_PARTITION if this broker is not a replica,
        INVALID_TOPIC_EXCEPTION for an invalid topic name, which could place the log directory
        anywhere (`../x`).
        """
        refusal = self._listen(request.controller_epoch)
        if refusal is not None:
            return refusal
        named = list(_appointed(request))
        is_full = (
            request.is_kraft_controller and request.type == FULL and self._deletes_what_is_missing
        )
        result = MetadataUpdate(
            keeps=frozenset((name, state.partition_index) for name, _, state in named)
            if is_full
            else None
        )
        new: dict[str, bytes] = {}
        for name, requested_id, state in named:
            error: ErrorCode | None = ErrorCode.INVALID_TOPIC_EXCEPTION
            local = None
            if why_name_is_invalid(name) is None:
                local = held(name, state.partition_index)
                error = self._check_state(
                    requested_id, state, local, is_kraft=request.is_kraft_controller
                )
            result.answers[name, state.partition_index] = error or ErrorCode.NONE
            if error is None and self.is_behind(state, local, image.topic(name)):
                continue
            topic_id = (
                result.id_for(name, requested_id, image)
                if error in (None, ErrorCode.NONE)
                else ZERO_UUID
            )
            if error is None:
                self._appoint_one(name, topic_id, state, image, result, new)
            elif error is ErrorCode.NONE and topic_id != ZERO_UUID:
                result.adopted[name] = topic_id
        return result

    def _check_state(
        self,
        requested_id: bytes,
        state: LeaderAndIsrPartitionState,
        held: LocalPartition | None,
        *,
        is_kraft: bool,
    ) -> ErrorCode | None:
        """Return the error of a partition; None if it has to be applied, NONE if only its topic id
        is new.
        """
        if held is not None and held.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        known_id = (
            None
            if held is None or held.topic_id is None or is_derived(held.topic_id)
            else held.topic_id
        )
        if requested_id != ZERO_UUID and known_id not in (None, requested_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        # a replica that does not exist yet is in epoch -1, so its first epoch is 0 or later
        epoch = NO_LEADER_EPOCH if held is None else held.leader_epoch
        takes_same = held is not None and self.takes_same_epoch(is_kraft=is_kraft)
        if state.leader_epoch > epoch or (takes_same and state.leader_epoch == epoch):
            return (
                None if self._broker_id in state.replicas else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        if (
            held is not None
            and state.leader_epoch == epoch
            and requested_id != ZERO_UUID
            and known_id is None
        ):
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def is_behind(
        self,
        state: LeaderAndIsrPartitionState,
        held: LocalPartition | None,
        topic: TopicImage | None,
    ) -> bool:
        """Return whether this replica knows a later change in the same leader epoch: then a request
        that comes late changes nothing, and is answered without an error.

        Source: kafka.cluster.Partition.{makeLeader, makeFollower}.
        """
        known = None if topic is None else topic.partitions.get(state.partition_index)
        return (
            held is not None
            and known is not None
            and held.leader_epoch == known.leader_epoch == state.leader_epoch
            and known.partition_epoch > state.partition_epoch
        )

    def takes_same_epoch(self, *, is_kraft: bool) -> bool:
        """Return whether an update of a partition may have the same leader epoch.

        A KRaft controller changes the ISR, and with it the partition epoch, without bumping the
        leader epoch (KAFKA-15109).
        """
        return is_kraft

    def _appoint_one(
        self,
        name: str,
        requested_id: bytes,
        state: LeaderAndIsrPartitionState,
        image: MetadataImage,
        result: MetadataUpdate,
        new: dict[str, bytes],
    ) -> None:
        known = image.topic(name)
        if (
            known is not None
            and requested_id not in (ZERO_UUID, known.topic_id)
            and not is_derived(known.topic_id)
            and name not in new
        ):
            result.records.append(RemoveTopicRecord(topic_id=known.topic_id))
            new[name] = self._named(name, requested_id, None, result)
        if name not in new:
            new[name] = self._named(name, requested_id, known, result)
        result.records.append(_appointed_partition(new[name], state))
        result.roles[name, state.partition_index] = None

    # StopReplica
    # ----------------------------------------------------------------------------------------------

    def stop(
        self, request: StopReplicaRequest, held: LocalPartitionLookup
    ) -> MetadataUpdate | Refusal:
        """Handle StopReplica. Fails as a whole with STALE_CONTROLLER_EPOCH.

        Partition errors: KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH for an old leader epoch. A
        partition that does not exist is already stopped.
        """
        refusal = self._listen(request.controller_epoch)
        if refusal is not None:
            return refusal
        result = MetadataUpdate()
        for key, leader_epoch, is_deleted in _stopped(request):
            if why_name_is_invalid(key[0]) is not None:
                result.answers[key] = (
                    ErrorCode.NONE
                    # there is no such partition, and the directory of that name is not a log
                    # (`../x`)
                )
                continue
            present = held(*key)
            unchecked = leader_epoch in (NO_LEADER_EPOCH, LEADER_EPOCH_DURING_DELETE)
            if present is not None and present.is_offline:
                result.answers[key] = ErrorCode.KAFKA_STORAGE_ERROR
            elif present is not None and not unchecked and leader_epoch < present.leader_epoch:
                result.answers[key] = ErrorCode.FENCED_LEADER_EPOCH
            else:
                result.answers[key] = ErrorCode.NONE
                result.stopped[key] = is_deleted
        return result

    def _listen(self, controller_epoch: int) -> Refusal | None:
        """Record the controller epoch, unless a later one is known."""
        if controller_epoch < self.controller_epoch:
            return Refusal(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"controller epoch {controller_epoch} is stale, the current one is "
                f"{self.controller_epoch}",
            )
        self.controller_epoch = controller_epoch
        return None


def refuse_broker_epoch(requested: int, own: int) -> Refusal | None:
    """Return STALE_BROKER_EPOCH for a request to an earlier incarnation of this broker; a later
    epoch is accepted.
    """
    if requested != NO_BROKER_EPOCH and requested < own:
        return Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker epoch {requested} is stale, the current one is {own}",
        )
    return None


def _without(topic: TopicImage, gone: frozenset[int], image: MetadataImage) -> list[MetadataRecord]:
    """Return the records that remove some partitions of a topic: Kafka can only delete whole
    topics, so the others are added again.
    """
    records: list[MetadataRecord] = [RemoveTopicRecord(topic_id=topic.topic_id)]
    if gone.issuperset(topic.partitions):
        return records
    records.append(TopicRecord(name=topic.name, topic_id=topic.topic_id))
    level = MetadataLevel(FIRST_WITH_DIRECTORIES)  # so that the records have failed directories
    records.extend(
        partition_record(topic.topic_id, number, partition, level)
        for number, partition in topic.partitions.items()
        if number not in gone
    )
    configs = image.topic_configs(topic.name)
    records.extend(
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=key, value=value)
        for key, value in configs.items()
    )
    return records


def _updated_topics(
    request: UpdateMetadataRequest,
) -> dict[str, tuple[bytes, dict[int, UpdateMetadataPartitionState]]]:
    """Return topic -> (id, partition -> state), in the order of the request."""
    topics: dict[str, tuple[bytes, dict[int, UpdateMetadataPartitionState]]] = {}
    for topic in request.topic_states:
        topics[topic.topic_name] = (
            topic.topic_id,
            {state.partition_index: state for state in topic.partition_states},
        )
    for state in request.ungrouped_partition_states:
        topics.setdefault(state.topic_name, (ZERO_UUID, {}))[1][state.partition_index] = state
    return topics


def _updated_partition(
    topic_id: bytes, state: UpdateMetadataPartitionState, present: PartitionRegistration | None
) -> PartitionRecord:
    """Return a partition of UpdateMetadata; fields that only LeaderAndIsr has are kept while the
    replicas are unchanged.
    """
    offline = state.offline_replicas
    is_same = present is not None and present.replicas == tuple(state.replicas)
    return PartitionRecord(
        partition_id=state.partition_index,
        topic_id=topic_id,
        replicas=list(state.replicas),
        isr=list(state.isr),
        removing_replicas=list(present.removing_replicas)
        if present is not None and is_same
        else [],
        adding_replicas=list(present.adding_replicas) if present is not None and is_same else [],
        leader=state.leader,
        leader_recovery_state=present.leader_recovery_state
        if present is not None and present.leader_epoch == state.leader_epoch
        else RECOVERED,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.zk_version,
        directories=[
            LOST_DIRECTORY_ID if each in offline else MIGRATING_DIRECTORY_ID
            for each in state.replicas
        ]
        if offline
        else [],
    )


def _appointed(
    request: LeaderAndIsrRequest,
) -> Iterator[tuple[str, bytes, LeaderAndIsrPartitionState]]:
    """Yield (topic, its id or zeros, state), from a request of any version."""
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, topic.topic_id, state
    for state in request.ungrouped_partition_states:
        yield state.topic_name, ZERO_UUID, state


def _appointed_partition(topic_id: bytes, state: LeaderAndIsrPartitionState) -> PartitionRecord:
    return PartitionRecord(
        partition_id=state.partition_index,
        topic_id=topic_id,
        replicas=list(state.replicas),
        isr=list(state.isr),
        removing_replicas=list(state.removing_replicas),
        adding_replicas=list(state.adding_replicas),
        leader=state.leader,
        leader_recovery_state=state.leader_recovery_state,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
    )


def _stopped(request: StopReplicaRequest) -> Iterator[tuple[PartitionKey, int, bool]]:
    """Yield (partition, leader epoch, whether it is to be deleted), from a request of any
    version.
    """
    for old in request.ungrouped_partitions:
        yield (old.topic_name, old.partition_index), NO_LEADER_EPOCH, request.delete_partitions
    for topic in request.topics:
        for number in topic.partition_indexes:
            yield (topic.name, number), NO_LEADER_EPOCH, request.delete_partitions
    for each in request.topic_states:
        for state in each.partition_states:
            yield (
                (each.topic_name, state.partition_index),
                state.leader_epoch,
                state.delete_partition,
            )
