"""The requests of a snapshot: what each part of it asks, of which broker, and what it makes of the
answers.

Every query returns what it could read and the reason for what it could not, so that a broker that
is down, or a release without the API, costs a part of the snapshot and not the whole.
Source: KIP-664 (DescribeProducers, ListTransactions, DescribeTransactions), KIP-836
(DescribeQuorum), KIP-700 (DescribeCluster), KIP-1073 (fenced brokers).
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from msgspec.structs import replace

from kraftsim.control.state.broker_connections import CONTROLLER_LANE, SnapshotConnections
from kraftsim.control.state.cluster_snapshot import (
    GroupStatus,
    PartitionStatus,
    ProducerStatus,
    QuorumReplicaStatus,
    QuorumStatus,
    TopicStatus,
    TransactionStatus,
)
from kraftsim.server.outbound import NoCommonVersion
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
)
from protocol.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    ReplicaState,
)
from protocol.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)
from protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from protocol.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
METADATA_TOPIC: Final = "__cluster_metadata"
TOPIC_RESOURCE: Final = 2
MIN_ISR: Final = "min.insync.replicas"
PRODUCERS_MAX: Final = 2_000
TRANSACTIONS_MAX: Final = 1_000
GROUPS_MAX: Final = 500
NO_ID: Final = bytes(16)
FIRST_WITH_FENCED: Final = 2
"""The version of DescribeCluster that can name fenced brokers."""

Part = TypeVar("Part")


@dataclass(slots=True)
class Missing:
    """The parts of a snapshot that could not be read, and why, by the name of the field."""

    reasons: dict[str, str] = field(default_factory=dict)

    def note(self, part: str, reason: str) -> None:
        """Add a reason; a part keeps its first one."""
        self.reasons.setdefault(part, reason)

    def note_failure(self, part: str, api: ApiKey, broker: int | None, error: OSError) -> None:
        """Add the failure of a request."""
        name = api.name.title().replace("_", "")
        if isinstance(error, NoCommonVersion):
            self.note(part, f"the cluster's release has no {name}")
        else:
            where = "no broker answered" if broker is None else f"broker {broker} did not answer"
            self.note(part, f"{where} {name}: {error}")


@dataclass(frozen=True, slots=True)
class DescribedMetadata:
    """What Metadata says: `brokers` are addresses by id, `controller` is the active controller in
    ZooKeeper mode, and any broker in KRaft mode.
    """

    cluster_id: str | None
    controller: int | None
    brokers: Mapping[int, tuple[str, int]]
    topics: tuple[TopicStatus, ...]


async def describe_metadata(connections: SnapshotConnections) -> DescribedMetadata:
    """Ask any broker for all topics, and learn the addresses of the brokers. Raises OSError."""
    answer = await connections.ask_any(
        MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse
    )
    brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    connections.learn(brokers)
    topics = tuple(
        TopicStatus(
            name=topic.name,
            topic_id=topic.topic_id.hex() if topic.topic_id not in (b"", NO_ID) else None,
            is_internal=topic.is_internal,
            partitions=tuple(
                _partition(each)
                for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            ),
        )
        for topic in sorted(answer.topics, key=lambda topic: topic.name or "")
        if topic.name is not None
    )
    return DescribedMetadata(answer.cluster_id, _or_none(answer.controller_id), brokers, topics)


def _partition(known: MetadataResponsePartition) -> PartitionStatus:
    return PartitionStatus(
        partition=known.partition_index,
        leader=_or_none(known.leader_id),
        leader_epoch=_or_none(known.leader_epoch),
        replicas=tuple(known.replica_nodes),
        isr=tuple(known.isr_nodes),
        offline=tuple(known.offline_replicas),
    )


def _or_none(value: int) -> int | None:
    return None if value < 0 else value


async def find_fenced(connections: SnapshotConnections) -> frozenset[int]:
    """Return the registered brokers that are fenced, where the release tells them (KIP-1073).

    Metadata has only brokers that are not.
    """
    request = DescribeClusterRequest(include_fenced_brokers=True)
    try:
        connection = await connections.connection()
        if connection.version_for(ApiKey.DESCRIBE_CLUSTER) < FIRST_WITH_FENCED:
            return frozenset()
        answer = await connections.ask_any(request, DescribeClusterResponse)
    except OSError:
        return frozenset()
    return frozenset(broker.broker_id for broker in answer.brokers if broker.is_fenced)


# --------------------------------------------------------------------------------------------------
# The metadata quorum


async def describe_quorum(
    connections: SnapshotConnections, missing: Missing
) -> tuple[QuorumStatus | None, Mapping[int, str]]:
    """Return the quorum, and the addresses of its voters where the release tells them."""
    topic = DescribeQuorumTopic(
        topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)]
    )
    try:
        answer = await connections.ask_any(
            DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse, CONTROLLER_LANE
        )
    except OSError as error:
        missing.note_failure("quorum", ApiKey.DESCRIBE_QUORUM, None, error)
        return None, {}
    found = [each for topics in answer.topics for each in topics.partitions]
    code = answer.error_code or (found[0].error_code if found else int(ErrorCode.NONE))
    if code or not found:
        missing.note("quorum", f"DescribeQuorum failed: {error_name(code)}")
        return None, {}
    quorum = found[0]
    ends = {each.replica_id: each.log_end_offset for each in quorum.current_voters}
    end = max(ends.get(quorum.leader_id, 0), quorum.high_watermark)
    now = next(
        (
            each.last_caught_up_timestamp
            for each in quorum.current_voters
            if each.replica_id == quorum.leader_id
        ),
        -1,
    )
    replicas = [
        _quorum_replica(each, end, now, is_voter=is_voter)
        for is_voter, each in (
            *((True, each) for each in quorum.current_voters),
            *((False, each) for each in quorum.observers),
        )
    ]
    addresses = {
        node.node_id: f"{node.listeners[0].host}:{node.listeners[0].port}"
        for node in answer.nodes
        if node.listeners
    }
    return (
        QuorumStatus(
            leader=quorum.leader_id,
            leader_epoch=quorum.leader_epoch,
            high_watermark=quorum.high_watermark,
            replicas=tuple(sorted(replicas, key=lambda each: (not each.is_voter, each.node_id))),
        ),
        addresses,
    )


def _quorum_replica(
    known: ReplicaState, end: int, now: int, *, is_voter: bool
) -> QuorumReplicaStatus:
    offset = _or_none(known.log_end_offset)
    directory = bytes(known.replica_directory_id)
    return QuorumReplicaStatus(
        node_id=known.replica_id,
        is_voter=is_voter,
        log_end_offset=offset,
        lag=None if offset is None else max(0, end - offset),
        caught_up_ms=None
        if min(now, known.last_caught_up_timestamp) < 0
        else max(0, now - known.last_caught_up_timestamp),
        directory_id=directory.hex() if directory not in (b"", NO_ID) else None,
    )


# --------------------------------------------------------------------------------------------------
# Partitions: offsets and producers, from their leaders


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Offsets of a partition; None: unknown."""

    log_start: int | None = None
    high_watermark: int | None = None
    last_stable: int | None = None


