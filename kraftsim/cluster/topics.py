"""Creates a topic as an admin client does, and waits until every partition has a leader that all brokers know of."""

import asyncio
from collections.abc import Sequence

from kraftsim.node.outbound import PeerConnection
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

ADMIN_CLIENT_ID = "kraftsim-admin"
TIMEOUT_MS = 10_000
RETRY_SECONDS = 0.05


class TopicFailed(RuntimeError):
    """A topic could not be created, for a reason that no retry heals."""


async def create_topic(brokers: Sequence[tuple[str, int]], topic: str, partitions: int) -> None:
    """Create a topic with replication factor 1; return when every broker names a leader for each partition. A topic that is there is taken as it is.

    Retries for as long as it takes; raises TopicFailed for an answer that will not change.
    """
    turn = 0
    while not await _try_to_create(*brokers[turn % len(brokers)], topic, partitions):
        turn += 1
        await asyncio.sleep(RETRY_SECONDS)
    for host, port in brokers:
        while not await _has_leaders(host, port, topic, partitions):
            await asyncio.sleep(RETRY_SECONDS)


async def _try_to_create(host: str, port: int, topic: str, partitions: int) -> bool:
    request = CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)], timeout_ms=TIMEOUT_MS)
    connection = PeerConnection(host, port, client_id=ADMIN_CLIENT_ID)
    try:
        await connection.connect(timeout_ms=TIMEOUT_MS)
        answer = await connection.request(request, timeout_ms=TIMEOUT_MS)
    except OSError:
        return False
    finally:
        connection.close()
    assert isinstance(answer, CreateTopicsResponse), "CreateTopics was asked"
    result = answer.topics[0]
    if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return True
    if ErrorCode(result.error_code).retriable or result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR:
        return False  # brokers may still be on their way
    raise TopicFailed(f"topic {topic} was refused: {ErrorCode(result.error_code).name} {result.error_message or ''}".rstrip())


async def _has_leaders(host: str, port: int, topic: str, partitions: int) -> bool:
    connection = PeerConnection(host, port, client_id=ADMIN_CLIENT_ID)
    try:
        await connection.connect(timeout_ms=TIMEOUT_MS)
        answer = await connection.request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False))
    except OSError:
        return False
    finally:
        connection.close()
    assert isinstance(answer, MetadataResponse), "Metadata was asked"
    leaders = [partition.leader_id for partition in answer.topics[0].partitions]
    return len(leaders) >= partitions and all(leader >= 0 for leader in leaders)
