"""DeleteTopics (20): deletes topics by name or by id; answered when that is committed. Brokers
delete the logs when they replay the records.

Source: KIP-4, KIP-516, kafka.server.ControllerApis.deleteTopics,
ReplicationControlManager.deleteTopics.
"""

from kraftsim.core.decision import Refusal
from kraftsim.metadata.deciding_controller import MutationController
from kraftsim.metadata.rules_topic_table import TopicTable
from kraftsim.metadata.rules_topics import DeletedTopic, TopicToDelete
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.mutation_quotas import QUOTA_EXCEEDED
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

DISABLED_SINCE = 3
"""The first version with TOPIC_DELETION_DISABLED."""
STATES_SINCE = 6
"""The first version that names topics by name or by id; earlier ones have names only."""

STRICT_SINCE = 5
"""The first version whose clients support THROTTLING_QUOTA_EXCEEDED."""


def handle(controller: MutationController, call: Call) -> Answer | Deferred:
    """Answer per topic, once the deletions are committed."""
    request = call.body
    assert isinstance(request, DeleteTopicsRequest), "dispatch decodes by API key"
    if not controller.config.delete_topic_enable:
        return _refuse(
            call,
            ErrorCode.TOPIC_DELETION_DISABLED
            if call.api_version >= DISABLED_SINCE
            else ErrorCode.INVALID_REQUEST,
        )
    if request.timeout_ms <= 0:
        return _refuse(call, ErrorCode.REQUEST_TIMED_OUT)
    replication = controller.metadata_writer.state.replication
    allowance = controller.mutations.allowance(call, is_strict=call.api_version >= STRICT_SINCE)
    asked = _asked(request, call.api_version)
    admitted = [
        topic for topic in asked if allowance.admits(_partition_count(replication.topics, topic))
    ]
    exceeded = Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, QUOTA_EXCEEDED)
    over: list[DeletedTopic] = []
    if len(admitted) < len(asked):
        kept = frozenset(admitted)
        over = [
            DeletedTopic(name=topic.name, topic_id=topic.topic_id, refusal=exceeded)
            for topic in asked
            if topic not in kept
        ]
    decision = replication.decide_delete_topics(admitted)
    if isinstance(decision, Refusal):
        return _refuse(call, decision.error)
    results = [_result(result) for result in [*decision.result, *over]]
    return controller.metadata_writer.commit(
        decision,
        lambda offsets: DeleteTopicsResponse(
            throttle_time_ms=allowance.pause_ms, responses=results
        ),
    )


def _partition_count(topics: TopicTable, asked: TopicToDelete) -> int:
    known = topics.topic(asked.topic_id) if asked.name is None else topics.topic_named(asked.name)
    return 0 if known is None else len(known.partitions)


def _asked(request: DeleteTopicsRequest, version: int) -> list[TopicToDelete]:
    if version < STATES_SINCE:
        return [TopicToDelete(name=name) for name in request.topic_names]
    return [TopicToDelete(name=topic.name, topic_id=topic.topic_id) for topic in request.topics]


def _result(result: DeletedTopic) -> DeletableTopicResult:
    refusal = result.refusal
    return DeletableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=ErrorCode.NONE if refusal is None else refusal.error,
        error_message=None if refusal is None else refusal.message,
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, DeleteTopicsRequest), "dispatch decodes by API key"
    asked = _asked(call.body, call.api_version)
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error)
            for topic in asked
        ]
    )


HANDLER: Handler[MutationController] = Handler(
    key=ApiKey.DELETE_TOPICS, handle=handle, refuse=_refuse
)