async def with_offsets(
    connections: SnapshotConnections, topics: tuple[TopicStatus, ...], missing: Missing
) -> tuple[TopicStatus, ...]:
    """Return the topics with the offsets that the leaders report."""
    led = _led(topics)
    asked = await _together(
        [
            _offsets_of(connections, leader, partitions, timestamp, isolation, missing)
            for leader, partitions in led.items()
            for timestamp, isolation in (
                (EARLIEST, READ_UNCOMMITTED),
                (LATEST, READ_UNCOMMITTED),
                (LATEST, READ_COMMITTED),
            )
        ]
    )
    starts, ends, stable = (
        {place: offset for found in asked[kind::3] for place, offset in found.items()}
        for kind in range(3)
    )
    return tuple(
        replace(
            topic,
            partitions=tuple(
                replace(
                    each,
                    log_start_offset=starts.get((topic.name, each.partition)),
                    high_watermark=ends.get((topic.name, each.partition)),
                    last_stable_offset=stable.get((topic.name, each.partition)),
                )
                for each in topic.partitions
            ),
        )
        for topic in topics
    )


def _led(topics: Iterable[TopicStatus]) -> dict[int, dict[str, list[int]]]:
    """Return the partitions of each leader."""
    led: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for each in topic.partitions:
            if each.leader is not None:
                led.setdefault(each.leader, {}).setdefault(topic.name, []).append(each.partition)
    return led


