"""Requests of scenarios as an operator sends them: topics, leaders, feature levels, voters, and
what a cluster has reached.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kraftsim.clients.cluster_connections import (
    Address,
    ClientIdentity,
    ClusterConnections,
    find_coordinator,
)
from kraftsim.clients.member_requests import fetch_offsets
from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.clients.rules_transaction_steps import CoordinatorKind
from kraftsim.cluster.spec import CONTROLLER_LISTENER, ClusterSpec, NodeSpec
from kraftsim.events.event import Event
from kraftsim.partitions.events import ReplicaInSync
from kraftsim.server.outbound import PeerConnection
from kraftsim.server.security.login import LinkSecurity
from kraftsim.world.interface import World
from protocol.errors import ErrorCode
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k43_elect_leaders import PREFERRED, ElectLeadersRequest
from protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
)
from protocol.messages.k57_update_features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from protocol.schema import Message

# --------------------------------------------------------------------------------------------------
# Admin operations of scenarios: create a topic, elect preferred leaders, and wait for replicas to
# be in sync
#
# Each of them retries until it succeeds: the caller bounds the time.

ADMIN_CLIENT_ID = "kraftsim-admin"
TIMEOUT_MS = 10_000
RETRY_SECONDS = 0.05


class TopicFailed(RuntimeError):
    """A topic could not be created, with an error that is not retriable."""


async def create_topic(
    brokers: Sequence[tuple[str, int]],
    topic: str,
    partitions: int,
    replicas: int = 1,
    *,
    security: LinkSecurity | None = None,
    retry_seconds: float = RETRY_SECONDS,
) -> None:
    """Create a topic; return when every broker reports a leader for each partition and all replicas
    in sync. An existing topic is used as it is.

    Retries without a limit; raises TopicFailed for an error that is not retriable.
    """
    turn = 0
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=replicas)
    while not await _try_to_create(*brokers[turn % len(brokers)], wanted, security):
        turn += 1
        await asyncio.sleep(retry_seconds)
    await wait_for_replicas(
        brokers, topic, partitions, security=security, retry_seconds=retry_seconds
    )


async def wait_for_replicas(
    brokers: Sequence[tuple[str, int]],
    topic: str,
    partitions: int,
    *,
    security: LinkSecurity | None = None,
    retry_seconds: float = RETRY_SECONDS,
) -> dict[int, tuple[int, ...]]:
    """Return the in-sync replicas by partition, when every broker reports a leader for each
    partition and all its replicas in sync.
    """
    known: dict[int, tuple[int, ...]] = {}
    for host, port in brokers:
        while len(known := await _all_in_sync(host, port, topic, security)) < partitions:
            await asyncio.sleep(retry_seconds)
    return known


async def wait_until_served(
    host: str, port: int, topic: str, *, security: LinkSecurity | None, retry_seconds: float
) -> None:
    """Return when a broker, and the leaders that it reports for the partitions of a topic, answer
    for it: a broker reports itself as the leader of a partition before it has opened its log.
    """
    known = await _ask(host, port, _metadata_of(topic), security)
    assert isinstance(known, MetadataResponse), "the broker has answered before"
    brokers = {broker.node_id: (broker.host, broker.port) for broker in known.brokers}
    led: dict[int, list[int]] = {}
    for partition in known.topics[0].partitions:
        led.setdefault(partition.leader_id, []).append(partition.partition_index)
    for leader, partitions in led.items():
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=partition, timestamp=LATEST_TIMESTAMP)
                        for partition in partitions
                    ],
                )
            ],
        )
        while not _has_offsets(await _ask(*brokers[leader], request, security)):
            await asyncio.sleep(retry_seconds)


def _has_offsets(answer: Message | None) -> bool:
    return isinstance(answer, ListOffsetsResponse) and all(
        partition.error_code == ErrorCode.NONE
        for topic in answer.topics
        for partition in topic.partitions
    )


def _metadata_of(topic: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )


async def topic_id_of(
    host: str, port: int, topic: str, *, security: LinkSecurity | None = None
) -> bytes | None:
    """Return the id of a topic; None if there is no such topic, or it has none."""
    answer = await _ask(host, port, _metadata_of(topic), security)
    if not isinstance(answer, MetadataResponse) or not answer.topics:
        return None
    topic_id = answer.topics[0].topic_id
    return topic_id if any(topic_id) else None


async def wait_until_in_sync(host: str, port: int, *, security: LinkSecurity | None = None) -> None:
    """Return when a broker reports a leader for each partition of each topic, and all its replicas
    in sync: before that the next node of a rolling restart must not be stopped.
    """
    while True:
        answer = await _ask(host, port, MetadataRequest(topics=None), security)
        if isinstance(answer, MetadataResponse) and all(
            _is_in_sync(partition) for topic in answer.topics for partition in topic.partitions
        ):
            return
        await asyncio.sleep(RETRY_SECONDS)


def emit_in_sync(
    emit: Callable[[Event], None], topic: str, in_sync: Mapping[int, tuple[int, ...]]
) -> None:
    """Emit the in-sync replicas, by partition."""
    for partition, brokers in sorted(in_sync.items()):
        for broker in brokers:
            emit(ReplicaInSync(topic=topic, partition=partition, broker=f"broker-{broker}"))


async def elect_preferred_leaders(host: str, port: int) -> bool:
    """Send a preferred leader election for every partition to a broker, once; return whether there
    was an answer.
    """
    return (
        await _ask(
            host,
            port,
            ElectLeadersRequest(
                election_type=PREFERRED, topic_partitions=None, timeout_ms=TIMEOUT_MS
            ),
        )
        is not None
    )


async def _try_to_create(
    host: str, port: int, wanted: CreatableTopic, security: LinkSecurity | None
) -> bool:
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
    answer = await _ask(host, port, request, security)
    if answer is None:
        return False
    assert isinstance(answer, CreateTopicsResponse), "CreateTopics was asked"
    result = answer.topics[0]
    if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return True
    if (
        ErrorCode(result.error_code).retriable
        or result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    ):
        return False  # brokers may still be registering
    raise TopicFailed(
        (
            f"topic {wanted.name} was refused: {ErrorCode(result.error_code).name} "
            f"{result.error_message or ''}"
        ).rstrip()
    )


async def _all_in_sync(
    host: str, port: int, topic: str, security: LinkSecurity | None
) -> dict[int, tuple[int, ...]]:
    """Return the partitions of a topic that have a leader and all their replicas in sync, as a
    broker reports it.
    """
    answer = await _ask(host, port, _metadata_of(topic), security)
    if answer is None:
        return {}
    assert isinstance(answer, MetadataResponse), "Metadata was asked"
    return {
        partition.partition_index: tuple(sorted(partition.isr_nodes))
        for partition in answer.topics[0].partitions
        if _is_in_sync(partition)
    }


def _is_in_sync(partition: MetadataResponsePartition) -> bool:
    """Return whether a partition has a leader, and all its replicas in sync."""
    return partition.leader_id >= 0 and sorted(partition.isr_nodes) == sorted(
        partition.replica_nodes
    )


async def _ask(
    host: str, port: int, request: Message, security: LinkSecurity | None = None
) -> Message | None:
    """Send a request to a broker over a new connection; None if there is no answer."""
    connection = PeerConnection(host, port, client_id=ADMIN_CLIENT_ID, security=security)
    try:
        await connection.connect(timeout_ms=TIMEOUT_MS)
        return await connection.request(request, timeout_ms=TIMEOUT_MS)
    except OSError:
        return None
    finally:
        connection.close()


# --------------------------------------------------------------------------------------------------
# Updates the finalized feature levels of a cluster, as an admin client does during an upgrade
#
# Source: KIP-584, KIP-778, org.apache.kafka.tools.FeatureCommand (`kafka-features upgrade`).

LEVELS_CLIENT_ID = "kraftsim-features"
LEVELS_RETRY_SECONDS = 0.1
RETRIABLE = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Retriable: the controller may be moving to another node, or the broker may not know it yet."""


