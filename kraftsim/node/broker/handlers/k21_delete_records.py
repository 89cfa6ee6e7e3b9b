"""DeleteRecords: let partitions begin later, and answer once every live replica does.

Source: KIP-107, kafka.server.{KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecords, DelayedDeleteRecords}.
"""

from kraftsim.core.decision import Refusal
from kraftsim.node.broker.broker import Broker
from kraftsim.node.broker.hosted_partition import HostedPartition
from kraftsim.node.broker.internal_topics import is_internal
from kraftsim.node.call import Answer, Call, Deferred, Handler
from kraftsim.node.slices import Slices
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


class Waited:
    """A partition whose log begins at `log_start_offset` here, and soon everywhere."""

    __slots__ = ("answer", "hosted", "log_start_offset")

    def __init__(self, hosted: HostedPartition, log_start_offset: int, answer: DeleteRecordsPartitionResult) -> None:
        self.hosted = hosted
        self.log_start_offset = log_start_offset
        self.answer = answer


class DelayedDeletion:
    """A request that waits until every live replica begins where it was asked to."""

    def __init__(self, broker: Broker, waited: list[Waited], response: DeleteRecordsResponse) -> None:
        self.deferred = Deferred()
        self._broker = broker
        self._waited = waited
        self._response = response

    def keys(self) -> list[tuple[str, int]]:
        """Return the partitions that are waited for."""
        return [(each.hosted.topic, each.hosted.partition) for each in self._waited]

    def try_complete(self) -> bool:
        """Answer if no replica is behind any more."""
        self._waited = [each for each in self._waited if not self._is_settled(each)]
        if self._waited:
            return False
        self.deferred.complete(self._response)
        return True

    def expire(self) -> None:
        """Answer that some replica was too slow; the records are deleted there, too, sooner or later."""
        for each in self._waited:
            each.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self.deferred.complete(self._response)

    def _is_settled(self, each: Waited) -> bool:
        reign = each.hosted.replica.reign
        if reign is None:
            each.answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            each.answer.low_watermark = UNKNOWN_LOW_WATERMARK
            return True
        each.answer.low_watermark = reign.low_watermark(each.hosted.replica.log_start_offset, self._broker.is_alive)
        return each.answer.low_watermark >= each.log_start_offset


def handle(broker: Broker, call: Call) -> Answer | Deferred:
    """Answer each partition with the least log start offset of its live replicas, or an error."""
    request = call.body
    assert isinstance(request, DeleteRecordsRequest), "dispatch decodes by API key"
    waited: list[Waited] = []
    response = DeleteRecordsResponse()
    for topic in request.topics:
        results = [_delete(broker, topic.name, asked, waited) for asked in topic.partitions]
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    for each in waited:
        broker.on_partition_changed((each.hosted.topic, each.hosted.partition))
    delayed = DelayedDeletion(broker, waited, response)
    stay = broker.deletions.admit(delayed, delayed.keys(), request.timeout_ms)
    if stay is not None:
        delayed.deferred.when_abandoned(lambda: broker.deletions.leave(stay))
    return delayed.deferred


def _delete(broker: Broker, topic: str, asked: DeleteRecordsPartition, waited: list[Waited]) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=UNKNOWN_LOW_WATERMARK)
    hosted = broker.partitions.find(topic, asked.partition_index)
    if is_internal(topic):
        result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif hosted is None:
        result.error_code = broker.why_not_here(topic, asked.partition_index).error
    else:
        decided = hosted.replica.decide_deletion(asked.offset, is_deleted=hosted.settings.retention.is_deleted)
        if isinstance(decided, Refusal):
            result.error_code = decided.error
        else:
            hosted.begin_at(decided, "DeleteRecords")
            waited.append(Waited(hosted, decided, result))
    return result


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Build the answer in which every partition has the same error."""
    request = call.body
    assert isinstance(request, DeleteRecordsRequest), "dispatch decodes by API key"
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=UNKNOWN_LOW_WATERMARK, error_code=error)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


SLICES = Slices(entries="topics", rows="topics", inner="partitions", inner_rows="partitions")
HANDLER = Handler(key=ApiKey.DELETE_RECORDS, handle=handle, refuse=refuse, slices=SLICES)