async def _offsets_of(
    connections: SnapshotConnections,
    leader: int,
    partitions: Mapping[str, Sequence[int]],
    timestamp: int,
    isolation: int,
    missing: Missing,
) -> dict[tuple[str, int], int]:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
                    for partition in numbers
                ],
            )
            for topic, numbers in partitions.items()
        ],
    )
    try:
        answer = await connections.ask(leader, request, ListOffsetsResponse)
    except OSError as error:
        missing.note_failure("topics", ApiKey.LIST_OFFSETS, leader, error)
        return {}
    return {
        (topic.name, each.partition_index): each.offset
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE and each.offset >= 0
    }


async def describe_producers(
    connections: SnapshotConnections, topics: tuple[TopicStatus, ...], missing: Missing
) -> tuple[ProducerStatus, ...]:
    """Return the producers of all partitions, as the leaders know them."""
    found = await _together(
        [
            _producers_of(connections, leader, partitions, missing)
            for leader, partitions in _led(topics).items()
        ]
    )
    rows = sorted(
        (row for rows in found for row in rows),
        key=lambda row: (row.topic, row.partition, row.producer_id),
    )
    if len(rows) > PRODUCERS_MAX:
        missing.note("producers", f"{len(rows) - PRODUCERS_MAX:,} of {len(rows):,} are left out")
    return tuple(rows[:PRODUCERS_MAX])


async def _producers_of(
    connections: SnapshotConnections,
    leader: int,
    partitions: Mapping[str, Sequence[int]],
    missing: Missing,
) -> list[ProducerStatus]:
    request = DescribeProducersRequest(
        topics=[
            DescribeProducersTopic(name=topic, partition_indexes=list(numbers))
            for topic, numbers in partitions.items()
        ]
    )
    try:
        answer = await connections.ask(leader, request, DescribeProducersResponse)
    except OSError as error:
        missing.note_failure("producers", ApiKey.DESCRIBE_PRODUCERS, leader, error)
        return []
    return [
        ProducerStatus(
            topic=topic.name,
            partition=each.partition_index,
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
            last_sequence=_or_none(known.last_sequence),
            last_timestamp_ms=_or_none(known.last_timestamp),
            coordinator_epoch=_or_none(known.coordinator_epoch),
            current_transaction_start_offset=_or_none(known.current_txn_start_offset),
        )
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
        for known in each.active_producers
    ]


