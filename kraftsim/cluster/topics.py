"""Admin operations of scenarios: create a topic, elect preferred leaders, and wait for replicas to
be in sync.

Each of them retries until it succeeds: the caller bounds the time.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from kraftsim.events.event import Event
from kraftsim.partitions.events import ReplicaInSync
from kraftsim.server.outbound import PeerConnection
from kraftsim.server.security.login import LinkSecurity
from protocol.errors import ErrorCode
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
from protocol.schema import Message

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
) -> None:
    """Create a topic; return when every broker reports a leader for each partition and all replicas
    in sync. An existing topic is used as it is.

    Retries without a limit; raises TopicFailed for an error that is not retriable.
    """
    turn = 0
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=replicas)
    while not await _try_to_create(*brokers[turn % len(brokers)], wanted, security):
        turn += 1
        await asyncio.sleep(RETRY_SECONDS)
    await wait_for_replicas(brokers, topic, partitions, security=security)


async def wait_for_replicas(
    brokers: Sequence[tuple[str, int]],
    topic: str,
    partitions: int,
    *,
    security: LinkSecurity | None = None,
) -> dict[int, tuple[int, ...]]:
    """Return the in-sync replicas by partition, when every broker reports a leader for each
    partition and all its replicas in sync.
    """
    known: dict[int, tuple[int, ...]] = {}
    for host, port in brokers:
        while len(known := await _all_in_sync(host, port, topic, security)) < partitions:
            await asyncio.sleep(RETRY_SECONDS)
    return known


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
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    answer = await _ask(host, port, request, security)
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
