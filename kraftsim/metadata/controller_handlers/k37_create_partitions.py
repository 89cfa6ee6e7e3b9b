"""CreatePartitions (37): adds partitions to topics, independently of each other, in one batch of
the metadata log; answered when it is committed.

Source: KIP-195, kafka.server.ControllerApis.createPartitions,
ReplicationControlManager.createPartitions.
"""

from copy import copy

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.controller_deciding import decide
from kraftsim.metadata.deciding_controller import MutationController
from kraftsim.metadata.rules_topic_table import TopicTable
from kraftsim.metadata.rules_topics import ExpandedTopic
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.mutation_quotas import QUOTA_EXCEEDED
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_SINCE = 3
"""The first version whose clients support THROTTLING_QUOTA_EXCEEDED."""


def handle(controller: MutationController, call: Call) -> Answer | Deferred:
    """Answer per topic, once the new partitions are committed."""
    request = call.body
    assert isinstance(request, CreatePartitionsRequest), "dispatch decodes by API key"
    if request.timeout_ms <= 0:
        return _refuse(call, ErrorCode.REQUEST_TIMED_OUT)
    replication = controller.metadata_writer.state.replication
    allowance = controller.mutations.allowance(call, is_strict=call.api_version >= STRICT_SINCE)
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
        results = [_result(result) for result in [*decision.result, *over]]
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


def _result(result: ExpandedTopic) -> CreatePartitionsTopicResult:
    refusal = Refusal(ErrorCode.NONE) if result.refusal is None else result.refusal
    return CreatePartitionsTopicResult(
        name=result.name, error_code=refusal.error, error_message=refusal.message
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, CreatePartitionsRequest), "dispatch decodes by API key"
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error)
            for topic in call.body.topics
        ]
    )


HANDLER: Handler[MutationController] = Handler(
    key=ApiKey.CREATE_PARTITIONS, handle=handle, refuse=_refuse
)
