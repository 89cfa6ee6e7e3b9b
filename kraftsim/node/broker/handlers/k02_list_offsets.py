"""ListOffsets: where a partition begins or ends, or reaches a point in time.

Source: KIP-79, KIP-734, kafka.server.KafkaApis.handleListOffsetRequest, UnifiedLog.legacyFetchOffsetsBefore (version 0).
"""

from kraftsim.core.decision import Refusal
from kraftsim.core.partitions.leader_epochs import NO_LEADER_EPOCH
from kraftsim.core.partitions.read_bounds import NOTHING_FOUND, OffsetAnswer, SearchMaxTimestamp, SearchTimestamp
from kraftsim.core.partitions.reading import decide_list_offset
from kraftsim.node.broker.broker import Broker
from kraftsim.node.broker.hosted_partition import HostedPartition
from kraftsim.node.call import Answer, Call, Deferred, Handler
from kraftsim.node.found_record import FoundRecord
from kraftsim.node.slices import Slices
from kraftsim.releases.traits import ISOLATION_OF_WHOLE_LISTINGS
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed_batches import MalformedBatch
from protocol.messages import k02_list_offsets
from protocol.messages.k01_fetch import DEBUGGING_REPLICA_ID, READ_COMMITTED, READ_UNCOMMITTED
from protocol.messages.k02_list_offsets import (
    CONSUMER_REPLICA_ID,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.records import INT64_MAX

OLD_STYLE_VERSION = 0
UNKNOWN = -1
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
FIRST_VERSION_WITH_LEADER_EPOCH = 4


def handle(broker: Broker, call: Call) -> Answer | Deferred:
    """Answer at once, unless a point in time has to be looked for in a remote store."""
    request = call.body
    assert isinstance(request, ListOffsetsRequest), "dispatch decodes by API key"
    if _fails(broker, call.api_version, request):
        return _failed(request, call.api_version)
    response = _answered(broker, call)
    far = [
        (hosted, asked, answer)
        for topic, told in zip(request.topics, response.topics, strict=True)
        for asked, answer in zip(topic.partitions, told.partitions, strict=True)
        if asked.timestamp >= 0 and not answer.error_code and (hosted := broker.partitions.find(topic.name, asked.partition_index)) is not None
        if hosted.replica.local_start_offset > hosted.replica.log_start_offset
    ]
    if not far or call.api_version == OLD_STYLE_VERSION:
        return response
    deferred = Deferred()

    async def look() -> None:
        for hosted, asked, answer in far:
            await _look_remotely(broker, call.api_version, hosted, asked, answer)
        deferred.complete(response)

    broker.shell.tasks.spawn(look(), "remote list offsets")
    return deferred


def _fails(broker: Broker, version: int, request: ListOffsetsRequest) -> bool:
    return version != OLD_STYLE_VERSION and _has_no_isolation(request) and broker.parts.release.has(ISOLATION_OF_WHOLE_LISTINGS)


def _failed(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    """Answer every partition with UNKNOWN_SERVER_ERROR."""
    failure = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "no such isolation level")
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=[_answer(version, each, failure) for each in topic.partitions])
            for topic in request.topics
        ]
    )


def _has_no_isolation(request: ListOffsetsRequest) -> bool:
    return request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED)


async def _look_remotely(
    broker: Broker, version: int, hosted: HostedPartition, asked: ListOffsetsPartition, answer: ListOffsetsPartitionResponse
) -> None:
    """Let an answer tell of the first record in the remote store that is not too old, if there is one: it comes before all that is here."""
    assert broker.tiered is not None, "a tiered log is of a broker with a remote store"
    try:
        found = await broker.tiered.find_timestamp(hosted, asked.timestamp)
    except (MalformedBatch, OSError):
        answer.error_code, answer.offset, answer.timestamp = ErrorCode.UNKNOWN_SERVER_ERROR, UNKNOWN, UNKNOWN
        return
    if found is not None:
        answer.offset, answer.timestamp = found.offset, found.timestamp
        if version >= FIRST_VERSION_WITH_LEADER_EPOCH:
            answer.leader_epoch = found.leader_epoch