async def update_features(
    brokers: Sequence[tuple[str, int]], levels: Mapping[str, int], *, downwards: bool
) -> dict[str, str]:
    """Send the request to one broker after the other until there is an answer; return the errors of
    features that could not change, by name.
    """
    turn = 0
    while True:
        answer = await _ask_for_levels(*brokers[turn % len(brokers)], levels, downwards=downwards)
        if answer is not None and ErrorCode(answer.error_code) not in RETRIABLE:
            return _refusals(answer, levels)
        turn += 1
        await asyncio.sleep(LEVELS_RETRY_SECONDS)


def _refusals(answer: UpdateFeaturesResponse, levels: Mapping[str, int]) -> dict[str, str]:
    if answer.error_code != ErrorCode.NONE:
        return {name: _error_text(answer.error_code, answer.error_message) for name in levels}
    return {
        row.feature: _error_text(row.error_code, row.error_message)
        for row in answer.results
        if row.error_code != ErrorCode.NONE
    }


def _error_text(error_code: int, message: str | None) -> str:
    return f"{ErrorCode(error_code).name}: {message or ''}".rstrip(": ")


async def _ask_for_levels(
    host: str, port: int, levels: Mapping[str, int], *, downwards: bool
) -> UpdateFeaturesResponse | None:
    """Send a request to a broker over a new connection; None if there is no answer."""
    kind = SAFE_DOWNGRADE if downwards else UPGRADE
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level in levels.items()
    ]
    connection = PeerConnection(host, port, client_id=LEVELS_CLIENT_ID)
    try:
        await connection.connect(timeout_ms=TIMEOUT_MS)
        answer = await connection.request(
            UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=updates),
            timeout_ms=TIMEOUT_MS,
        )
    except OSError:
        return None
    finally:
        connection.close()
    assert isinstance(answer, UpdateFeaturesResponse), "UpdateFeatures was asked"
    return answer


