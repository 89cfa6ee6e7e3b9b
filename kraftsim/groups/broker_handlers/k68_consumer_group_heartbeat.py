"""ConsumerGroupHeartbeat: a member of a consumer group joins, heartbeats, acknowledges its
partitions, or leaves.

Source: kafka.server.KafkaApis.handleConsumerGroupHeartbeat,
org.apache.kafka.coordinator.group.GroupCoordinatorService, KIP-848, KIP-1082; the texts were
verified against Apache Kafka 4.1.2 and 4.4.0.
"""

from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.expressions import InvalidExpression, client_expression
from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.groups.rules_assignors import Shares
from kraftsim.groups.rules_consumer_groups import HeartbeatInput
from kraftsim.groups.rules_timing import GroupAnswer, HeartbeatAnswer
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k68_consumer_group_heartbeat import (
    JOIN_GROUP_EPOCH,
    LEAVE_GROUP_STATIC_EPOCH,
    UNCHANGED_TIMEOUT,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

FIRST_VERSION_WITH_OWN_IDS: Final = 1
"""Since this version members generate their own ids."""


def handle(broker: GroupsBroker, call: Call) -> Answer | Deferred:
    """Respond with the member epoch, and with the assignment if it has changed; UNSUPPORTED_VERSION
    if consumer groups are disabled.
    """
    request = call.body
    assert isinstance(request, ConsumerGroupHeartbeatRequest), "dispatch decodes by API key"
    if not broker.groups.serves_consumers:
        return _answer(HeartbeatAnswer(error=ErrorCode.UNSUPPORTED_VERSION))
    refusal = refuse_request(request, call.api_version, broker.groups.consumer_assignors)
    if refusal is not None:
        return _answer(HeartbeatAnswer(error=refusal.error, why=refusal.why))
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return _answer(HeartbeatAnswer(error=led))
    names = request.subscribed_topic_names
    asked = HeartbeatInput(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_names=None if names is None else tuple(names),
        subscribed_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else _shares(request.topic_partitions),
        client_id=call.client_id or "",
        client_host=f"/{call.host}",
        fresh_id=broker.groups.fresh_consumer_id(),
    )
    later = Deferred()

    def on_answer(answer: GroupAnswer) -> None:
        assert isinstance(answer, HeartbeatAnswer), "the answer to a heartbeat"
        later.complete(_answer(answer))

    led.ask(lambda waiter, now: led.shard.consumer_heartbeat(waiter, asked, now), on_answer)
    return later


def refuse_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: tuple[str, ...]
) -> Refusal | None:
    """Return the error of a request that is invalid for any group: INVALID_REQUEST,
    UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION.
    """
    epoch = request.member_epoch
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            return _invalid(f"{name} can't be empty.")
    if not request.member_id.strip() and (
        api_version >= FIRST_VERSION_WITH_OWN_IDS or epoch != JOIN_GROUP_EPOCH
    ):
        return _invalid("MemberId can't be empty.")
    if epoch == JOIN_GROUP_EPOCH:
        if request.rebalance_timeout_ms == UNCHANGED_TIMEOUT:
            return _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            return _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            return _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == LEAVE_GROUP_STATIC_EPOCH and request.instance_id is None:
        return _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_GROUP_STATIC_EPOCH:
        return _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        why = (
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}."
        )
        return Refusal(ErrorCode.UNSUPPORTED_ASSIGNOR, why)
    return _refuse_expression(request.subscribed_topic_regex)


def _refuse_expression(expression: str | None) -> Refusal | None:
    if not expression:
        return None
    try:
        client_expression(expression)
    except InvalidExpression as mistake:
        why = (
            f"SubscribedTopicRegex `{expression}` is not a valid regular expression: "
            f"{mistake.description}."
        )
        return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, why)
    return None


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, why)


def _shares(rows: list[TopicPartitions]) -> Shares:
    shares: dict[bytes, tuple[int, ...]] = {}
    for row in rows:
        shares[row.topic_id] = tuple(sorted({*shares.get(row.topic_id, ()), *row.partitions}))
    return shares


def _answer(answer: HeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    assigned = answer.assigned
    rows = (
        None
        if assigned is None
        else [
            TopicPartitions(topic_id=topic_id, partitions=list(numbers))
            for topic_id, numbers in assigned.items()
        ]
    )
    return ConsumerGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.why,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if rows is None else Assignment(topic_partitions=rows),
    )


HANDLER = Handler(
    key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
    handle=handle,
    refuse=lambda call, error: ConsumerGroupHeartbeatResponse(error_code=error),
)
