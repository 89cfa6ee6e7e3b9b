"""How a consumer fetches its group's committed offsets, and commits without a transaction.

Source: org.apache.kafka.clients.consumer.internals.ConsumerCoordinator, KIP-447 (RequireStable).
"""

from collections.abc import Mapping, Sequence

from kraftsim.clients.cluster_connections import error_of
from kraftsim.clients.member_requests import by_topic
from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.clients.rules_transaction_steps import GroupIdentity
from kraftsim.server.outbound import PeerConnection
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

LAST_WITH_TOPIC_NAMES = 9
FIRST_WITH_GROUPS = 8
FIRST_STABLE = 7
LAST_WITHOUT_STABLE = 6
"""The last OffsetFetch of pre-KIP-447 clients."""


async def fetch_offsets(
    connection: PeerConnection,
    group_id: str,
    partitions: Sequence[TopicPartition],
    *,
    require_stable: bool,
) -> dict[TopicPartition, tuple[ErrorCode, int]]:
    """Return error and offset of each partition; a group-level error is copied to each.

    Raises OSError.
    """
    version = min(
        connection.version_for(ApiKey.OFFSET_FETCH),
        LAST_WITH_TOPIC_NAMES if require_stable else LAST_WITHOUT_STABLE,
    )
    request = OffsetFetchRequest()
    if version >= FIRST_STABLE:
        request.require_stable = require_stable
    if version >= FIRST_WITH_GROUPS:
        asked = [
            OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
        request.groups = [OffsetFetchRequestGroup(group_id=group_id, topics=asked)]
    else:
        request.group_id = group_id
        request.topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
    answer = await connection.request(request, api_version=version)
    assert isinstance(answer, OffsetFetchResponse), "the response of OffsetFetch"
    whole = answer.groups[0] if version >= FIRST_WITH_GROUPS else answer
    if whole.error_code != ErrorCode.NONE:
        return dict.fromkeys(partitions, (error_of(whole.error_code), -1))
    return {
        TopicPartition(topic.name, each.partition_index): (
            error_of(each.error_code),
            each.committed_offset,
        )
        for topic in whole.topics
        for each in topic.partitions
    }


async def commit_offsets(
    connection: PeerConnection, group: GroupIdentity, offsets: Mapping[TopicPartition, int]
) -> ErrorCode:
    """Commit without a transaction; return the first error, if there is one. Raises OSError."""
    version = min(connection.version_for(ApiKey.OFFSET_COMMIT), LAST_WITH_TOPIC_NAMES)
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offsets[TopicPartition(name, index)],
                    committed_metadata="",
                )
                for index in indexes
            ],
        )
        for name, indexes in by_topic(offsets).items()
    ]
    request = OffsetCommitRequest(
        group_id=group.group_id,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        topics=topics,
    )
    answer = await connection.request(request, api_version=version)
    assert isinstance(answer, OffsetCommitResponse), "the response of OffsetCommit"
    errors = [error_of(each.error_code) for topic in answer.topics for each in topic.partitions]
    return next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)
