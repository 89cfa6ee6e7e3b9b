"""The partitions of a Fetch: sorted into those to read and those to reject, the parts of their
response, and down-conversion for Fetch 0 to 3.
"""

from collections.abc import Iterable

from msgspec import Struct, field

from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.rules_reading import LOOKED_THROUGH_BYTES_MAX, takes_long
from kraftsim.server.call import Allows, Answer, Call
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.records.down_conversion import down_convert_in_pieces
from protocol.records.record import Compression, MalformedBatch

# --------------------------------------------------------------------------------------------------
# Sorts the partitions of a Fetch into those to read and those to reject without reading
#
# A partition is rejected without reading when the metadata has no such topic id or name and
# partition, or when the client is not authorized. Such rows come after all rows that are read, and
# do not complete a wait for min_bytes. An error of the read itself, such as NOT_LEADER_OR_FOLLOWER,
# keeps its position and completes the request at once.
# Source: kafka.server.KafkaApis.handleFetchRequest (erroneous, interesting).

FIRST_VERSION_WITH_TOPIC_IDS = 13
NO_OFFSET = -1


class ReadTopic(Struct):
    """Partitions of a topic that are read; `name` is the topic's name when the request arrived."""

    name: str
    topic: str
    topic_id: bytes
    partitions: list[FetchPartition] = field(default_factory=list)


class SortedFetch(Struct):
    """The partitions to read, and the rows of those that are rejected, both in the order of the
    response.
    """

    read: list[ReadTopic] = field(default_factory=list)
    refused: list[FetchableTopicResponse] = field(default_factory=list)


