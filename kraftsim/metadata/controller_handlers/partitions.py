"""Requests about partitions on the controller: elect leaders, alter the ISR, assign replicas to log
directories, and reassign replicas to other brokers.
"""

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.deciding_controller import DecidingController, decide
from kraftsim.metadata.rules_partitions import AlteredPartition, ElectedPartition, ElectedTopic
from kraftsim.metadata.rules_reassignments import MovedPartition, MovedTopic
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
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
from protocol.messages.k56_alter_partition import (
    AlterPartitionDataResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResult,
)
from protocol.messages.k73_assign_replicas_to_dirs import (
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

# --------------------------------------------------------------------------------------------------
# ElectLeaders (43): preferred or unclean elections on request; answered when they are committed
#
# Source: KIP-183, KIP-460, ReplicationControlManager.electLeaders,
# org.apache.kafka.common.requests.ElectLeadersRequest.

TOP_ERROR_SINCE = 1
"""The first version with a top-level error code."""


def handle_elect_leaders(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Answer per partition, once the elections are committed.

    An empty list of partitions means none, null means all.
    """
    request = call.body
    assert isinstance(request, ElectLeadersRequest), "dispatch decodes by API key"
    if request.topic_partitions == []:
        return ElectLeadersResponse()
    if request.timeout_ms <= 0:
        return _refuse_elect_leaders(call, ErrorCode.REQUEST_TIMED_OUT)

    def carry_out(decision: Decision[list[ElectedTopic]] | Refusal) -> Answer | Deferred:
        if isinstance(decision, Refusal):
            return _refused_whole(call, decision)
        results = [
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[_result_elect_leaders(result) for result in topic.partitions],
            )
            for topic in decision.result
        ]
        return controller.metadata_writer.commit(
            decision,
            lambda offsets: ElectLeadersResponse(replica_election_results=results),
            is_atomic=False,
        )

    return decide(
        controller,
        call,
        lambda: controller.metadata_writer.state.replication.elect_leaders_steps(request),
        carry_out,
    )


def _result_elect_leaders(result: ElectedPartition) -> PartitionResult:
    refusal = Refusal(ErrorCode.NONE) if result.refusal is None else result.refusal
    return PartitionResult(
        partition_id=result.partition, error_code=refusal.error, error_message=refusal.message
    )


def _refused_whole(call: Call, refusal: Refusal) -> ElectLeadersResponse:
    """Return the error for every requested partition, and at the top level if the version has
    it.
    """
    request = call.body
    assert isinstance(request, ElectLeadersRequest), "dispatch decodes by API key"
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                PartitionResult(
                    partition_id=partition, error_code=refusal.error, error_message=refusal.message
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topic_partitions or []
    ]
    top = refusal.error if call.api_version >= TOP_ERROR_SINCE else ErrorCode.NONE
    return ElectLeadersResponse(error_code=top, replica_election_results=results)


def _refuse_elect_leaders(call: Call, error: ErrorCode) -> Answer:
    return _refused_whole(call, Refusal(error))


ELECT_LEADERS: Handler[DecidingController] = Handler(
    key=ApiKey.ELECT_LEADERS, handle=handle_elect_leaders, refuse=_refuse_elect_leaders
)


# --------------------------------------------------------------------------------------------------
# AlterPartition (56): the leader of a partition requests another ISR; answered when that is
# committed
#
# Source: KIP-497, kafka.server.ControllerApis.handleAlterPartitionRequest,
# ReplicationControlManager.alterPartition.


def handle_alter_partition(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Refuse the whole request immediately, or answer per partition when the accepted changes are
    committed.
    """
    request = call.body
    assert isinstance(request, AlterPartitionRequest), "dispatch decodes by API key"
    decision = controller.metadata_writer.state.replication.decide_alter_partition(
        request, call.api_version
    )
    if isinstance(decision, Refusal):
        return AlterPartitionResponse(error_code=decision.error)
    topics = [
        AlterPartitionTopicResult(
            topic_name=topic.topic,
            topic_id=topic.topic_id,
            partitions=[_result_alter_partition(result) for result in topic.partitions],
        )
        for topic in decision.result
    ]
    return controller.metadata_writer.commit(
        decision, lambda offsets: AlterPartitionResponse(topics=topics), is_atomic=False
    )


def _result_alter_partition(result: AlteredPartition) -> AlterPartitionDataResult:
    if result.state is None:
        assert result.refusal is not None, "a partition has a state or was refused"
        return AlterPartitionDataResult(
            partition_index=result.partition, error_code=result.refusal.error
        )
    return AlterPartitionDataResult(
        partition_index=result.partition,
        leader_id=result.state.leader,
        leader_epoch=result.state.leader_epoch,
        isr=list(result.state.isr),
        leader_recovery_state=result.state.leader_recovery_state,
        partition_epoch=result.state.partition_epoch,
    )


def _refuse_alter_partition(call: Call, error: ErrorCode) -> Answer:
    return AlterPartitionResponse(error_code=error)


ALTER_PARTITION: Handler[DecidingController] = Handler(
    key=ApiKey.ALTER_PARTITION, handle=handle_alter_partition, refuse=_refuse_alter_partition
)


# --------------------------------------------------------------------------------------------------
# AssignReplicasToDirs (73): a broker reports the log directories of its replicas; answered when
# that is committed
#
# Source: KIP-858, kafka.server.ControllerApis.handleAssignReplicasToDirs,
# ReplicationControlManager.handleAssignReplicasToDirs.


def handle_assign_replicas_to_dirs(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Refuse the whole request immediately, or answer in the structure of the request when it is
    committed.
    """
    request = call.body
    assert isinstance(request, AssignReplicasToDirsRequest), "dispatch decodes by API key"
    decision = controller.metadata_writer.state.replication.decide_assign_replicas(request)
    if isinstance(decision, Refusal):
        return AssignReplicasToDirsResponse(error_code=decision.error)
    directories = [
        AssignedDirectoryResult(
            id=asked.id,
            topics=[
                AssignedTopicResult(
                    topic_id=topic.topic_id,
                    partitions=[
                        AssignedPartitionResult(partition_index=number, error_code=error)
                        for number, error in topic.partitions
                    ],
                )
                for topic in topics
            ],
        )
        for asked, topics in zip(request.directories, decision.result, strict=True)
    ]
    return controller.metadata_writer.commit(
        decision,
        lambda offsets: AssignReplicasToDirsResponse(directories=directories),
        is_atomic=False,
    )


def _refuse_assign_replicas_to_dirs(call: Call, error: ErrorCode) -> Answer:
    return AssignReplicasToDirsResponse(error_code=error)


ASSIGN_REPLICAS_TO_DIRS: Handler[DecidingController] = Handler(
    key=ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    handle=handle_assign_replicas_to_dirs,
    refuse=_refuse_assign_replicas_to_dirs,
)


# --------------------------------------------------------------------------------------------------
# Requests that reassign partitions to other replicas, and list what is in progress (KIP-455)

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
    ELECT_LEADERS,
    ALTER_PARTITION,
    ASSIGN_REPLICAS_TO_DIRS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
)
