"""Down-conversion for Fetch 0 to 3: records in message format 0 or 1, converted when the response
is sent, not before.

A waiting Fetch reads its partitions repeatedly; only what is finally sent is converted. The result
is not larger than the bytes that were read, unless it is a single first batch.
Source: KIP-74, KIP-283; KafkaApis.handleFetchRequest, LazyDownConversionRecords; verified against
Apache Kafka 3.5.2 and 3.9.1.
"""

from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.rules_scan_work import LOOKED_THROUGH_BYTES_MAX, takes_long
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import PartitionData
from protocol.records.down_conversion import down_convert_in_pieces
from protocol.records.record import Compression, MalformedBatch

FIRST_VERSION_WITH_YIELDING_LIMITS = 3
"""Before this version a size limit applies to the first batch, too, and an oversized one is not
sent; since then it may exceed it (KIP-74).
"""
FIRST_VERSION_OF_FORMAT_1 = 2
FIRST_VERSION_OF_FORMAT_2 = 4
FIRST_VERSION_WITH_STORAGE_ERROR = 6
FIRST_VERSION_WITH_ZSTD = 10
NO_OFFSET = -1


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