# --------------------------------------------------------------------------------------------------
# Operations on a dynamic quorum, as an operator has them: describe the voters, add a voter, remove
# a voter
#
# One request, one attempt: the leader may fail before the change is committed, or after it without
# an answer.
# Source: KIP-853, KIP-836, org.apache.kafka.tools.MetadataQuorumCommand (`kafka-metadata-quorum
# describe`, `add-controller`, `remove-controller`).

METADATA_TOPIC = "__cluster_metadata"
VOTERS_CLIENT_ID = "kraftsim-voters"
DESCRIBE_MS = 500
CHANGE_MS = 2000
ANSWER_MS = 3000
"""A change is answered when it is committed, or has timed out."""


@dataclass(frozen=True, slots=True)
class DescribedQuorum:
    """The voters as the leader of the highest epoch reports them: directory ids by node id."""

    leader: NodeSpec
    leader_epoch: int
    voters: dict[int, bytes]
    observers: dict[int, bytes]


async def voters_of(spec: ClusterSpec, *, host_is_name: bool = False) -> tuple[str, ...] | None:
    """Return the names of the voters, as the leader reports them; None if no controller answers as
    leader.
    """
    described = await _described(_controllers(spec, host_is_name))
    if described is None:
        return None
    return tuple(
        node.name for node in _controllers(spec, host_is_name) if node.node_id in described.voters
    )


async def change_voter(
    spec: ClusterSpec, name: str, *, joins: bool, host_is_name: bool = False
) -> bool:
    """Ask the leader once to add or remove a controller as voter; return whether the answer is that
    this is committed.
    """
    described = await _described(_controllers(spec, host_is_name))
    if described is None:
        return False
    node = spec.node(name, host_is_name=host_is_name)
    known = described.observers if joins else described.voters
    if node.node_id not in known:
        return False
    request: Message
    if joins:
        listener = Listener(name=CONTROLLER_LISTENER, host=node.host, port=node.port)
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=CHANGE_MS,
            voter_id=node.node_id,
            voter_directory_id=known[node.node_id],
            listeners=[listener],
        )
    else:
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=node.node_id, voter_directory_id=known[node.node_id]
        )
    answer = await _asked_of_voter(described.leader, request, ANSWER_MS)
    return (
        isinstance(answer, AddRaftVoterResponse | RemoveRaftVoterResponse)
        and answer.error_code == ErrorCode.NONE
    )


def _controllers(spec: ClusterSpec, host_is_name: bool) -> list[NodeSpec]:
    return [spec.node(name, host_is_name=host_is_name) for name in spec.controller_names]


