"""What a controller of ZooKeeper's time tells a broker, as records of the metadata log: the image that brokers go by is the same in both modes.

UpdateMetadata says what the cluster looks like, LeaderAndIsr what this broker leads and follows, StopReplica what it holds no more. Whoever has been
deposed, or means an earlier life of this broker, is not listened to.
Source: kafka.server.{KafkaApis, ReplicaManager.becomeLeaderOrFollower, ReplicaManager.stopReplicas}, ZkMetadataCache.updateMetadata (3.9).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.broker_registration import registration_of
from kraftsim.core.metadata.image import MetadataImage, TopicImage
from kraftsim.core.metadata.metadata_level import MetadataLevel
from kraftsim.core.metadata.partition_registration import PartitionRegistration, partition_of, partition_record
from kraftsim.core.metadata.record_kinds import MetadataRecord
from kraftsim.core.metadata.topic_names import why_name_is_invalid
from kraftsim.core.zookeeper_mode.topic_ids import derived_topic_id, is_derived
from protocol.errors import ErrorCode
from protocol.messages.k04_leader_and_isr import RECOVERED, LeaderAndIsrPartitionState, LeaderAndIsrRequest
from protocol.messages.k05_stop_replica import LEADER_EPOCH_DURING_DELETE, NO_LEADER_EPOCH, StopReplicaRequest
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
from protocol.metadata.m00_register_broker import BrokerEndpoint, RegisterBrokerRecord
from protocol.metadata.m01_unregister_broker import UnregisterBrokerRecord
from protocol.metadata.m02_topic import TopicRecord
from protocol.metadata.m03_partition import PartitionRecord
from protocol.metadata.m04_config import TOPIC_RESOURCE, ConfigRecord
from protocol.metadata.m09_remove_topic import RemoveTopicRecord
from protocol.uuids import LOST_DIRECTORY_ID, MIGRATING_DIRECTORY_ID, ZERO_UUID

NO_BROKER_EPOCH: Final = -1
FULL: Final = 2
INITIAL_CONTROLLER_EPOCH: Final = 0
FIRST_WITH_DIRECTORIES: Final = 17
PROTOCOL_NAMES: Final = {PLAINTEXT: "PLAINTEXT", SSL: "SSL", SASL_PLAINTEXT: "SASL_PLAINTEXT", SASL_SSL: "SASL_SSL"}
"""Before listeners had names they were called like their protocols."""
PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPartition:
    """What this broker has of a partition: the epoch of the leader that it knows, and whose log it is (None: nobody's yet)."""

    leader_epoch: int
    topic_id: bytes | None
    is_offline: bool = False


Held = Callable[[str, int], HeldPartition | None]
"""What this broker has of a partition; None where it has nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What follows from a request: records for the image, and answers for single partitions.

    `adopted` names topics that have an id from now on; this goes before the records. `roles` are the partitions that this broker is to lead or follow
    as the image says then. `stopped` says of others whether their files are to be deleted, `keeps` what is to be left (None: everything).
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

        No controller reuses an id, but any client with CLUSTER_ACTION can send this request. The image keeps topics by id, where Kafka's metadata
        cache keeps them by name: a second name under one id would overwrite the first.
        """
        if received_id == ZERO_UUID:
            return received_id
        present = image.topic_by_id(received_id)
        is_free = (present is None or present.name == name) and self.named.get(received_id, name) == name
        if is_free:
            self.named[received_id] = name
        return received_id if is_free else ZERO_UUID


class ReceivedMetadata:
    """What a broker knows of the controllers that have spoken to it. Each method looks at one request; only the epoch of the controller is kept.

    `deletes_what_is_missing`: a migrating broker takes a full list for one (KIP-866).
    """

    def __init__(self, broker_id: int, incarnation_id: bytes, *, deletes_what_is_missing: bool = False) -> None:
        self._broker_id = broker_id
        self._incarnation_id = incarnation_id
        self._deletes_what_is_missing = deletes_what_is_missing
        self.controller_epoch = INITIAL_CONTROLLER_EPOCH
        self.controller_id: int | None = None
        """Who told last what the cluster looks like; None before anybody did."""
        self.is_kraft_controller = False

    # UpdateMetadata ------------------------------------------------------------------------------------------------------------------------

    def update(self, request: UpdateMetadataRequest, image: MetadataImage) -> Told | Refusal:
        """Learn what the cluster looks like. Refuses with STALE_CONTROLLER_EPOCH."""
        refusal = self._listen(request.controller_epoch)
        if refusal is not None:
            return refusal
        self.controller_id = request.controller_id if request.controller_id >= 0 else None
        self.is_kraft_controller = request.is_kraft_controller
        told = Told()
        told.records.extend(self._brokers(request.live_brokers, image))
        topics = _updated_topics(request)
        if request.is_kraft_controller and request.type == FULL and self._deletes_what_is_missing:
            told.records.extend(RemoveTopicRecord(topic_id=topic.topic_id) for topic in image.topics() if topic.name not in topics)
        for name, (told_id, states) in topics.items():
            self._update_topic(name, told.id_for(name, told_id, image), states, image, told)
        return told

    def _brokers(self, live: list[UpdateMetadataBroker], image: MetadataImage) -> Iterator[MetadataRecord]:
        """Yield what is different: whoever is not named is not alive."""
        named = {broker.id: None for broker in live}
        for broker in list(image.brokers()):
            if broker.broker_id not in named:
                yield UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
        for each in live:
            record = self._registration(each)
            if image.broker(each.id) != registration_of(record):
                yield record

    def _registration(self, broker: UpdateMetadataBroker) -> RegisterBrokerRecord:
        """Return a broker that is alive. Of its epoch and incarnation the request knows nothing; its own are known to this one."""
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
            end_points = [BrokerEndpoint(name="PLAINTEXT", host=broker.v0_host, port=broker.v0_port, security_protocol=PLAINTEXT)]
        return RegisterBrokerRecord(
            broker_id=broker.id,
            incarnation_id=self._incarnation_id if broker.id == self._broker_id else ZERO_UUID,
            broker_epoch=NO_BROKER_EPOCH,
            end_points=end_points,
            rack=broker.rack,
            fenced=False,
        )

    def _update_topic(self, name: str, told_id: bytes, states: Mapping[int, UpdateMetadataPartitionState], image: MetadataImage, told: Told) -> None:
        gone = frozenset(partition for partition, state in states.items() if state.leader == LEADER_DURING_DELETE)
        there = {partition: state for partition, state in states.items() if partition not in gone}
        known = image.topic(name)
        if known is not None and told_id not in (ZERO_UUID, known.topic_id) and not is_derived(known.topic_id):
            told.records.append(RemoveTopicRecord(topic_id=known.topic_id))  # another one of the same name
            known = None
        if known is not None and told_id not in (ZERO_UUID, known.topic_id):
            told.adopted[name] = told_id
            known = replace(known, topic_id=told_id)  # adopted before the records below are applied
        if known is not None and gone:
            told.records.extend(_without(known, gone, image))
            if gone.issuperset(known.partitions):
                known = None
        if not there:
            return
        topic_id = self._named(name, told_id, known, told)
        for partition, state in there.items():
            present = None if known is None else known.partitions.get(partition)
            if present is None or state.leader_epoch >= present.leader_epoch:
                record = _updated_partition(topic_id, state, present)
                if present is None or partition_of(record) != present:
                    told.records.append(record)

    @staticmethod
    def _named(name: str, told_id: bytes, known: TopicImage | None, told: Told) -> bytes:
        """Return under which id the image has a topic, or is to have it."""
        if known is None:
            topic_id = told_id if told_id != ZERO_UUID else derived_topic_id(name)
            told.records.append(TopicRecord(name=name, topic_id=topic_id))
            return topic_id
        if told_id not in (ZERO_UUID, known.topic_id):
            told.adopted[name] = told_id
            return told_id
        return known.topic_id

    # LeaderAndIsr --------------------------------------------------------------------------------------------------------------------------

    def appoint(self, request: LeaderAndIsrRequest, image: MetadataImage, held: Held) -> Told | Refusal:
        """Decide which partitions this broker is to lead or follow. Refuses as a whole with STALE_CONTROLLER_EPOCH.

        Answers: KAFKA_STORAGE_ERROR, INCONSISTENT_TOPIC_ID, STALE_CONTROLLER_EPOCH for no news, UNKNOWN_TOPIC_OR_PARTITION for what others hold,
        INVALID_TOPIC_EXCEPTION for a name that no topic may have: the directory of its log would have it, and may lie anywhere (`../x`).
        """
        refusal = self._listen(request.controller_epoch)
        if refusal is not None:
            return refusal
        named = list(_appointed(request))
        is_full = request.is_kraft_controller and request.type == FULL and self._deletes_what_is_missing
        told = Told(keeps=frozenset((name, state.partition_index) for name, _, state in named) if is_full else None)
        new: dict[str, bytes] = {}
        for name, told_id, state in named:
            error: ErrorCode | None = ErrorCode.INVALID_TOPIC_EXCEPTION
            if why_name_is_invalid(name) is None:
                error = self._judge(told_id, state, held(name, state.partition_index), is_kraft=request.is_kraft_controller)
            told.answers[name, state.partition_index] = error or ErrorCode.NONE
            topic_id = told.id_for(name, told_id, image) if error in (None, ErrorCode.NONE) else ZERO_UUID
            if error is None:
                self._appoint_one(name, topic_id, state, image, told, new)
            elif error is ErrorCode.NONE and topic_id != ZERO_UUID:
                told.adopted[name] = topic_id
        return told

    def _judge(self, told_id: bytes, state: LeaderAndIsrPartitionState, held: HeldPartition | None, *, is_kraft: bool) -> ErrorCode | None:
        """Return the answer for a partition; None where there is something to do first, NONE where it is just to learn whose it is."""
        if held is not None and held.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        known_id = None if held is None or held.topic_id is None or is_derived(held.topic_id) else held.topic_id
        if told_id != ZERO_UUID and known_id not in (None, told_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        takes_same = self.takes_same_epoch(is_kraft=is_kraft)
        if held is None or state.leader_epoch > held.leader_epoch or (takes_same and state.leader_epoch == held.leader_epoch):
            return None if self._broker_id in state.replicas else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if state.leader_epoch == held.leader_epoch and told_id != ZERO_UUID and known_id is None:
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def takes_same_epoch(self, *, is_kraft: bool) -> bool:
        """Tell whether news of a partition may have the same leader epoch.

        A controller of KRaft changes the in-sync replicas, and so the partition epoch, without another one (KAFKA-15109).
        """
        return is_kraft

    def _appoint_one(
        self, name: str, told_id: bytes, state: LeaderAndIsrPartitionState, image: MetadataImage, told: Told, new: dict[str, bytes]
    ) -> None:
        known = image.topic(name)
        if known is not None and told_id not in (ZERO_UUID, known.topic_id) and not is_derived(known.topic_id) and name not in new:
            told.records.append(RemoveTopicRecord(topic_id=known.topic_id))
            new[name] = self._named(name, told_id, None, told)
        if name not in new:
            new[name] = self._named(name, told_id, known, told)
        told.records.append(_appointed_partition(new[name], state))
        told.roles[name, state.partition_index] = None

    # StopReplica ---------------------------------------------------------------------------------------------------------------------------

    def stop(self, request: StopReplicaRequest, held: Held) -> Told | Refusal:
        """Decide which partitions this broker stops to serve. Refuses as a whole with STALE_CONTROLLER_EPOCH.

        Answers: KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH where a newer leader is known here. What is not held is stopped already.
        """
        refusal = self._listen(request.controller_epoch)
        if refusal is not None:
            return refusal
        told = Told()
        for key, leader_epoch, is_deleted in _stopped(request):
            if why_name_is_invalid(key[0]) is not None:
                told.answers[key] = ErrorCode.NONE  # nothing is held, and a directory of that name is not a log's (`../x`)
                continue
            present = held(*key)
            unchecked = leader_epoch in (NO_LEADER_EPOCH, LEADER_EPOCH_DURING_DELETE)
            if present is not None and present.is_offline:
                told.answers[key] = ErrorCode.KAFKA_STORAGE_ERROR
            elif present is not None and not unchecked and leader_epoch < present.leader_epoch:
                told.answers[key] = ErrorCode.FENCED_LEADER_EPOCH
            else:
                told.answers[key] = ErrorCode.NONE
                told.stopped[key] = is_deleted
        return told

    def _listen(self, controller_epoch: int) -> Refusal | None:
        """Listen to a controller unless a later one has spoken."""
        if controller_epoch < self.controller_epoch:
            return Refusal(ErrorCode.STALE_CONTROLLER_EPOCH, f"controller epoch {controller_epoch} is over, this is {self.controller_epoch}")
        self.controller_epoch = controller_epoch
        return None


def refuse_broker_epoch(told: int, own: int) -> Refusal | None:
    """Refuse, with STALE_BROKER_EPOCH, what was meant for an earlier life of this broker; a later one it may only not have heard of yet."""
    if told != NO_BROKER_EPOCH and told < own:
        return Refusal(ErrorCode.STALE_BROKER_EPOCH, f"broker epoch {told} is over, this is {own}")
    return None


def _without(topic: TopicImage, gone: frozenset[int], image: MetadataImage) -> list[MetadataRecord]:
    """Return how some partitions of a topic go: none of Kafka's records says that of less than all of them, so the others come again."""
    records: list[MetadataRecord] = [RemoveTopicRecord(topic_id=topic.topic_id)]
    if gone.issuperset(topic.partitions):
        return records
    records.append(TopicRecord(name=topic.name, topic_id=topic.topic_id))
    level = MetadataLevel(FIRST_WITH_DIRECTORIES)  # so that the records say whose directory has failed
    records.extend(partition_record(topic.topic_id, number, partition, level) for number, partition in topic.partitions.items() if number not in gone)
    configs = image.topic_configs(topic.name)
    records.extend(ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=key, value=value) for key, value in configs.items())
    return records


def _updated_topics(request: UpdateMetadataRequest) -> dict[str, tuple[bytes, dict[int, UpdateMetadataPartitionState]]]:
    """Return topic -> (id, partition -> state), in the order of the request."""
    topics: dict[str, tuple[bytes, dict[int, UpdateMetadataPartitionState]]] = {}
    for topic in request.topic_states:
        topics[topic.topic_name] = (topic.topic_id, {state.partition_index: state for state in topic.partition_states})
    for state in request.ungrouped_partition_states:
        topics.setdefault(state.topic_name, (ZERO_UUID, {}))[1][state.partition_index] = state
    return topics


def _updated_partition(topic_id: bytes, state: UpdateMetadataPartitionState, present: PartitionRegistration | None) -> PartitionRecord:
    """Return a partition as it is told; of what only LeaderAndIsr says, what was known holds on while it is on the same brokers."""
    offline = state.offline_replicas
    is_same = present is not None and present.replicas == tuple(state.replicas)
    return PartitionRecord(
        partition_id=state.partition_index,
        topic_id=topic_id,
        replicas=list(state.replicas),
        isr=list(state.isr),
        removing_replicas=list(present.removing_replicas) if present is not None and is_same else [],
        adding_replicas=list(present.adding_replicas) if present is not None and is_same else [],
        leader=state.leader,
        leader_recovery_state=present.leader_recovery_state if present is not None and present.leader_epoch == state.leader_epoch else RECOVERED,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.zk_version,
        directories=[LOST_DIRECTORY_ID if each in offline else MIGRATING_DIRECTORY_ID for each in state.replicas] if offline else [],
    )


def _appointed(request: LeaderAndIsrRequest) -> Iterator[tuple[str, bytes, LeaderAndIsrPartitionState]]:
    """Yield (topic, its id or zeros, state), as they stand in a request of any version."""
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
    """Yield (partition, leader epoch, whether it is to be deleted), as they stand in a request of any version."""
    for old in request.ungrouped_partitions:
        yield (old.topic_name, old.partition_index), NO_LEADER_EPOCH, request.delete_partitions
    for topic in request.topics:
        for number in topic.partition_indexes:
            yield (topic.name, number), NO_LEADER_EPOCH, request.delete_partitions
    for each in request.topic_states:
        for state in each.partition_states:
            yield (each.topic_name, state.partition_index), state.leader_epoch, state.delete_partition
