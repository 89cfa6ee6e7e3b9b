"""What Fetch 0 to 3 answers: records in message format 0 or 1, converted when the answer goes out, and no earlier.

A fetch that waits looks at its partitions again and again; only what is sent in the end is worth converting. Not more is made of it than the bytes
that were read, or its first batch.
Source: KIP-74, KIP-283; KafkaApis.handleFetchRequest, LazyDownConversionRecords; asked of Apache Kafka 3.5.2 and 3.9.1.
"""

from kraftsim.core.partitions.record_work import LOOKED_THROUGH_BYTES_MAX, takes_long
from kraftsim.node.broker.hosted_partition import HostedPartition
from protocol.compression import Compression
from protocol.down_conversion import down_convert_in_pieces
from protocol.errors import ErrorCode
from protocol.malformed_batches import MalformedBatch
from protocol.messages.k01_fetch import PartitionData

FIRST_VERSION_WITH_YIELDING_LIMITS = 3
"""Before it a limit on bytes holds for the first batch, too, and its reader is sent nothing; since then a batch may exceed it (KIP-74)."""
FIRST_VERSION_OF_FORMAT_1 = 2
FIRST_VERSION_OF_FORMAT_2 = 4
FIRST_VERSION_WITH_STORAGE_ERROR = 6
FIRST_VERSION_WITH_ZSTD = 10
NO_OFFSET = -1


def refuse_reader(hosted: HostedPartition, version: int) -> ErrorCode | None:
    """Return why a topic is not read in an old version, whatever is in it: it keeps zstd, or nothing is converted for it.

    For releases that convert: 4.0 gave up both, so that a topic that keeps zstd is read in every version there is.
    """
    settings = hosted.settings
    if settings.rules.compression is Compression.ZSTD and version < FIRST_VERSION_WITH_ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if version < FIRST_VERSION_OF_FORMAT_2 and not settings.converts_down:
        return ErrorCode.UNSUPPORTED_VERSION
    return None


class DownConversion:
    """The partitions of one answer whose records are still as they lie in the log."""

    __slots__ = ("_to_magic", "_waiting")

    def __init__(self, version: int) -> None:
        self._to_magic = 0 if version < FIRST_VERSION_OF_FORMAT_1 else 1
        self._waiting: list[tuple[PartitionData, int]] = []

    def add(self, data: PartitionData, first_offset: int) -> None:
        """Take note of a partition: its records before `first_offset` were not asked for."""
        self._waiting.append((data, first_offset))

    @property
    def takes_long(self) -> bool:
        """Whether a thread should convert."""
        held = [data.records for data, _ in self._waiting if data.records]
        return sum(map(len, held)) > LOOKED_THROUGH_BYTES_MAX or any(takes_long(records) for records in held)

    def convert(self) -> None:
        """Put what old readers understand in the place of the records; a partition without such becomes an error."""
        for data, first_offset in self._waiting:
            try:
                data.records = memoryview(down_convert_in_pieces(data.records or b"", to_magic=self._to_magic, first_offset=first_offset))
            except MalformedBatch as malformed:
                data.error_code, data.records = malformed.error_code, b""
                data.high_watermark = NO_OFFSET