def _answered(broker: Broker, call: Call) -> ListOffsetsResponse:
    """Answer each partition with an offset, -1 where nothing was found, or an error; a partition that is named twice is INVALID_REQUEST.

    Version 0 knows neither: it answers with as many offsets as are asked for.
    """
    request = call.body
    assert isinstance(request, ListOffsetsRequest), "dispatch decodes by API key"
    asked_times = call.over_whole(_asked_times)
    response = ListOffsetsResponse()
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            if call.api_version == OLD_STYLE_VERSION:
                answers.append(_old_style(broker, topic.name, partition))
                continue
            if asked_times[topic.name, partition.partition_index] > 1:
                found: OffsetAnswer | Refusal = Refusal(ErrorCode.INVALID_REQUEST, "the partition is named twice")
            elif request.replica_id == CONSUMER_REPLICA_ID and _has_no_isolation(request):
                found = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "no such isolation level")
            else:
                found = _find(broker, call, request, topic.name, partition)
            answers.append(_answer(call.api_version, partition, found))
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _asked_times(request: ListOffsetsRequest, _: int) -> dict[tuple[str, int], int]:
    times: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            times[key] = times.get(key, 0) + 1
    return times


def _old_style(broker: Broker, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    """Answer version 0: so many base offsets of segments, the newest first, and before them the end of what consumers see."""
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    hosted = _led(broker, topic, asked.partition_index)
    if isinstance(hosted, Refusal):
        answer.error_code = hosted.error
        return answer
    decided = decide_list_offset(hosted.replica, asked.timestamp, api_version=OLD_STYLE_VERSION)
    if isinstance(decided, Refusal) or asked.max_num_offsets < 0:
        answer.error_code = decided.error if isinstance(decided, Refusal) else ErrorCode.UNKNOWN_SERVER_ERROR
        return answer
    now_ms = broker.world.clock.wall_ms()
    match asked.timestamp:
        case k02_list_offsets.LATEST_TIMESTAMP:
            offsets = hosted.log.ends_before(INT64_MAX, now_ms)
        case k02_list_offsets.EARLIEST_TIMESTAMP:
            offsets = hosted.log.ends_before(INT64_MAX, now_ms)[-1:]
        case _:
            offsets = hosted.log.ends_before(asked.timestamp, now_ms)
    shown = offsets[: asked.max_num_offsets]
    high_watermark = hosted.replica.high_watermark
    hidden = [offset for offset in shown if offset > high_watermark]
    answer.old_style_offsets = [high_watermark, *shown[len(hidden) :]] if hidden else shown
    return answer


def _led(broker: Broker, topic: str, partition: int) -> HostedPartition | Refusal:
    hosted = broker.partitions.find(topic, partition)
    if hosted is not None:
        return hosted
    return broker.why_not_here(topic, partition)


def _find(broker: Broker, call: Call, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition) -> OffsetAnswer | Refusal:
    hosted = _led(broker, topic, asked.partition_index)
    if isinstance(hosted, Refusal):
        return hosted
    decided = decide_list_offset(
        hosted.replica,
        asked.timestamp,
        api_version=call.api_version,
        current_leader_epoch=asked.current_leader_epoch,
        reads_committed=request.isolation_level == READ_COMMITTED,
        is_follower=request.replica_id >= 0,
        needs_leader=request.replica_id != DEBUGGING_REPLICA_ID,
    )
    match decided:
        case SearchTimestamp():
            return _searched(broker, hosted, asked.timestamp, decided.end_offset)
        case SearchMaxTimestamp():
            return _searched(broker, hosted, None, decided.end_offset)
        case _:
            return decided


def _searched(broker: Broker, hosted: HostedPartition, timestamp: int | None, end_offset: int) -> OffsetAnswer | Refusal:
    """Look into the segments: for the first record that is not older than a timestamp, or for the youngest one."""
    try:
        found: FoundRecord | None = (
            hosted.log.find_max_timestamp(end_offset) if timestamp is None else hosted.log.find_timestamp(timestamp, end_offset)
        )
    except MalformedBatch as malformed:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, malformed.reason)
    except OSError as failure:
        broker.partitions.disk_failed(hosted.log.directory, "read", failure)
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
    return NOTHING_FOUND if found is None else OffsetAnswer(offset=found.offset, timestamp=found.timestamp, leader_epoch=found.leader_epoch)


def _answer(version: int, asked: ListOffsetsPartition, found: OffsetAnswer | Refusal) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, leader_epoch=NO_LEADER_EPOCH)
    if isinstance(found, Refusal):
        is_unknown = found.error is ErrorCode.OFFSET_NOT_AVAILABLE and version < FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
        answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE if is_unknown else found.error
    else:
        answer.offset, answer.timestamp = found.offset, found.timestamp
        if version >= FIRST_VERSION_WITH_LEADER_EPOCH:
            answer.leader_epoch = found.leader_epoch
    return answer


SLICES = Slices(entries="topics", rows="topics", inner="partitions", inner_rows="partitions")
HANDLER = Handler(key=ApiKey.LIST_OFFSETS, handle=handle, slices=SLICES)
