"""Requests that reassign partitions to other replicas, and list what is in progress (KIP-455)."""

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.controller_deciding import decide
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.rules_reassignments import MovedPartition, MovedTopic
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

NO_MESSAGE = ""
"""Apache Kafka's error message for a request without topics; otherwise it is null."""


def handle_alter_partition_reassignments(
    controller: DecidingController, call: Call
) -> Answer | Deferred:
    """AlterPartitionReassignments (45): starts or cancels partition reassignments; answered when
    that is committed.

    Answer per partition, once the valid reassignments are committed.

    Source: KIP-455, ReplicationControlManager.alterPartitionReassignments,
    org.apache.kafka.common.requests.AlterPartitionReassignmentsRequest.
    """
    request = call.body
    assert isinstance(request, AlterPartitionReassignmentsRequest), "dispatch decodes by API key"
    if not request.topics:
        return AlterPartitionReassignmentsResponse(error_message=NO_MESSAGE)
    if request.timeout_ms <= 0:
        return _refuse_alter_partition_reassignments(call, ErrorCode.REQUEST_TIMED_OUT)

    def carry_out(decision: Decision[list[MovedTopic]]) -> Answer | Deferred:
        rows = [
            ReassignableTopicResponse(
                name=topic.topic, partitions=[_result(result) for result in topic.partitions]
            )
            for topic in decision.result
        ]
        response = AlterPartitionReassignmentsResponse(
            error_message=None,
            responses=rows,
            allow_replication_factor_change=request.allow_replication_factor_change,
        )
        return controller.metadata_writer.commit(decision, lambda offsets: response)

    return decide(
        controller,
        call,
        lambda: controller.metadata_writer.state.replication.reassignment_steps(request),
        carry_out,
    )


def _result(result: MovedPartition) -> ReassignablePartitionResponse:
    refusal = Refusal(ErrorCode.NONE) if result.refusal is None else result.refusal
    return ReassignablePartitionResponse(
        partition_index=result.partition, error_code=refusal.error, error_message=refusal.message
    )


def _refuse_alter_partition_reassignments(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, AlterPartitionReassignmentsRequest), "dispatch decodes by API key"
    rows = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_code=error, error_message=None
                )
                for partition in topic.partitions
            ],
        )
        for topic in call.body.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=error, error_message=None, responses=rows)


ALTER_PARTITION_REASSIGNMENTS: Handler[DecidingController] = Handler(
    key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    handle=handle_alter_partition_reassignments,
    refuse=_refuse_alter_partition_reassignments,
)


def handle_list_partition_reassignments(
    controller: DecidingController, call: Call
) -> Answer | Deferred:
    """ListPartitionReassignments (46): the reassignments in progress.

    Answer once everything in the response is committed; Apache Kafka returns what was committed
    when the request arrived.

    Source: KIP-455, ReplicationControlManager.listPartitionReassignments,
    org.apache.kafka.common.requests.ListPartitionReassignmentsRequest.
    """
    request = call.body
    assert isinstance(request, ListPartitionReassignmentsRequest), "dispatch decodes by API key"
    topics = [
        OngoingTopicReassignment(
            name=moves.topic,
            partitions=[
                OngoingPartitionReassignment(
                    partition_index=number,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding_replicas),
                    removing_replicas=list(partition.removing_replicas),
                )
                for number, partition in moves.partitions
            ],
        )
        for moves in controller.metadata_writer.state.replication.ongoing_moves(request.topics)
    ]
    return controller.metadata_writer.commit(
        Decision([], None),
        lambda offsets: ListPartitionReassignmentsResponse(error_message=None, topics=topics),
    )


def _refuse_list_partition_reassignments(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, ListPartitionReassignmentsRequest), "dispatch decodes by API key"
    topics = [
        OngoingTopicReassignment(
            name=topic.name,
            partitions=[
                OngoingPartitionReassignment(partition_index=number)
                for number in topic.partition_indexes
            ],
        )
        for topic in call.body.topics or []
    ]
    return ListPartitionReassignmentsResponse(error_code=error, error_message=None, topics=topics)


LIST_PARTITION_REASSIGNMENTS: Handler[DecidingController] = Handler(
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    handle=handle_list_partition_reassignments,
    refuse=_refuse_list_partition_reassignments,
)


HANDLERS = (
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
)
