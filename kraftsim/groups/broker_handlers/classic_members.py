"""Requests of a member of a classic group, in the order in which it sends them: join, sync, then
heartbeats, and leave.

A rebalance has two phases. All members join, and the coordinator answers when all have or the time
is over; then the leader's sync brings the assignment, and each member's sync is answered with its
part. The rules are in `kraftsim.groups.rules_rebalance`.
"""

from typing import Final

from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.groups.rules_rebalance import JoinInput, SyncInput
from kraftsim.groups.rules_timing import GroupAnswer, JoinAnswer, SyncAnswer
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_VERSION_WITH_ID_FIRST: Final = 4
FIRST_VERSION_WITH_NULL_PROTOCOL: Final = 7
FIRST_VERSION_THAT_SKIPS: Final = 9


def handle_join_group(broker: GroupsBroker, call: Call) -> Answer | Deferred:
    """JoinGroup: join or rejoin a classic group; the response is sent when the rebalance completes
    its join phase.

    Respond with the new generation, or with the reason why the member is rejected.

    Source: kafka.server.KafkaApis.handleJoinGroupRequest, KIP-394, KIP-559, KIP-814.
    """
    request = call.body
    assert isinstance(request, JoinGroupRequest), "dispatch decodes by API key"
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return _answer_join_group(
            call.api_version, JoinAnswer(error=led, member_id=request.member_id)
        )
    asked = JoinInput(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=call.client_id or "",
        client_host=f"/{call.connection.peer.rpartition(':')[0]}",
        rebalance_timeout_ms=request.session_timeout_ms
        if request.rebalance_timeout_ms < 0
        else request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        fresh_id=broker.groups.fresh_member_id(),
        takes_id_first=call.api_version >= FIRST_VERSION_WITH_ID_FIRST,
        skips_assignment=call.api_version >= FIRST_VERSION_THAT_SKIPS,
    )
    later = Deferred()

    def on_answer(answer: GroupAnswer) -> None:
        assert isinstance(answer, JoinAnswer), "the answer to a join"
        later.complete(_answer_join_group(call.api_version, answer))

    led.ask(lambda waiter, now: led.shard.join(waiter, asked, now), on_answer)
    return later


def _answer_join_group(version: int, answer: JoinAnswer) -> JoinGroupResponse:
    no_protocol = None if version >= FIRST_VERSION_WITH_NULL_PROTOCOL else ""
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=no_protocol if answer.protocol_name is None else answer.protocol_name,
        leader=answer.leader_id,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=row.member_id,
                group_instance_id=row.group_instance_id,
                metadata=row.metadata,
            )
            for row in answer.members
        ],
    )


def refuse_join_group(call: Call, error: ErrorCode) -> Answer:
    """Return an error response."""
    return _answer_join_group(call.api_version, JoinAnswer(error=error))


JOIN_GROUP = Handler(key=ApiKey.JOIN_GROUP, handle=handle_join_group, refuse=refuse_join_group)


FIRST_VERSION_WITH_PROTOCOL: Final = 5


def handle_sync_group(broker: GroupsBroker, call: Call) -> Answer | Deferred:
    """SyncGroup: the leader submits all assignments; every member receives its own once they are
    stored.

    Respond with the member's assignment.

    During loading members must rejoin: REBALANCE_IN_PROGRESS.

    Source: kafka.server.KafkaApis.handleSyncGroupRequest,
    kafka.coordinator.group.GroupCoordinator.handleSyncGroup, KIP-559.
    """
    request = call.body
    assert isinstance(request, SyncGroupRequest), "dispatch decodes by API key"
    if call.api_version >= FIRST_VERSION_WITH_PROTOCOL and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        return _answer_sync_group(SyncAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    led = broker.groups.coordinated(request.group_id)
    if led is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return _answer_sync_group(SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
    if isinstance(led, ErrorCode):
        return _answer_sync_group(SyncAnswer(error=led))
    partition = led
    asked = SyncInput(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    later = Deferred()

    def on_answer(answer: GroupAnswer) -> None:
        assert isinstance(answer, SyncAnswer), "the answer to a sync"
        later.complete(_answer_sync_group(answer))

    partition.ask(lambda waiter, now: partition.shard.sync(waiter, asked, now), on_answer)
    return later


def _answer_sync_group(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


SYNC_GROUP = Handler(
    key=ApiKey.SYNC_GROUP,
    handle=handle_sync_group,
    refuse=lambda call, error: _answer_sync_group(SyncAnswer(error=error)),
)


def handle_heartbeat(broker: GroupsBroker, call: Call) -> Answer:
    """Heartbeat: keeps a member's session alive; the response tells whether the member must rejoin.

    Respond with the state of the group.

    During loading no member is rejected: all sessions restart afterwards.

    Source: kafka.coordinator.group.GroupCoordinator.handleHeartbeat.
    """
    request = call.body
    assert isinstance(request, HeartbeatRequest), "dispatch decodes by API key"
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return HeartbeatResponse(
            error_code=ErrorCode.NONE if led is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else led
        )
    error = led.settled(
        led.shard.heartbeat(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            led.now(),
        )
    )
    return HeartbeatResponse(error_code=error)


HEARTBEAT = Handler(
    key=ApiKey.HEARTBEAT,
    handle=handle_heartbeat,
    refuse=lambda call, error: HeartbeatResponse(error_code=error),
)


FIRST_VERSION_WITH_MEMBERS: Final = 3


def handle_leave_group(broker: GroupsBroker, call: Call) -> Answer:
    """LeaveGroup: members leave or are removed.

    Return a result for each member; up to version 2 there is one, and its error is at request
    level.

    Source: kafka.coordinator.group.GroupCoordinator.handleLeaveGroup, LeaveGroupResponse, KIP-345.
    """
    request = call.body
    assert isinstance(request, LeaveGroupRequest), "dispatch decodes by API key"
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return LeaveGroupResponse(error_code=led)
    members: list[tuple[str, str | None]] = [
        (each.member_id, each.group_instance_id) for each in request.members
    ]
    if call.api_version < FIRST_VERSION_WITH_MEMBERS:
        members = [(request.member_id, None)]
    errors = led.settled(led.shard.leave(request.group_id, members, led.now()))
    if isinstance(errors, ErrorCode):
        return LeaveGroupResponse(error_code=errors)
    if call.api_version < FIRST_VERSION_WITH_MEMBERS:
        return LeaveGroupResponse(error_code=errors[0])
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=error)
            for (member_id, instance_id), error in zip(members, errors, strict=True)
        ],
    )


LEAVE_GROUP = Handler(
    key=ApiKey.LEAVE_GROUP,
    handle=handle_leave_group,
    refuse=lambda call, error: LeaveGroupResponse(error_code=error),
)


HANDLERS = (
    JOIN_GROUP,
    SYNC_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
)
