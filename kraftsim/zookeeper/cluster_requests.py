"""Inter-broker requests to a ZooKeeper-mode controller: ControlledShutdown, AlterPartition,
AllocateProducerIds.

Source: kafka.controller.KafkaController (doControlledShutdown, tryProcessAlterPartition,
processAllocateProducerIds), KIP-380, KIP-497, KIP-730.
"""

from collections.abc import Sequence

from kraftsim.core.decision import Decision, Refusal
from kraftsim.events.event import Event
from kraftsim.metadata.rules_partition_changes import partition_changed_event
from kraftsim.metadata.rules_partitions import BROKER_EPOCHS_SINCE, TOPIC_IDS_SINCE
from kraftsim.metadata.rules_registrations import PartitionRegistration, partition_record
from kraftsim.metadata.rules_topic_table import PartitionKey
from kraftsim.server.call import Answer, Call, Deferred
from kraftsim.zookeeper.client import ZookeeperRefused
from kraftsim.zookeeper.controller_context import ControllerContext
from kraftsim.zookeeper.rules_partitions import in_sync_with
from kraftsim.zookeeper.znode_writer import ControllerMoved
from protocol.errors import ErrorCode
from protocol.messages.k07_controlled_shutdown import (
    NO_BROKER_EPOCH,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from protocol.messages.k56_alter_partition import (
    RECOVERED,
    RECOVERING,
    AlterPartitionData,
    AlterPartitionDataResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResult,
)
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from protocol.schema import Message
from protocol.zookeeper.op_codes import ZookeeperError


def controlled_shutdown(context: ControllerContext, call: Call) -> Answer | Deferred:
    """Move leadership away from a broker; the response lists the partitions it still leads, once
    ZooKeeper has acknowledged the changes.
    """
    request = call.body
    assert isinstance(request, ControlledShutdownRequest), "dispatch decodes by API key"
    broker = context.metadata_writer.state.cluster.broker(request.broker_id)
    if broker is None:
        is_named = call.api_version >= 2 and request.broker_epoch != NO_BROKER_EPOCH
        return ControlledShutdownResponse(
            error_code=ErrorCode.UNKNOWN_SERVER_ERROR
            if is_named
            else ErrorCode.BROKER_NOT_AVAILABLE
        )
    if request.broker_epoch != NO_BROKER_EPOCH and request.broker_epoch < broker.broker_epoch:
        return ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    left = context.shut_down(broker)
    rows = [
        RemainingPartition(topic_name=context.topic_of(key).name, partition_index=key[1])
        for key in left
    ]
    return context.metadata_writer.commit(
        Decision([], None), lambda offsets: ControlledShutdownResponse(remaining_partitions=rows)
    )


def alter_partition(context: ControllerContext, call: Call) -> Answer | Deferred:
    """Change in-sync replicas at the request of leaders; a reassignment that this completes
    proceeds immediately.
    """
    request = call.body
    assert isinstance(request, AlterPartitionRequest), "dispatch decodes by API key"
    state = context.metadata_writer.state
    if not state.cluster.is_current(request.broker_id, request.broker_epoch):
        return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    by_id = call.api_version >= TOPIC_IDS_SINCE
    rows: list[AlterPartitionTopicResult] = []
    changed: dict[PartitionKey, PartitionRegistration] = {}
    for asked in request.topics:
        topic = (
            state.replication.topics.topic(asked.topic_id)
            if by_id
            else state.replication.topics.topic_named(asked.topic_name)
        )
        results = []
        for each in asked.partitions:
            partition = None if topic is None else topic.partitions.get(each.partition_index)
            if topic is None or partition is None:
                unknown = (
                    ErrorCode.UNKNOWN_TOPIC_ID
                    if by_id and topic is None
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                results.append(
                    AlterPartitionDataResult(
                        partition_index=each.partition_index, error_code=unknown
                    )
                )
                continue
            outcome = _altered(context, partition, request.broker_id, each, call.api_version)
            if isinstance(outcome, Refusal):
                results.append(
                    AlterPartitionDataResult(
                        partition_index=each.partition_index, error_code=outcome.error
                    )
                )
                continue
            if outcome != partition:
                changed[topic.topic_id, each.partition_index] = outcome
            results.append(_result(each.partition_index, outcome))
        rows.append(
            AlterPartitionTopicResult(
                topic_name=asked.topic_name, topic_id=asked.topic_id, partitions=results
            )
        )
    answer = context.metadata_writer.commit(
        _decision(context, changed), lambda offsets: AlterPartitionResponse(topics=rows)
    )
    context.moves.look(changed)
    return answer


def _decision(
    context: ControllerContext, changed: dict[PartitionKey, PartitionRegistration]
) -> Decision[None]:
    level = context.metadata_writer.state.features.metadata_level
    records: Sequence[Message] = [
        partition_record(*key, after, level) for key, after in changed.items()
    ]
    facts: tuple[Event, ...] = tuple(
        partition_changed_event(key, context.topic_of(key).name, after)
        for key, after in changed.items()
    )
    return Decision(records, None, facts)


def _altered(
    context: ControllerContext,
    partition: PartitionRegistration,
    broker_id: int,
    asked: AlterPartitionData,
    version: int,
) -> PartitionRegistration | Refusal:
    """Return the changed partition; an unchanged one if it already has this ISR, whatever partition
    epoch the request contains.
    """
    isr = (
        [each.broker_id for each in asked.new_isr_with_epochs]
        if version >= BROKER_EPOCHS_SINCE
        else list(asked.new_isr)
    )
    wanted = (broker_id, tuple(isr), asked.leader_recovery_state)
    if (
        asked.partition_epoch > partition.partition_epoch
        or asked.leader_epoch > partition.leader_epoch
    ):
        return Refusal(ErrorCode.NOT_CONTROLLER)
    if asked.leader_epoch < partition.leader_epoch:
        return Refusal(ErrorCode.FENCED_LEADER_EPOCH)
    if wanted == (partition.leader, partition.isr, partition.leader_recovery_state):
        return partition
    if asked.partition_epoch < partition.partition_epoch:
        return Refusal(ErrorCode.INVALID_UPDATE_VERSION)
    if asked.leader_recovery_state == RECOVERING and (
        len(isr) > 1 or partition.leader_recovery_state == RECOVERED
    ):
        return Refusal(ErrorCode.INVALID_REQUEST)
    if not all(context.metadata_writer.state.cluster.is_active(each) for each in isr):
        return Refusal(
            ErrorCode.INELIGIBLE_REPLICA
            if version >= TOPIC_IDS_SINCE
            else ErrorCode.OPERATION_NOT_ATTEMPTED
        )
    return in_sync_with(partition, broker_id, isr, asked.leader_recovery_state)


def _result(number: int, partition: PartitionRegistration) -> AlterPartitionDataResult:
    return AlterPartitionDataResult(
        partition_index=number,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def allocate_producer_ids(context: ControllerContext, call: Call) -> Answer | Deferred:
    """Allocate the next block of producer ids from ZooKeeper for a broker."""
    request = call.body
    assert isinstance(request, AllocateProducerIdsRequest), "dispatch decodes by API key"
    broker = context.metadata_writer.state.cluster.broker(request.broker_id)
    if broker is None:
        return AllocateProducerIdsResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    if broker.broker_epoch != request.broker_epoch:
        return AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    later = Deferred()
    context.shell.tasks.spawn(
        context.controller.guarded(context, lambda: _claim(context, request.broker_id, later)),
        "producer-id-block",
    )
    return later


async def _claim(context: ControllerContext, broker_id: int, later: Deferred) -> None:
    """Answer with a block.

    Raises ControllerMoved after answering with that error: the next controller allocates the next
    block.
    """
    try:
        block = await context.blocks.take(broker_id, context.world.emit)
    except ZookeeperRefused as refused:
        # after the end of its session, as Kafka answers what waits then (KafkaController.Expire)
        is_over = refused.error == ZookeeperError.SESSION_EXPIRED
        error = ErrorCode.NOT_CONTROLLER if is_over else ErrorCode.UNKNOWN_SERVER_ERROR
        later.complete(AllocateProducerIdsResponse(error_code=error))
        return
    except ControllerMoved:
        later.complete(AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER))
        raise
    if isinstance(block, Refusal):
        later.complete(AllocateProducerIdsResponse(error_code=block.error))
    else:
        later.complete(
            AllocateProducerIdsResponse(
                producer_id_start=block.first_producer_id, producer_id_len=block.size
            )
        )