def sort_fetch(
    image: MetadataImage,
    topics: Iterable[FetchTopic],
    version: int,
    allows: Allows | None,
    *,
    is_follower: bool,
) -> SortedFetch:
    """Sort the partitions of a Fetch. `allows(name)`: whether the client is authorized for a topic.

    For consumers an unknown topic id takes precedence over all other errors; a follower without
    CLUSTER_ACTION gets TOPIC_AUTHORIZATION_FAILED for each partition, known or not.
    """
    found = SortedFetch()
    later: list[FetchableTopicResponse] = []
    for topic in topics:
        name = _name_of(image, topic, version)
        if is_follower and allows is not None and not allows(name or ""):
            found.refused.append(
                _refused_all(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            )
        elif name is None:
            found.refused.append(_refused_all(topic, topic.partitions, ErrorCode.UNKNOWN_TOPIC_ID))
        elif allows is not None and not allows(name):
            later.append(
                _refused_all(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            )
        else:
            known, unknown = _split(image, name, topic.partitions)
            if known:
                found.read.append(ReadTopic(name, topic.topic, topic.topic_id, known))
            if unknown:
                rows = found.refused if is_follower else later
                rows.append(_refused_all(topic, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    found.refused.extend(later)
    return found


def _name_of(image: MetadataImage, topic: FetchTopic, version: int) -> str | None:
    """Return the name of a topic; None for an id that is not known."""
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return topic.topic
    known = image.topic_by_id(topic.topic_id)
    return None if known is None else known.name


def _split(
    image: MetadataImage, name: str, asked: list[FetchPartition]
) -> tuple[list[FetchPartition], list[FetchPartition]]:
    """Return the partitions that are in the metadata, and those that are not."""
    topic = image.topic(name)
    if topic is None:
        return [], asked
    there = topic.partitions
    unknown = [partition for partition in asked if partition.partition not in there]
    if not unknown:
        return asked, unknown
    return [partition for partition in asked if partition.partition in there], unknown


def _refused_all(
    topic: FetchTopic, partitions: Iterable[FetchPartition], error: ErrorCode
) -> FetchableTopicResponse:
    rows = [
        PartitionData(
            partition_index=partition.partition,
            error_code=error,
            high_watermark=NO_OFFSET,
            aborted_transactions=[],
            records=b"",
        )
        for partition in partitions
    ]
    return FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows)


# --------------------------------------------------------------------------------------------------
# Parts of Fetch responses: the list of aborted transactions, and the response to a Fetch that is
# refused as a whole

# --------------------------------------------------------------------------------------------------
# The aborted-transaction list, by which read_committed consumers skip aborted records
#
# The list is built each time the log is read, for exactly the range that was read: the response
# of a Fetch that waited in purgatory includes transactions aborted in the meantime (KAFKA-5376).
# Source: UnifiedLog.collectAbortedTransactions, kafka.server.DelayedFetch.


class AbortedLists:
    """A replaceable component, so that scenarios can show consumers that receive an incomplete
    list.
    """

    __slots__ = ()

    def of(
        self, hosted: HostedPartition, first_offset: int, end_offset: int, *, has_waited: bool
    ) -> list[AbortedTransaction] | None:
        """Return the aborted transactions with records in [first_offset, end_offset); None is the
        value for read_uncommitted.
        """
        aborted = hosted.log.aborted_between(first_offset, end_offset)
        return [
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in aborted
        ]


# --------------------------------------------------------------------------------------------------
# A Fetch refused as a whole: before version 13 the error is returned for every requested
# partition, because old clients have no other error field
#
# Source: org.apache.kafka.common.requests.FetchRequest.getErrorResponse.

FIRST_VERSION_WITHOUT_PARTITIONS = 13


def refused_fetch(call: Call, error: ErrorCode) -> Answer:
    """Return the error response to a Fetch."""
    request = call.body
    assert isinstance(request, FetchRequest), "dispatch decodes by API key"
    response = FetchResponse(error_code=error, session_id=request.session_id)
    if call.api_version < FIRST_VERSION_WITHOUT_PARTITIONS:
        for topic in request.topics:
            rows = [_refused(partition.partition, error) for partition in topic.partitions]
            response.responses.append(FetchableTopicResponse(topic=topic.topic, partitions=rows))
    return response


def _refused(partition: int, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=NO_OFFSET,
        aborted_transactions=[],
        records=None,
    )


# --------------------------------------------------------------------------------------------------
# Down-conversion for Fetch 0 to 3: records in message format 0 or 1, converted when the response is
# sent, not before
#
# A waiting Fetch reads its partitions repeatedly; only what is finally sent is converted. The
# result is not larger than the bytes that were read, unless it is a single first batch.
# Source: KIP-74, KIP-283; KafkaApis.handleFetchRequest, LazyDownConversionRecords; verified against
# Apache Kafka 3.5.2 and 3.9.1.

FIRST_VERSION_WITH_YIELDING_LIMITS = 3
"""Before this version a size limit applies to the first batch, too, and an oversized one is not
sent; since then it may exceed it (KIP-74).
"""
FIRST_VERSION_OF_FORMAT_1 = 2
FIRST_VERSION_OF_FORMAT_2 = 4
FIRST_VERSION_WITH_STORAGE_ERROR = 6
FIRST_VERSION_WITH_ZSTD = 10


def refuse_reader(hosted: HostedPartition, version: int) -> ErrorCode | None:
    """Return the error of an old version for a topic, whatever its records: the topic uses zstd, or
    down-conversion is disabled.

    For releases that down-convert: 4.0 removed both checks, so that a topic with zstd is readable
    in every supported version.
    """
    settings = hosted.settings
    if settings.rules.compression is Compression.ZSTD and version < FIRST_VERSION_WITH_ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if version < FIRST_VERSION_OF_FORMAT_2 and not settings.converts_down:
        return ErrorCode.UNSUPPORTED_VERSION
    return None


class DownConversion:
    """The partitions of one response whose records are still in the format of the log."""

    __slots__ = ("_to_magic", "_waiting")

    def __init__(self, version: int) -> None:
        self._to_magic = 0 if version < FIRST_VERSION_OF_FORMAT_1 else 1
        self._waiting: list[tuple[PartitionData, int]] = []

    def add(self, data: PartitionData, first_offset: int) -> None:
        """Add a partition; its records before `first_offset` were not requested."""
        self._waiting.append((data, first_offset))

    @property
    def takes_long(self) -> bool:
        """Whether a thread should do the conversion."""
        held = [data.records for data, _ in self._waiting if data.records]
        return sum(map(len, held)) > LOOKED_THROUGH_BYTES_MAX or any(
            takes_long(records) for records in held
        )

    def convert(self) -> None:
        """Replace the records by converted ones; a partition that cannot be converted gets an
        error.
        """
        for data, first_offset in self._waiting:
            try:
                data.records = memoryview(
                    down_convert_in_pieces(
                        data.records or b"", to_magic=self._to_magic, first_offset=first_offset
                    )
                )
            except MalformedBatch as malformed:
                data.error_code, data.records = malformed.error_code, b""
                data.high_watermark = NO_OFFSET