async def min_isr_of(
    connections: SnapshotConnections, topics: Iterable[TopicStatus], missing: Missing
) -> dict[str, int]:
    """Return min.insync.replicas by topic."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=topic.name, configuration_keys=[MIN_ISR]
            )
            for topic in topics
        ]
    )
    try:
        answer = await connections.ask_any(request, DescribeConfigsResponse)
    except OSError as error:
        missing.note_failure("topics", ApiKey.DESCRIBE_CONFIGS, None, error)
        return {}
    return {
        result.resource_name: int(config.value)
        for result in answer.results
        for config in result.configs
        if config.name == MIN_ISR and config.value is not None and config.value.isdecimal()
    }


# --------------------------------------------------------------------------------------------------
# Coordinators: transactions and groups, from every broker


async def list_transactions(
    connections: SnapshotConnections, missing: Missing
) -> tuple[TransactionStatus, ...]:
    """Return the transactional ids of all coordinators, with their last transaction."""
    found = await _together(
        [_transactions_of(connections, broker, missing) for broker in connections.broker_ids]
    )
    return tuple(
        sorted((row for rows in found for row in rows), key=lambda row: row.transactional_id)
    )


async def _transactions_of(
    connections: SnapshotConnections, broker: int, missing: Missing
) -> list[TransactionStatus]:
    try:
        listed = await connections.ask(broker, ListTransactionsRequest(), ListTransactionsResponse)
    except OSError as error:
        missing.note_failure("transactions", ApiKey.LIST_TRANSACTIONS, broker, error)
        return []
    if listed.error_code != ErrorCode.NONE:
        missing.note(
            "transactions",
            f"broker {broker} answered ListTransactions with {error_name(listed.error_code)}",
        )
    names = sorted(each.transactional_id for each in listed.transaction_states)
    if len(names) > TRANSACTIONS_MAX:
        left_out = len(names) - TRANSACTIONS_MAX
        missing.note("transactions", f"{left_out:,} of {len(names):,} of broker {broker} left out")
    if not names:
        return []
    request = DescribeTransactionsRequest(transactional_ids=names[:TRANSACTIONS_MAX])
    try:
        described = await connections.ask(broker, request, DescribeTransactionsResponse)
    except OSError as error:
        missing.note_failure("transactions", ApiKey.DESCRIBE_TRANSACTIONS, broker, error)
        return [
            TransactionStatus(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=None,
                state=each.transaction_state,
                coordinator=broker,
            )
            for each in listed.transaction_states
        ]
    return [
        _transaction(each, broker)
        for each in described.transaction_states
        if each.error_code == ErrorCode.NONE
    ]


def _transaction(known: TransactionState, coordinator: int) -> TransactionStatus:
    return TransactionStatus(
        transactional_id=known.transactional_id,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        state=known.transaction_state,
        coordinator=coordinator,
        timeout_ms=known.transaction_timeout_ms,
        started_ms=_or_none(known.transaction_start_time_ms),
        partitions=tuple(
            f"{topic.topic}-{partition}"
            for topic in known.topics
            for partition in sorted(topic.partitions)
        ),
    )


async def list_groups(
    connections: SnapshotConnections, missing: Missing
) -> tuple[GroupStatus, ...]:
    """Return the groups of all coordinators, with their number of members."""
    found = await _together(
        [_groups_of(connections, broker, missing) for broker in connections.broker_ids]
    )
    return tuple(sorted((row for rows in found for row in rows), key=lambda row: row.group_id))


async def _groups_of(
    connections: SnapshotConnections, broker: int, missing: Missing
) -> list[GroupStatus]:
    try:
        listed = await connections.ask(broker, ListGroupsRequest(), ListGroupsResponse)
    except OSError as error:
        missing.note_failure("groups", ApiKey.LIST_GROUPS, broker, error)
        return []
    groups = [
        GroupStatus(
            group_id=each.group_id,
            coordinator=broker,
            protocol_type=each.protocol_type,
            state=each.group_state,
            type=each.group_type,
        )
        for each in sorted(listed.groups, key=lambda each: each.group_id)
    ]
    if len(groups) > GROUPS_MAX:
        left_out = len(groups) - GROUPS_MAX
        missing.note("groups", f"{left_out:,} of {len(groups):,} of broker {broker} left out")
    return await _with_members(connections, broker, groups[:GROUPS_MAX], missing)


async def _with_members(
    connections: SnapshotConnections, broker: int, groups: list[GroupStatus], missing: Missing
) -> list[GroupStatus]:
    """Return the groups of a coordinator with their members counted, for the types that have a
    request for it here: classic and consumer.
    """
    members: dict[str, tuple[int, str]] = {}
    classic = [each.group_id for each in groups if each.type in ("", "classic", "Classic")]
    consumer = [each.group_id for each in groups if each.type.lower() == "consumer"]
    try:
        if classic:
            described = await connections.ask(
                broker, DescribeGroupsRequest(groups=classic), DescribeGroupsResponse
            )
            for known in described.groups:
                if known.error_code == ErrorCode.NONE:
                    members[known.group_id] = len(known.members), known.group_state
        if consumer:
            answer = await connections.ask(
                broker,
                ConsumerGroupDescribeRequest(group_ids=consumer),
                ConsumerGroupDescribeResponse,
            )
            for each in answer.groups:
                if each.error_code == ErrorCode.NONE:
                    members[each.group_id] = len(each.members), each.group_state
    except OSError as error:
        missing.note_failure("groups", ApiKey.DESCRIBE_GROUPS, broker, error)
    return [
        replace(
            group,
            member_count=members[group.group_id][0],
            state=group.state or members[group.group_id][1],
        )
        if group.group_id in members
        else group
        for group in groups
    ]


async def _together(work: Sequence[Awaitable[Part]]) -> list[Part]:
    """Wait for all requests at once; each handles its own OSError."""
    return list(await asyncio.gather(*work))


def error_name(code: int) -> str:
    """Return the name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
