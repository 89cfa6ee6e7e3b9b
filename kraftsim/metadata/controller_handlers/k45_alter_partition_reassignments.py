"""AlterPartitionReassignments (45): starts or cancels partition reassignments; answered when that
is committed.

Source: KIP-455, ReplicationControlManager.alterPartitionReassignments,
org.apache.kafka.common.requests.AlterPartitionReassignmentsRequest.
"""

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

NO_MESSAGE = ""
"""Apache Kafka's error message for a request without topics; otherwise it is null."""


def handle(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Answer per partition, once the valid reassignments are committed."""
    request = call.body
    assert isinstance(request, AlterPartitionReassignmentsRequest), "dispatch decodes by API key"
    if not request.topics:
        return AlterPartitionReassignmentsResponse(error_message=NO_MESSAGE)
    if request.timeout_ms <= 0:
        return _refuse(call, ErrorCode.REQUEST_TIMED_OUT)

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


def _refuse(call: Call, error: ErrorCode) -> Answer:
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


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, handle=handle, refuse=_refuse
)
