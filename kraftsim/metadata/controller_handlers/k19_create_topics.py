"""CreateTopics (19): creates topics independently of each other, in one batch of the metadata log;
answered when it is committed.

Source: KIP-4, kafka.server.ControllerApis.createTopics, ReplicationControlManager.createTopics.
"""

from copy import copy

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.controller_deciding import decide
from kraftsim.metadata.deciding_controller import MutationController
from kraftsim.metadata.events import TopicRefused
from kraftsim.metadata.metadata_writer import BatchTooLarge
from kraftsim.metadata.rules_topics import NewTopic, RefusedTopic
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.mutation_quotas import QUOTA_EXCEEDED
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

STRICT_SINCE = 6
"""The first version whose clients support THROTTLING_QUOTA_EXCEEDED."""


def handle(controller: MutationController, call: Call) -> Answer | Deferred:
    """Answer per topic, once the created topics are committed."""
    request = call.body
    assert isinstance(request, CreateTopicsRequest), "dispatch decodes by API key"
    if request.topics and request.timeout_ms <= 0:
        return _refused_whole(request, Refusal(ErrorCode.REQUEST_TIMED_OUT))
    allowance = controller.mutations.allowance(call, is_strict=call.api_version >= STRICT_SINCE)
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


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return _refused_whole(call.body, Refusal(error))


HANDLER: Handler[MutationController] = Handler(
    key=ApiKey.CREATE_TOPICS, handle=handle, refuse=_refuse
)
