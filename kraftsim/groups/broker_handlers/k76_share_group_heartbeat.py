"""ShareGroupHeartbeat: a member of a share group joins, heartbeats, or leaves.

Source: kafka.server.KafkaApis.handleShareGroupHeartbeat,
org.apache.kafka.coordinator.group.GroupCoordinatorService.shareGroupHeartbeat, KIP-932; the texts
were verified against Apache Kafka 4.2.2 and 4.4.0.
"""

from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.groups.rules_timing import GroupAnswer
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k76_share_group_heartbeat import (
    JOINING_MEMBER_EPOCH,
    LEAVING_MEMBER_EPOCH,
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

MEMBER_ID_LENGTH_MAX: Final = 36


def handle(broker: GroupsBroker, call: Call) -> Answer | Deferred:
    """Respond with the member epoch, and with the assignment if it has changed; UNSUPPORTED_VERSION
    if share groups are disabled.
    """
    from kraftsim.groups.rules_share_groups import (
        ShareGroups,
        ShareHeartbeatAnswer,
        ShareHeartbeatInput,
    )

    request = call.body
    assert isinstance(request, ShareGroupHeartbeatRequest), "dispatch decodes by API key"
    if not broker.groups.serves_shares:
        return refuse(call, ErrorCode.UNSUPPORTED_VERSION)
    if not is_member_id(request.member_id):
        return refuse(call, ErrorCode.INVALID_REQUEST)
    refusal = refuse_request(request)
    if refusal is not None:
        return _refused(refusal.error, refusal.why)
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return _refused(led, None)
    partition = led
    names = request.subscribed_topic_names
    asked = ShareHeartbeatInput(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        subscribed_names=None if names is None else tuple(names),
        client_id=call.client_id or "",
        client_host=f"/{call.host}",
    )
    later = Deferred()

    def on_answer(answer: GroupAnswer) -> None:
        assert isinstance(answer, ShareHeartbeatAnswer), "the answer to a heartbeat"
        rows = [
            TopicPartitions(topic_id=topic_id, partitions=list(numbers))
            for topic_id, numbers in (answer.assigned or {}).items()
        ]
        later.complete(
            ShareGroupHeartbeatResponse(
                error_code=answer.error,
                error_message=answer.why,
                member_id=answer.member_id,
                member_epoch=answer.member_epoch,
                heartbeat_interval_ms=answer.heartbeat_interval_ms,
                assignment=None if answer.assigned is None else Assignment(topic_partitions=rows),
            )
        )
        if answer.initial:
            broker.groups.share_states.initialize(partition, request.group_id, answer.initial)

    partition.ask(
        lambda waiter, now: partition.shard.ask_type(
            ShareGroups, lambda shares: shares.heartbeat(waiter, asked, now)
        ),
        on_answer,
    )
    return later


def refuse_request(request: ShareGroupHeartbeatRequest) -> Refusal | None:
    """Return the error of a request that is invalid for any group: INVALID_REQUEST."""
    for name, text in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            return Refusal(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    epoch = request.member_epoch
    if epoch == JOINING_MEMBER_EPOCH and not request.subscribed_topic_names:
        why = "SubscribedTopicNames must be set in first request."
        return Refusal(ErrorCode.INVALID_REQUEST, why)
    if epoch < LEAVING_MEMBER_EPOCH:
        return Refusal(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    return None


def is_member_id(text: str) -> bool:
    """Return whether a text may be a member id: at most 36 characters of UTF-16, as many as a UUID
    has.
    """
    return 0 < len(text.encode("utf-16-be", "surrogatepass")) // 2 <= MEMBER_ID_LENGTH_MAX


def _refused(error: ErrorCode, why: str | None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error, error_message=why)


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return an error response."""
    return _refused(error, None)


HANDLER = Handler(key=ApiKey.SHARE_GROUP_HEARTBEAT, handle=handle, refuse=refuse)
