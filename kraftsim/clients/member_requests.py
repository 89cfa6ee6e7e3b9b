"""Requests and responses of group members, converted from and to the messages of the member state
machine.

Source: org.apache.kafka.clients.consumer.internals.{AbstractCoordinator, ConsumerCoordinator}.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, assert_never

from kraftsim.clients.cluster_connections import error_of
from kraftsim.clients.rules_group_member import (
    HeartbeatAnswered,
    Join,
    Joined,
    Leave,
    Left,
    MemberHeartbeat,
    MemberQuestion,
    MemberSettings,
    Subscriber,
    Sync,
    Synced,
    Versions,
)
from kraftsim.clients.rules_producer_steps import TopicPartition
from protocol.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
    build_assignment,
    build_subscription,
    parse_assignment,
    parse_subscription,
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
from protocol.schema import Message

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
        case _:
            assert_never(question)


def answered_to_member(answer: Message) -> Joined | Synced | HeartbeatAnswered | Left:
    """Convert a response."""
    match answer:
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
