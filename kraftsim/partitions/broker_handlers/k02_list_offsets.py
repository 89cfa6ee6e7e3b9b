"""ListOffsets: the log start offset, the end offset, or the offset for a timestamp of a partition.

Source: KIP-79, KIP-734, kafka.server.KafkaApis.handleListOffsetRequest,
UnifiedLog.legacyFetchOffsetsBefore (version 0).
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from kraftsim.core.decision import Refusal
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log_reading import (
    FoundCandidate,
    FoundRecord,
    first_record,
    first_record_aside,
)
from kraftsim.partitions.partitions import HostingBroker
from kraftsim.partitions.rules_follower import (
    NOTHING_FOUND,
    OffsetAnswer,
    SearchMaxTimestamp,
    SearchTimestamp,
)
from kraftsim.partitions.rules_log import NO_LEADER_EPOCH
from kraftsim.partitions.rules_reading import (
    LOOKED_THROUGH_BYTES_MAX,
    batch_work,
    decide_list_offset,
)
from kraftsim.releases.traits import ISOLATION_OF_WHOLE_LISTINGS
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.large_requests import or_refused
from kraftsim.server.serving_broker import ReleaseBroker, RunningBroker
from kraftsim.server.slices import Slices
from kraftsim.tiered_storage.tiered_storage import TieredBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
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
from protocol.records.record import INT64_MAX, MalformedBatch

OLD_STYLE_VERSION = 0
UNKNOWN = -1
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
FIRST_VERSION_WITH_LEADER_EPOCH = 4


class OffsetsBroker(HostingBroker, TieredBroker, ReleaseBroker, RunningBroker, Protocol):
    """A broker that looks up offsets, also in remote storage."""


def handle(broker: OffsetsBroker, call: Call) -> Answer | Deferred:
    """Respond at once, unless a timestamp must be searched in remote storage, or in records that
    take long to decompress.
    """
    request = call.body
    assert isinstance(request, ListOffsetsRequest), "dispatch decodes by API key"
    if _fails(broker, call.api_version, request):
        return _failed(request, call.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
    response, searches = _answered(broker, call)
    if not searches:
        far = _remote_searches(broker, call, request, response)
        if not far:
            return response
    deferred = Deferred()

    async def look() -> None:
        for search in searches:
            await search.resume(broker, call.api_version)
        for hosted, asked, answer in _remote_searches(broker, call, request, response):
            await _search_remotely(broker, call.api_version, hosted, asked, answer)
        deferred.complete(response)

    broker.shell.tasks.spawn(or_refused(look(), deferred, call, _refused), "search offsets")
    return deferred


def _remote_searches(
    broker: OffsetsBroker, call: Call, request: ListOffsetsRequest, response: ListOffsetsResponse
) -> list[tuple[HostedPartition, ListOffsetsPartition, ListOffsetsPartitionResponse]]:
    """Return the timestamp searches in partitions that have records in remote storage."""
    if call.api_version == OLD_STYLE_VERSION:
        return []
    return [
        (hosted, asked, answer)
        for topic, responses in zip(request.topics, response.topics, strict=True)
        for asked, answer in zip(topic.partitions, responses.partitions, strict=True)
        if asked.timestamp >= 0
        and not answer.error_code
        and (hosted := broker.partitions.find(topic.name, asked.partition_index)) is not None
        if hosted.replica.local_start_offset > hosted.replica.log_start_offset
    ]


def _refused(call: Call, error: ErrorCode) -> Answer:
    request = call.body
    assert isinstance(request, ListOffsetsRequest), "dispatch decodes by API key"
    return _failed(request, call.api_version, error)


def _fails(broker: OffsetsBroker, version: int, request: ListOffsetsRequest) -> bool:
    return (
        version != OLD_STYLE_VERSION
        and _has_no_isolation(request)
        and broker.parts.release.has(ISOLATION_OF_WHOLE_LISTINGS)
    )


def _failed(request: ListOffsetsRequest, version: int, error: ErrorCode) -> ListOffsetsResponse:
    """Return the same error for every partition."""
    failure = Refusal(error, "the whole request fails")
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_answer(version, each, failure) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _has_no_isolation(request: ListOffsetsRequest) -> bool:
    return request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED)


async def _search_remotely(
    broker: OffsetsBroker,
    version: int,
    hosted: HostedPartition,
    asked: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> None:
    """Replace a result by the first matching record in remote storage, if there is one: it precedes
    all local records.
    """
    assert broker.tiered is not None, "a tiered log exists only if remote storage is enabled"
    try:
        found = await broker.tiered.find_timestamp(hosted, asked.timestamp)
    except (MalformedMessage, OSError):  # from a segment or its indexes
        answer.error_code, answer.offset, answer.timestamp = (
            ErrorCode.UNKNOWN_SERVER_ERROR,
            UNKNOWN,
            UNKNOWN,
        )
        return
    if found is not None:
        answer.offset, answer.timestamp = found.offset, found.timestamp
        if version >= FIRST_VERSION_WITH_LEADER_EPOCH:
            answer.leader_epoch = found.leader_epoch


def _answered(broker: OffsetsBroker, call: Call) -> tuple[ListOffsetsResponse, list["_OpenSearch"]]:
    """Return for each partition an offset, -1 if nothing was found, or an error; a partition named
    twice gives INVALID_REQUEST.

    Long searches are returned unfinished; their rows are in the response, and are filled in when
    they complete.

    In version 0 neither applies: it returns up to max_num_offsets offsets.
    """
    request = call.body
    assert isinstance(request, ListOffsetsRequest), "dispatch decodes by API key"
    asked_times = call.over_whole(_asked_times)
    response = ListOffsetsResponse()
    searches: list[_OpenSearch] = []
    left_bytes = LOOKED_THROUGH_BYTES_MAX
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            if call.api_version == OLD_STYLE_VERSION:
                answers.append(_old_style(broker, topic.name, partition))
                continue
            if asked_times[topic.name, partition.partition_index] > 1:
                found: OffsetAnswer | Refusal = Refusal(
                    ErrorCode.INVALID_REQUEST, "duplicate partition"
                )
            elif request.replica_id == CONSUMER_REPLICA_ID and _has_no_isolation(request):
                found = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "invalid isolation level")
            else:
                search = _find(broker, call, request, topic.name, partition)
                if isinstance(search, _OpenSearch):
                    left_bytes = search.begin(broker, left_bytes)
                    found = search.found or NOTHING_FOUND
                    if search.found is None:
                        searches.append(search)
                else:
                    found = search
            answers.append(_answer(call.api_version, partition, found))
            if searches and searches[-1].asked is partition:
                searches[-1].answer = answers[-1]
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response, searches


def _asked_times(request: ListOffsetsRequest, _: int) -> dict[tuple[str, int], int]:
    times: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            times[key] = times.get(key, 0) + 1
    return times


def _old_style(
    broker: OffsetsBroker, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    """Return the result of version 0: up to max_num_offsets base offsets of segments, newest first,
    preceded by the high watermark.
    """
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    hosted = _led(broker, topic, asked.partition_index)
    if isinstance(hosted, Refusal):
        answer.error_code = hosted.error
        return answer
    decided = decide_list_offset(hosted.replica, asked.timestamp, api_version=OLD_STYLE_VERSION)
    if isinstance(decided, Refusal) or asked.max_num_offsets < 0:
        answer.error_code = (
            decided.error if isinstance(decided, Refusal) else ErrorCode.UNKNOWN_SERVER_ERROR
        )
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


def _led(broker: OffsetsBroker, topic: str, partition: int) -> HostedPartition | Refusal:
    hosted = broker.partitions.find(topic, partition)
    if hosted is not None:
        return hosted
    return broker.not_hosted_error(topic, partition)


def _find(
    broker: OffsetsBroker,
    call: Call,
    request: ListOffsetsRequest,
    topic: str,
    asked: ListOffsetsPartition,
) -> "OffsetAnswer | Refusal | _OpenSearch":
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
            return _OpenSearch(hosted, asked, asked.timestamp, decided.end_offset)
        case SearchMaxTimestamp():
            return _OpenSearch(hosted, asked, None, decided.end_offset)
        case _:
            return decided


class _OpenSearch:
    """Searches the segments of a partition for the first record at or after a timestamp, or,
    without one, for the record with the maximum timestamp.

    `found` is None until the search is complete. A search over several iterations of the event loop
    restarts when segments were added or cleaned in the meantime.
    """

    __slots__ = (
        "_candidate",
        "_end_offset",
        "_hosted",
        "_search",
        "_segments",
        "_timestamp",
        "_truncation_count",
        "answer",
        "asked",
        "found",
    )

    def __init__(
        self,
        hosted: HostedPartition,
        asked: ListOffsetsPartition,
        timestamp: int | None,
        end_offset: int,
    ) -> None:
        self.asked = asked
        self.answer: ListOffsetsPartitionResponse | None = None
        """The row to fill in, if the search does not complete at once."""
        self.found: OffsetAnswer | Refusal | None = None
        self._hosted, self._timestamp, self._end_offset = hosted, timestamp, end_offset
        self._candidate: FoundCandidate | None = None

    def begin(self, broker: OffsetsBroker, bytes_max: int) -> int:
        """Search on the event loop within a budget of bytes; return what is left of it."""
        self._start(broker)
        while (
            self._candidate is not None
            and (needed := batch_work(self._candidate.batch)) <= bytes_max
        ):
            bytes_max -= needed
            self._step(broker, lambda candidate: first_record(candidate.batch, candidate.timestamp))
        return bytes_max

    async def resume(self, broker: OffsetsBroker, version: int) -> None:
        """Complete the search, and fill in the row."""
        while (candidate := self._candidate) is not None:
            try:
                record = await first_record_aside(
                    broker.world, candidate.batch, candidate.timestamp
                )
            except MalformedBatch as malformed:
                self._end(Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, malformed.reason))
                break
            await asyncio.sleep(0)
            hosted = _led(broker, self._hosted.topic, self._hosted.partition)
            if isinstance(hosted, Refusal):
                self._end(hosted)
            elif (
                hosted is not self._hosted or self._truncation_count != hosted.log.truncation_count
            ):
                self._end(
                    Refusal(
                        ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log was truncated during the search"
                    )
                )
            elif record is None and self._segments != list(hosted.log.segments):
                self._start(broker)
            else:
                # misc: mypy infers no type for a lambda with a default
                self._step(broker, lambda _, record=record: record)  # type: ignore[misc]
        assert self.found is not None and self.answer is not None, (
            "the search is complete, and its row is set"
        )
        filled = _answer(version, self.asked, self.found)
        for name in ("error_code", "offset", "timestamp", "leader_epoch"):
            setattr(self.answer, name, getattr(filled, name))

    def _start(self, broker: OffsetsBroker) -> None:
        log = self._hosted.log
        self._truncation_count, self._segments = log.truncation_count, list(log.segments)
        self._search = (
            log.find_max_timestamp(self._end_offset)
            if self._timestamp is None
            else log.find_timestamp(self._timestamp, self._end_offset)
        )
        self._advance(broker, lambda: next(self._search))

    def _step(
        self, broker: OffsetsBroker, look: Callable[[FoundCandidate], FoundRecord | None]
    ) -> None:
        candidate = self._candidate
        assert candidate is not None, "the search is not complete"
        self._advance(broker, lambda: self._search.send(look(candidate)))

    def _advance(self, broker: OffsetsBroker, advance: Callable[[], FoundCandidate]) -> None:
        try:
            self._candidate = advance()
        except StopIteration as end:
            record: FoundRecord | None = end.value
            self._end(
                NOTHING_FOUND
                if record is None
                else OffsetAnswer(
                    offset=record.offset,
                    timestamp=record.timestamp,
                    leader_epoch=record.leader_epoch,
                )
            )
        except MalformedBatch as malformed:
            self._end(Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, malformed.reason))
        except OSError as failure:
            broker.partitions.disk_failed(self._hosted.log.directory, "read", failure)
            self._end(Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)))

    def _end(self, found: OffsetAnswer | Refusal) -> None:
        self._candidate, self.found = None, found


def _answer(
    version: int, asked: ListOffsetsPartition, found: OffsetAnswer | Refusal
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, leader_epoch=NO_LEADER_EPOCH
    )
    if isinstance(found, Refusal):
        is_unknown = (
            found.error is ErrorCode.OFFSET_NOT_AVAILABLE
            and version < FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
        )
        answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE if is_unknown else found.error
    else:
        answer.offset, answer.timestamp = found.offset, found.timestamp
        if version >= FIRST_VERSION_WITH_LEADER_EPOCH:
            answer.leader_epoch = found.leader_epoch
    return answer


SLICES = Slices(entries="topics", rows="topics", inner="partitions", inner_rows="partitions")
HANDLER = Handler(key=ApiKey.LIST_OFFSETS, handle=handle, slices=SLICES)
