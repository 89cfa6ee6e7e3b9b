"""Requests that create and delete topics, and add partitions to them: each topic independently of
the others, in one batch of the metadata log.
"""

from copy import copy

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.deciding_controller import MutationController, decide
from kraftsim.metadata.events import TopicRefused
from kraftsim.metadata.metadata_writer import BatchTooLarge
from kraftsim.metadata.rules_topic_table import TopicTable
from kraftsim.metadata.rules_topics import (
    DeletedTopic,
    ExpandedTopic,
    NewTopic,
    RefusedTopic,
    TopicToDelete,
)
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.client_quotas import QUOTA_EXCEEDED
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

# --------------------------------------------------------------------------------------------------
# CreateTopics (19): creates topics independently of each other, in one batch of the metadata log;
# answered when it is committed
#
# Source: KIP-4, kafka.server.ControllerApis.createTopics, ReplicationControlManager.createTopics.

CREATION_STRICT_SINCE = 6
"""The first version whose clients support THROTTLING_QUOTA_EXCEEDED."""


def handle_create_topics(controller: MutationController, call: Call) -> Answer | Deferred:
    """Answer per topic, once the created topics are committed."""
    request = call.body
    assert isinstance(request, CreateTopicsRequest), "dispatch decodes by API key"
    if request.topics and request.timeout_ms <= 0:
        return _refused_whole(request, Refusal(ErrorCode.REQUEST_TIMED_OUT))
    allowance = controller.mutations.allowance(
        call, is_strict=call.api_version >= CREATION_STRICT_SINCE
    )
    counts = {
        topic.name: len(topic.assignments) or max(topic.num_partitions, 1)
        for topic in request.topics
    }
    admitted = [topic for topic in request.topics if allowance.admits(counts[topic.name])]
    kept = {topic.name for topic in admitted}
    over = [
        RefusedTopic(
            name=name, refusal=Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, QUOTA_EXCEEDED)
        )
        for name in counts
        if name not in kept
    ]
    allowed = copy(request)
    allowed.topics = admitted

    def carry_out(decision: Decision[list[NewTopic | RefusedTopic]] | Refusal) -> Answer | Deferred:
        if isinstance(decision, Refusal):
            return _refused_whole(request, decision)
        for result in decision.result:
            if isinstance(result, RefusedTopic):
                allowance.give_back(counts.get(result.name, 0))
                controller.world.emit(
                    TopicRefused(
                        topic=result.name,
                        error_code=result.refusal.error,
                        reason=result.refusal.why,
                    )
                )
        try:
            results = [row_of(result) for result in [*decision.result, *over]]
            return controller.metadata_writer.commit(
                decision,
                lambda offsets: CreateTopicsResponse(
                    throttle_time_ms=allowance.pause_ms, topics=results
                ),
            )
        except BatchTooLarge as too_large:
            return _refused_whole(request, Refusal(ErrorCode.RECORD_LIST_TOO_LARGE, str(too_large)))

    rng = controller.world.random("topics")
    return decide(
        controller,
        call,
        lambda: controller.metadata_writer.state.replication.create_topics_steps(allowed, rng),
        carry_out,
    )


def row_of(result: NewTopic | RefusedTopic) -> CreatableTopicResult:
    """Return the result of a topic as a row of the response."""
    if isinstance(result, RefusedTopic):
        return CreatableTopicResult(
            name=result.name, error_code=result.refusal.error, error_message=result.refusal.message
        )
    return CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_message=None,
        num_partitions=result.partition_count,
        replication_factor=result.replication_factor,
        configs=[
            CreatableTopicConfigs(name=config.name, value=config.value, config_source=config.source)
            for config in result.configs
        ],
    )


def _refused_whole(request: CreateTopicsRequest, refusal: Refusal) -> CreateTopicsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=name, error_code=refusal.error, error_message=refusal.message)
            for name in names
        ]
    )


def _refuse_create_topics(call: Call, error: ErrorCode) -> Answer:
    return _refused_whole(call.body, Refusal(error))


CREATE_TOPICS: Handler[MutationController] = Handler(
    key=ApiKey.CREATE_TOPICS, handle=handle_create_topics, refuse=_refuse_create_topics
)


# --------------------------------------------------------------------------------------------------
# DeleteTopics (20): deletes topics by name or by id; answered when that is committed. Brokers
# delete the logs when they replay the records.
#
# Source: KIP-4, KIP-516, kafka.server.ControllerApis.deleteTopics,
# ReplicationControlManager.deleteTopics.

DISABLED_SINCE = 3
"""The first version with TOPIC_DELETION_DISABLED."""
STATES_SINCE = 6
"""The first version that names topics by name or by id; earlier ones have names only."""

