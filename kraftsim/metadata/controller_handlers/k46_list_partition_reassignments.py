"""ListPartitionReassignments (46): the reassignments in progress.

Source: KIP-455, ReplicationControlManager.listPartitionReassignments,
org.apache.kafka.common.requests.ListPartitionReassignmentsRequest.
"""

from kraftsim.core.decision import Decision
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Answer once everything in the response is committed; Apache Kafka returns what was committed
    when the request arrived.
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


def _refuse(call: Call, error: ErrorCode) -> Answer:
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


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS, handle=handle, refuse=_refuse
)
