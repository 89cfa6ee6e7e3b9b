"""SyncGroup: the leader submits all assignments; every member receives its own once they are
stored.

Source: kafka.server.KafkaApis.handleSyncGroupRequest,
kafka.coordinator.group.GroupCoordinator.handleSyncGroup, KIP-559.
"""

from typing import Final

from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.groups.rules_rebalance import SyncInput
from kraftsim.groups.rules_timing import GroupAnswer, SyncAnswer
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_VERSION_WITH_PROTOCOL: Final = 5


def handle(broker: GroupsBroker, call: Call) -> Answer | Deferred:
    """Respond with the member's assignment.

    During loading members must rejoin: REBALANCE_IN_PROGRESS.
    """
    request = call.body
    assert isinstance(request, SyncGroupRequest), "dispatch decodes by API key"
    if call.api_version >= FIRST_VERSION_WITH_PROTOCOL and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        return _answer(SyncAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    led = broker.groups.coordinated(request.group_id)
    if led is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return _answer(SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
    if isinstance(led, ErrorCode):
        return _answer(SyncAnswer(error=led))
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
        later.complete(_answer(answer))

    partition.ask(lambda waiter, now: partition.shard.sync(waiter, asked, now), on_answer)
    return later


def _answer(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


HANDLER = Handler(
    key=ApiKey.SYNC_GROUP,
    handle=handle,
    refuse=lambda call, error: _answer(SyncAnswer(error=error)),
)