DELETION_STRICT_SINCE = 5
"""The first version whose clients support THROTTLING_QUOTA_EXCEEDED."""


def handle_delete_topics(controller: MutationController, call: Call) -> Answer | Deferred:
    """Answer per topic, once the deletions are committed."""
    request = call.body
    assert isinstance(request, DeleteTopicsRequest), "dispatch decodes by API key"
    if not controller.config.delete_topic_enable:
        return _refuse_delete_topics(
            call,
            ErrorCode.TOPIC_DELETION_DISABLED
            if call.api_version >= DISABLED_SINCE
            else ErrorCode.INVALID_REQUEST,
        )
    if request.timeout_ms <= 0:
        return _refuse_delete_topics(call, ErrorCode.REQUEST_TIMED_OUT)
    replication = controller.metadata_writer.state.replication
    allowance = controller.mutations.allowance(
        call, is_strict=call.api_version >= DELETION_STRICT_SINCE
    )
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
        return _refuse_delete_topics(call, decision.error)
    results = [_result_delete_topics(result) for result in [*decision.result, *over]]
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


def _result_delete_topics(result: DeletedTopic) -> DeletableTopicResult:
    refusal = result.refusal
    return DeletableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=ErrorCode.NONE if refusal is None else refusal.error,
        error_message=None if refusal is None else refusal.message,
    )


def _refuse_delete_topics(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, DeleteTopicsRequest), "dispatch decodes by API key"
    asked = _asked(call.body, call.api_version)
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error)
            for topic in asked
        ]
    )


DELETE_TOPICS: Handler[MutationController] = Handler(
    key=ApiKey.DELETE_TOPICS, handle=handle_delete_topics, refuse=_refuse_delete_topics
)


# --------------------------------------------------------------------------------------------------
# CreatePartitions (37): adds partitions to topics, independently of each other, in one batch of the
# metadata log; answered when it is committed
#
# Source: KIP-195, kafka.server.ControllerApis.createPartitions,
# ReplicationControlManager.createPartitions.

EXPANSION_STRICT_SINCE = 3
"""The first version whose clients support THROTTLING_QUOTA_EXCEEDED."""


def handle_create_partitions(controller: MutationController, call: Call) -> Answer | Deferred:
    """Answer per topic, once the new partitions are committed."""
    request = call.body
    assert isinstance(request, CreatePartitionsRequest), "dispatch decodes by API key"
    if request.timeout_ms <= 0:
        return _refuse_create_partitions(call, ErrorCode.REQUEST_TIMED_OUT)
    replication = controller.metadata_writer.state.replication
    allowance = controller.mutations.allowance(
        call, is_strict=call.api_version >= EXPANSION_STRICT_SINCE
    )
    added = {topic.name: _added_count(replication.topics, topic) for topic in request.topics}
    allowed = copy(request)
    allowed.topics = [topic for topic in request.topics if allowance.admits(added[topic.name])]
    kept = {topic.name for topic in allowed.topics}
    over = [
        ExpandedTopic(
            name=name, refusal=Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, QUOTA_EXCEEDED)
        )
        for name in added
        if name not in kept
    ]

    def carry_out(decision: Decision[list[ExpandedTopic]]) -> Answer | Deferred:
        for result in decision.result:
            if result.refusal is not None:
                allowance.give_back(added[result.name])
        results = [_result_create_partitions(result) for result in [*decision.result, *over]]
        return controller.metadata_writer.commit(
            decision,
            lambda offsets: CreatePartitionsResponse(
                throttle_time_ms=allowance.pause_ms, results=results
            ),
        )

    rng = controller.world.random("topics")
    return decide(
        controller,
        call,
        lambda: controller.metadata_writer.state.replication.create_partitions_steps(allowed, rng),
        carry_out,
    )


def _added_count(topics: TopicTable, asked: CreatePartitionsTopic) -> int:
    known = topics.topic_named(asked.name)
    return 0 if known is None else max(asked.count - len(known.partitions), 0)


def _result_create_partitions(result: ExpandedTopic) -> CreatePartitionsTopicResult:
    refusal = Refusal(ErrorCode.NONE) if result.refusal is None else result.refusal
    return CreatePartitionsTopicResult(
        name=result.name, error_code=refusal.error, error_message=refusal.message
    )


def _refuse_create_partitions(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, CreatePartitionsRequest), "dispatch decodes by API key"
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error)
            for topic in call.body.topics
        ]
    )


CREATE_PARTITIONS: Handler[MutationController] = Handler(
    key=ApiKey.CREATE_PARTITIONS, handle=handle_create_partitions, refuse=_refuse_create_partitions
)


HANDLERS = (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CREATE_PARTITIONS,
)
