"""Requests and responses of group members: those of the member state machine, and those about
committed offsets.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, assert_never

from kraftsim.clients.cluster_connections import error_of
from kraftsim.clients.rules_member_steps import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswered,
    GroupProtocol,
    HeartbeatAnswered,
    Join,
    Joined,
    Leave,
    Left,
    MemberHeartbeat,
    MemberQuestion,
    MemberSettings,
    StreamsHeartbeatAnswered,
    StreamsMemberHeartbeat,
    Subscriber,
    Sync,
    Synced,
    Versions,
)
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
from protocol.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.messages.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.messages.k76_share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from protocol.messages.k88_streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)
from protocol.schema import Message
from protocol.version_prefixed import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
    build_assignment,
    build_subscription,
    parse_assignment,
    parse_subscription,
)

# --------------------------------------------------------------------------------------------------
# Requests and responses of group members, converted from and to the messages of the member state
# machine
#
# Source: org.apache.kafka.clients.consumer.internals.{AbstractCoordinator, ConsumerCoordinator}.

PROTOCOL_TYPE = "consumer"
VERSIONS: Final = Struct(">ii")
FIRST_LEAVE_OF_SEVERAL = 3
JOIN_GRACE_MS = 5000
"""The request timeout of JoinGroup, beyond the rebalance timeout."""


def request_of_member(
    question: MemberQuestion, settings: MemberSettings, leave_version: int
) -> Message:
    """Build the request; LeaveGroup has two forms."""
    match question:
        case Join(member_id=member_id):
            return JoinGroupRequest(
                group_id=settings.group_id,
                session_timeout_ms=settings.session_timeout_ms,
                rebalance_timeout_ms=settings.rebalance_timeout_ms,
                member_id=member_id,
                group_instance_id=settings.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[
                    JoinGroupRequestProtocol(
                        name=settings.assignor, metadata=_subscription(question, settings)
                    )
                ],
            )
        case Sync(
            member_id=member_id,
            generation_id=generation_id,
            protocol=protocol,
            assignment=assignment,
            versions=versions,
        ):
            return SyncGroupRequest(
                group_id=settings.group_id,
                generation_id=generation_id,
                member_id=member_id,
                group_instance_id=settings.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=protocol,
                assignments=[
                    SyncGroupRequestAssignment(
                        member_id=each, assignment=_assignment(partitions, versions)
                    )
                    for each, partitions in assignment.items()
                ],
            )
        case MemberHeartbeat(member_id=member_id, generation_id=generation_id):
            return HeartbeatRequest(
                group_id=settings.group_id,
                generation_id=generation_id,
                member_id=member_id,
                group_instance_id=settings.group_instance_id,
            )
        case Leave(member_id):
            if leave_version >= FIRST_LEAVE_OF_SEVERAL:
                leaving = MemberIdentity(
                    member_id=member_id, group_instance_id=settings.group_instance_id
                )
                return LeaveGroupRequest(group_id=settings.group_id, members=[leaving])
            return LeaveGroupRequest(group_id=settings.group_id, member_id=member_id)
        case ConsumerHeartbeat():
            if settings.group_protocol is GroupProtocol.SHARE:
                return ShareGroupHeartbeatRequest(
                    group_id=settings.group_id,
                    member_id=question.member_id,
                    member_epoch=question.member_epoch,
                    subscribed_topic_names=None
                    if question.topics is None
                    else list(question.topics),
                )
            return _consumer_heartbeat(question, settings)
        case StreamsMemberHeartbeat():
            return _streams_heartbeat(question, settings)
        case _:
            assert_never(question)


def _consumer_heartbeat(
    question: ConsumerHeartbeat, settings: MemberSettings
) -> ConsumerGroupHeartbeatRequest:
    """Build the heartbeat; all of them have the instance id."""
    owned = question.owned
    return ConsumerGroupHeartbeatRequest(
        group_id=settings.group_id,
        member_id=question.member_id,
        member_epoch=question.member_epoch,
        instance_id=settings.group_instance_id,
        rebalance_timeout_ms=question.rebalance_timeout_ms,
        subscribed_topic_names=None if question.topics is None else list(question.topics),
        subscribed_topic_regex=question.expression,
        server_assignor=None if question.topics is None else settings.group_remote_assignor,
        topic_partitions=None
        if owned is None
        else [
            TopicPartitions(topic_id=topic_id, partitions=list(numbers))
            for topic_id, numbers in owned.items()
        ],
    )


def _streams_heartbeat(
    question: StreamsMemberHeartbeat, settings: MemberSettings
) -> StreamsGroupHeartbeatRequest:
    """Build the heartbeat; all of them have the instance id, and if one has active tasks, it has
    those of the other roles, too.
    """
    active = question.active
    request = StreamsGroupHeartbeatRequest(
        group_id=settings.group_id,
        member_id=question.member_id,
        member_epoch=question.member_epoch,
        instance_id=settings.group_instance_id,
    )
    if active is not None:
        request.active_tasks = [
            TaskIds(subtopology_id=name, partitions=list(numbers))
            for name, numbers in active.items()
        ]
        request.standby_tasks, request.warmup_tasks = [], []
    if question.joins:
        request.rebalance_timeout_ms = settings.rebalance_timeout_ms
        request.process_id, request.client_tags = settings.process_id, []
        request.topology = Topology(
            epoch=0,
            subtopologies=[
                Subtopology(subtopology_id=name, source_topics=list(topics))
                for name, topics in settings.subtopologies.items()
            ],
        )
    return request


def answered_to_member(
    answer: Message,
) -> (
    Joined
    | Synced
    | HeartbeatAnswered
    | Left
    | ConsumerHeartbeatAnswered
    | StreamsHeartbeatAnswered
):
    """Convert a response."""
    match answer:
        case StreamsGroupHeartbeatResponse(active_tasks=active):
            return StreamsHeartbeatAnswered(
                error_code=error_of(answer.error_code),
                member_epoch=answer.member_epoch,
                heartbeat_interval_ms=answer.heartbeat_interval_ms,
                active=None
                if active is None
                else {row.subtopology_id: tuple(row.partitions) for row in active},
            )
        case (
            ConsumerGroupHeartbeatResponse(assignment=assignment)
            | ShareGroupHeartbeatResponse(assignment=assignment)
        ):
            return ConsumerHeartbeatAnswered(
                error_code=error_of(answer.error_code),
                member_epoch=answer.member_epoch,
                heartbeat_interval_ms=answer.heartbeat_interval_ms,
                assigned=None
                if assignment is None
                else {row.topic_id: tuple(row.partitions) for row in assignment.topic_partitions},
            )
        case JoinGroupResponse():
            is_leader = bool(answer.member_id) and answer.leader == answer.member_id
            members = (
                tuple(_subscriber(each.member_id, each.metadata) for each in answer.members)
                if is_leader
                else ()
            )
            return Joined(
                error_code=error_of(answer.error_code),
                member_id=answer.member_id,
                generation_id=answer.generation_id,
                protocol=answer.protocol_name or "",
                is_leader=is_leader,
                members=members,
            )
        case SyncGroupResponse():
            partitions, versions = _given(answer.assignment)
            return Synced(
                error_code=error_of(answer.error_code), partitions=partitions, versions=versions
            )
        case HeartbeatResponse():
            return HeartbeatAnswered(error_of(answer.error_code))
        case LeaveGroupResponse():
            return Left()
    raise AssertionError(f"{type(answer).__name__} is not a response for a member")


def _subscription(question: Join, settings: MemberSettings) -> bytes:
    owned = [
        OwnedPartitions(topic=topic, partitions=indexes)
        for topic, indexes in by_topic(question.owned).items()
    ]
    return build_subscription(
        ConsumerProtocolSubscription(
            topics=list(settings.topics),
            user_data=_user_data(question.versions),
            owned_partitions=owned,
            generation_id=question.generation_id,
        )
    )


def _subscriber(member_id: str, metadata: bytes) -> Subscriber:
    found = parse_subscription(metadata)
    owned = tuple(
        TopicPartition(each.topic, index)
        for each in found.owned_partitions
        for index in each.partitions
    )
    return Subscriber(
        member_id=member_id,
        topics=tuple(found.topics),
        owned=owned,
        owned_generation_id=found.generation_id,
        versions=_versions(found.user_data),
    )


def _assignment(partitions: Iterable[TopicPartition], versions: Versions | None) -> bytes:
    assigned = [
        AssignedPartitions(topic=topic, partitions=indexes)
        for topic, indexes in by_topic(partitions).items()
    ]
    return build_assignment(
        ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=_user_data(versions))
    )


def _given(assignment: bytes) -> tuple[tuple[TopicPartition, ...], Versions | None]:
    if not assignment:
        return (), None
    found = parse_assignment(assignment)
    partitions = sorted(
        TopicPartition(each.topic, index)
        for each in found.assigned_partitions
        for index in each.partitions
    )
    return tuple(partitions), _versions(found.user_data)


def _user_data(versions: Versions | None) -> bytes | None:
    """Return the first bytes of the user data of Kafka Streams since version 3: two int32
    (SubscriptionInfo, AssignmentInfo).
    """
    return None if versions is None else VERSIONS.pack(*versions)


def _versions(user_data: bytes | None) -> Versions | None:
    return (
        None
        if user_data is None or len(user_data) < VERSIONS.size
        else Versions(*VERSIONS.unpack_from(user_data))
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partitions of each topic."""
    found: dict[str, list[int]] = {}
    for where in partitions:
        found.setdefault(where.topic, []).append(where.partition)
    return found