async def _described(controllers: list[NodeSpec]) -> DescribedQuorum | None:
    """Ask every controller.

    A deposed leader that has not noticed has a lower epoch than the present one.
    """
    found: DescribedQuorum | None = None
    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumTopic(
                topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)]
            )
        ]
    )
    for node in controllers:
        answer = await _asked_of_voter(node, request, DESCRIBE_MS)
        if not isinstance(answer, DescribeQuorumResponse) or not answer.topics:
            continue
        quorum = answer.topics[0].partitions[0]
        if quorum.error_code == ErrorCode.NONE and (
            found is None or quorum.leader_epoch > found.leader_epoch
        ):
            voters = {each.replica_id: each.replica_directory_id for each in quorum.current_voters}
            observers = {each.replica_id: each.replica_directory_id for each in quorum.observers}
            found = DescribedQuorum(node, quorum.leader_epoch, voters, observers)
    return found


async def _asked_of_voter(node: NodeSpec, request: Message, timeout_ms: int) -> Message | None:
    """Return the answer of a node, bypassing any proxy; None if there is none."""
    connection = PeerConnection(node.listens_host, node.listens_port, client_id=VOTERS_CLIENT_ID)
    try:
        await connection.connect(timeout_ms=DESCRIBE_MS)
        return await connection.request(request, timeout_ms=timeout_ms)
    except OSError:
        return None
    finally:
        connection.close()


# --------------------------------------------------------------------------------------------------
# Finds the leader of the metadata quorum, and missing brokers
#
# Sends requests to the nodes, bypassing any proxy, until one answers as leader.
#
# In ZooKeeper mode the controller is a broker, and reports it in its answer to Metadata.
# Source: KIP-595 and KIP-836 (DescribeQuorum, which only the leader answers).

ASK_MS: Final = 500
QUORUM_RETRY_SECONDS: Final = 0.02


async def leader_of(spec: ClusterSpec, *, but_not: str | None = None) -> str:
    """Return the name of the active controller, as soon as there is one (other than `but_not`).

    Waits without a limit: the caller sets one.
    """
    leads = _leads if spec.controller_names else _is_controller
    while True:
        for node in [
            spec.node(name)
            for name in spec.controller_names or spec.broker_names
            if name != but_not
        ]:
            if await leads(node):
                return node.name
        await asyncio.sleep(QUORUM_RETRY_SECONDS)


async def wait_until_missed(spec: ClusterSpec, broker: NodeSpec) -> None:
    """Return when another broker no longer reports a broker as alive.

    Waits without a limit, even if there is no other broker.
    """
    others = [spec.node(name) for name in spec.broker_names if name != broker.name]
    while True:
        for other in others:
            answer = await _asked(other, MetadataRequest(topics=[]))
            if isinstance(answer, MetadataResponse) and all(
                each.node_id != broker.node_id for each in answer.brokers
            ):
                return
        await asyncio.sleep(QUORUM_RETRY_SECONDS)


async def _leads(node: NodeSpec) -> bool:
    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumTopic(
                topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)]
            )
        ]
    )
    answer = await _asked(node, request)
    if not isinstance(answer, DescribeQuorumResponse):
        return False
    partitions = [partition for topic in answer.topics for partition in topic.partitions]
    return any(
        each.error_code == ErrorCode.NONE and each.leader_id == node.node_id for each in partitions
    )


async def _is_controller(node: NodeSpec) -> bool:
    """Return whether a broker in ZooKeeper mode reports itself as controller: the view of other
    brokers may be stale.
    """
    answer = await _asked(node, MetadataRequest(topics=[]))
    return isinstance(answer, MetadataResponse) and answer.controller_id == node.node_id


async def _asked(node: NodeSpec, request: Message) -> Message | None:
    """Return the answer of a node; None if there is none."""
    connection = PeerConnection(node.listens_host, node.listens_port, client_id="kraftsim-quorum")
    try:
        await connection.connect(timeout_ms=ASK_MS)
        return await connection.request(request, timeout_ms=ASK_MS)
    except OSError:
        return None
    finally:
        connection.close()


# --------------------------------------------------------------------------------------------------
# Queries about transactions: the last stable offsets of partitions, and the committed offsets of a
# group
#
# The caller bounds the time; a query without an answer returns None.
# Source: KIP-98 (ListOffsets by isolation level), KIP-447 (RequireStable).

LATEST_TIMESTAMP = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
STABLE_RETRY_SECONDS = 0.1
STABLE_GROUP = "Stable"


