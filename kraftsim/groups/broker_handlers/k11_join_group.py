"""JoinGroup: join or rejoin a classic group; the response is sent when the rebalance completes its
join phase.

Source: kafka.server.KafkaApis.handleJoinGroupRequest, KIP-394, KIP-559, KIP-814.
"""

from typing import Final

from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.groups.rules_rebalance import JoinInput
from kraftsim.groups.rules_timing import GroupAnswer, JoinAnswer
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

FIRST_VERSION_WITH_ID_FIRST: Final = 4
FIRST_VERSION_WITH_NULL_PROTOCOL: Final = 7
FIRST_VERSION_THAT_SKIPS: Final = 9


def handle(broker: GroupsBroker, call: Call) -> Answer | Deferred:
    """Respond with the new generation, or with the reason why the member is rejected."""
    request = call.body
    assert isinstance(request, JoinGroupRequest), "dispatch decodes by API key"
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return _answer(call.api_version, JoinAnswer(error=led, member_id=request.member_id))
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
        later.complete(_answer(call.api_version, answer))

    led.ask(lambda waiter, now: led.shard.join(waiter, asked, now), on_answer)
    return later


def _answer(version: int, answer: JoinAnswer) -> JoinGroupResponse:
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


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return an error response."""
    return _answer(call.api_version, JoinAnswer(error=error))


HANDLER = Handler(key=ApiKey.JOIN_GROUP, handle=handle, refuse=refuse)
