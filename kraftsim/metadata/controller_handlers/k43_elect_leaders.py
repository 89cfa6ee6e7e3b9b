"""ElectLeaders (43): preferred or unclean elections on request; answered when they are committed.

Source: KIP-183, KIP-460, ReplicationControlManager.electLeaders,
org.apache.kafka.common.requests.ElectLeadersRequest.
"""

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.controller_deciding import decide
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.rules_partitions import ElectedPartition, ElectedTopic
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

TOP_ERROR_SINCE = 1
"""The first version with a top-level error code."""


def handle(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Answer per partition, once the elections are committed.

    An empty list of partitions means none, null means all.
    """
    request = call.body
    assert isinstance(request, ElectLeadersRequest), "dispatch decodes by API key"
    if request.topic_partitions == []:
        return ElectLeadersResponse()
    if request.timeout_ms <= 0:
        return _refuse(call, ErrorCode.REQUEST_TIMED_OUT)

    def carry_out(decision: Decision[list[ElectedTopic]] | Refusal) -> Answer | Deferred:
        if isinstance(decision, Refusal):
            return _refused_whole(call, decision)
        results = [
            ReplicaElectionResult(
                topic=topic.topic, partition_result=[_result(result) for result in topic.partitions]
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


def _result(result: ElectedPartition) -> PartitionResult:
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


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return _refused_whole(call, Refusal(error))


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.ELECT_LEADERS, handle=handle, refuse=_refuse
)