class TransactionQueries:
    """A client that sends such queries, with retries until there is an answer."""

    def __init__(self, world: World, bootstrap: Sequence[Address], client_id: str) -> None:
        self._connections = ClusterConnections(
            world, ClientIdentity(client_id=client_id, bootstrap=tuple(bootstrap))
        )

    async def existing(self, topics: Sequence[str]) -> list[str]:
        """Return those of the topics that exist; retries until there is an answer."""
        while True:
            with suppress(OSError):
                answer = await self._connections.metadata(topics)
                return [
                    str(each.name)
                    for each in answer.topics
                    if each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                ]
            await asyncio.sleep(STABLE_RETRY_SECONDS)

    async def until_decided(self, topics: Sequence[str]) -> None:
        """Return when no partition of the topics has an open transaction: the last stable offset
        equals the high watermark.
        """
        for topic in topics:
            while not await self._is_decided(topic):
                await asyncio.sleep(STABLE_RETRY_SECONDS)

    async def ends(self, topic: str, isolation_level: int = READ_UNCOMMITTED) -> dict[int, int]:
        """Return the end offsets of the partitions of a topic; {} if some leader did not answer."""
        try:
            answer = await self._connections.metadata([topic])
            found: dict[int, int] = {}
            for partition in answer.topics[0].partitions:
                connection = await self._connections.to_broker(partition.leader_id)
                request = ListOffsetsPartition(
                    partition_index=partition.partition_index, timestamp=LATEST_TIMESTAMP
                )
                listed = await connection.request(
                    ListOffsetsRequest(
                        replica_id=-1,
                        isolation_level=isolation_level,
                        topics=[ListOffsetsTopic(name=topic, partitions=[request])],
                    )
                )
                assert isinstance(listed, ListOffsetsResponse), "ListOffsets was asked"
                row = listed.topics[0].partitions[0]
                if row.error_code != ErrorCode.NONE:
                    return {}
                found[row.partition_index] = row.offset
        except OSError:
            return {}
        return found

    async def committed(self, group_id: str, topic: str, partitions: int) -> dict[int, int]:
        """Return the committed offsets of a group, with all transactions decided; {} if they are
        not available now.
        """
        try:
            broker_id = await find_coordinator(self._connections, CoordinatorKind.GROUP, group_id)
            if isinstance(broker_id, ErrorCode):
                return {}
            connection = await self._connections.to_broker(broker_id)
            request = [TopicPartition(topic, partition) for partition in range(partitions)]
            answers = await fetch_offsets(connection, group_id, request, require_stable=True)
        except OSError:
            return {}
        if any(error is not ErrorCode.NONE for error, _ in answers.values()):
            return {}
        return {where.partition: offset for where, (_, offset) in answers.items()}

    async def until_committed(self, group_id: str, topic: str, ends: Mapping[int, int]) -> None:
        """Return when a group has committed the end offsets."""
        while True:
            committed = await self.committed(group_id, topic, len(ends))
            if committed and all(
                committed.get(partition, -1) >= end for partition, end in ends.items() if end
            ):
                return
            await asyncio.sleep(STABLE_RETRY_SECONDS)

    async def owners(self, group_id: str, topic: str) -> dict[int, list[str]] | None:
        """Return the members that own each partition of a topic, if the consumer group is stable;
        None if it is not, or if there is no answer.
        """
        try:
            broker_id = await find_coordinator(self._connections, CoordinatorKind.GROUP, group_id)
            if isinstance(broker_id, ErrorCode):
                return None
            connection = await self._connections.to_broker(broker_id)
            answer = await connection.request(ConsumerGroupDescribeRequest(group_ids=[group_id]))
        except OSError:
            return None
        assert isinstance(answer, ConsumerGroupDescribeResponse), "ConsumerGroupDescribe was asked"
        group = answer.groups[0]
        if group.error_code or group.group_state != STABLE_GROUP:
            return None
        owners: dict[int, list[str]] = {}
        for member in group.members:
            for row in member.assignment.topic_partitions:
                for number in row.partitions if row.topic_name == topic else ():
                    owners.setdefault(number, []).append(member.member_id)
        return owners

    def close(self) -> None:
        """End the client."""
        self._connections.close()

    async def _is_decided(self, topic: str) -> bool:
        stable = await self.ends(topic, READ_COMMITTED)
        return bool(stable) and stable == await self.ends(topic)
