"""AlterPartition (56): the leader of a partition requests another ISR; answered when that is
committed.

Source: KIP-497, kafka.server.ControllerApis.handleAlterPartitionRequest,
ReplicationControlManager.alterPartition.
"""

from kraftsim.core.decision import Refusal
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.rules_partitions import AlteredPartition
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k56_alter_partition import (
    AlterPartitionDataResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResult,
)


def handle(controller: DecidingController, call: Call) -> Answer | Deferred:
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
            partitions=[_result(result) for result in topic.partitions],
        )
        for topic in decision.result
    ]
    return controller.metadata_writer.commit(
        decision, lambda offsets: AlterPartitionResponse(topics=topics), is_atomic=False
    )


def _result(result: AlteredPartition) -> AlterPartitionDataResult:
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


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return AlterPartitionResponse(error_code=error)


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.ALTER_PARTITION, handle=handle, refuse=_refuse
)