# --------------------------------------------------------------------------------------------------
# How a consumer fetches its group's committed offsets, and commits without a transaction
#
# Source: org.apache.kafka.clients.consumer.internals.ConsumerCoordinator, KIP-447 (RequireStable).

LAST_WITH_TOPIC_NAMES = 9
FIRST_WITH_GROUPS = 8
FIRST_WITH_EPOCHS = 9
"""The first OffsetFetch with the member epoch of a consumer group."""
FIRST_STABLE = 7
LAST_WITHOUT_STABLE = 6
"""The last OffsetFetch of pre-KIP-447 clients."""


async def fetch_offsets(
    connection: PeerConnection,
    group_id: str,
    partitions: Sequence[TopicPartition],
    *,
    require_stable: bool,
    member: GroupIdentity | None = None,
) -> dict[TopicPartition, tuple[ErrorCode, int]]:
    """Return error and offset of each partition; a group-level error is copied to each. A member of
    a consumer group sends its epoch.

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
        if member is not None and version >= FIRST_WITH_EPOCHS:
            request.groups[0].member_id = member.member_id
            request.groups[0].member_epoch = member.generation_id
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
        group_instance_id=group.group_instance_id,
        topics=topics,
    )
    answer = await connection.request(request, api_version=version)
    assert isinstance(answer, OffsetCommitResponse), "the response of OffsetCommit"
    errors = [error_of(each.error_code) for topic in answer.topics for each in topic.partitions]
    return next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)
