"""AssignReplicasToDirs (73): a broker reports the log directories of its replicas; answered when
that is committed.

Source: KIP-858, kafka.server.ControllerApis.handleAssignReplicasToDirs,
ReplicationControlManager.handleAssignReplicasToDirs.
"""

from kraftsim.core.decision import Refusal
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k73_assign_replicas_to_dirs import (
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)


def handle(controller: DecidingController, call: Call) -> Answer | Deferred:
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


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return AssignReplicasToDirsResponse(error_code=error)


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.ASSIGN_REPLICAS_TO_DIRS, handle=handle, refuse=_refuse
)
