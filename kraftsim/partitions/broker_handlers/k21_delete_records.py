"""DeleteRecords: advance the log start offset of partitions, and respond once every live replica
has advanced.

Source: KIP-107, kafka.server.{KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecords,
DelayedDeleteRecords}.
"""

from typing import Protocol

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_topic_names import is_internal
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log_directory import PartitionKey
from kraftsim.partitions.partitions import HostingBroker
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.purgatory import Purgatory
from kraftsim.server.serving_broker import AddressBroker
from kraftsim.server.slices import Slices
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k21_delete_records import (
    UNKNOWN_LOW_WATERMARK,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


class DeletingBroker(HostingBroker, AddressBroker, Protocol):
    """A broker that deletes records."""

    @property
    def deletions(self) -> Purgatory[PartitionKey]:
        """Requests that wait for followers."""
        ...

    def on_partition_changed(self, key: PartitionKey) -> None:
        """Re-check the requests that watch a partition."""
        ...


class PendingPartition:
    """A partition whose log start offset has advanced to `log_start_offset` here, and not yet on
    every live replica.
    """

    __slots__ = ("answer", "hosted", "log_start_offset")

    def __init__(
        self, hosted: HostedPartition, log_start_offset: int, answer: DeleteRecordsPartitionResult
    ) -> None:
        self.hosted = hosted
        self.log_start_offset = log_start_offset
        self.answer = answer


class DelayedDeleteRecords:
    """A request that waits until every live replica has advanced its log start offset."""

    def __init__(
        self,
        broker: DeletingBroker,
        pending: list[PendingPartition],
        response: DeleteRecordsResponse,
    ) -> None:
        self.deferred = Deferred()
        self._broker = broker
        self._pending = pending
        self._response = response

    def keys(self) -> list[tuple[str, int]]:
        """Return the partitions to watch."""
        return [(each.hosted.topic, each.hosted.partition) for each in self._pending]

    def try_complete(self) -> bool:
        """Respond if all live replicas have advanced."""
        self._pending = [each for each in self._pending if not self._is_settled(each)]
        if self._pending:
            return False
        self.deferred.complete(self._response)
        return True

    def expire(self) -> None:
        """Respond with a timeout; the slow replicas delete the records eventually."""
        for each in self._pending:
            each.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self.deferred.complete(self._response)

    def _is_settled(self, each: PendingPartition) -> bool:
        leader_state = each.hosted.replica.leader_state
        if leader_state is None:
            each.answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            each.answer.low_watermark = UNKNOWN_LOW_WATERMARK
            return True
        each.answer.low_watermark = leader_state.low_watermark(
            each.hosted.replica.log_start_offset, self._broker.is_alive
        )
        return each.answer.low_watermark >= each.log_start_offset


def handle(broker: DeletingBroker, call: Call) -> Answer | Deferred:
    """Return the low watermark of each partition (the minimum log start offset of its live
    replicas), or an error.
    """
    request = call.body
    assert isinstance(request, DeleteRecordsRequest), "dispatch decodes by API key"
    pending: list[PendingPartition] = []
    response = DeleteRecordsResponse()
    for topic in request.topics:
        results = [_delete(broker, topic.name, asked, pending) for asked in topic.partitions]
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    for each in pending:
        broker.on_partition_changed((each.hosted.topic, each.hosted.partition))
    delayed = DelayedDeleteRecords(broker, pending, response)
    operation = broker.deletions.try_complete_else_watch(
        delayed, delayed.keys(), request.timeout_ms
    )
    if operation is not None:
        delayed.deferred.when_abandoned(lambda: broker.deletions.leave(operation))
    return delayed.deferred


def _delete(
    broker: DeletingBroker,
    topic: str,
    asked: DeleteRecordsPartition,
    pending: list[PendingPartition],
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=UNKNOWN_LOW_WATERMARK
    )
    hosted = broker.partitions.find(topic, asked.partition_index)
    if is_internal(topic):
        result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif hosted is None:
        result.error_code = broker.not_hosted_error(topic, asked.partition_index).error
    else:
        decided = hosted.replica.decide_deletion(
            asked.offset, is_deleted=hosted.settings.retention.is_deleted
        )
        if isinstance(decided, Refusal):
            result.error_code = decided.error
        else:
            hosted.advance_log_start(decided, "DeleteRecords")
            pending.append(PendingPartition(hosted, decided, result))
    return result


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every partition."""
    request = call.body
    assert isinstance(request, DeleteRecordsRequest), "dispatch decodes by API key"
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=asked.partition_index,
                        low_watermark=UNKNOWN_LOW_WATERMARK,
                        error_code=error,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


SLICES = Slices(entries="topics", rows="topics", inner="partitions", inner_rows="partitions")
HANDLER = Handler(key=ApiKey.DELETE_RECORDS, handle=handle, refuse=refuse, slices=SLICES)
