"""The four codecs of record batches: gzip, snappy, lz4 and zstd, which are implemented in
protocol.records.compressed_blocks, and called through protocol.records.lazy_blocks.

Source: CompressionType.
"""

from enum import IntEnum

Bytes = bytes | bytearray | memoryview

NEWEST_MAGIC = 2


class Compression(IntEnum):
    """The codec of a batch, bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
