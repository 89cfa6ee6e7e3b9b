"""The four codecs of record batches: gzip, snappy, lz4 and zstd, which are implemented in
protocol.records.compressed_blocks.

Source: CompressionType.
"""

from collections.abc import Iterator
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


def compress(codec: Compression, data: Bytes, magic: int = NEWEST_MAGIC) -> bytes:
    """Return data as one compressed block for a message format; NONE returns it unchanged."""
    from protocol.records.compressed_blocks import pack

    return pack(codec, data, magic)


def decompress_in_pieces(codec: Compression, data: Bytes) -> Iterator[bytes]:
    """Yield the decompressed data in pieces.

    Raises UndecodableRecords when it reaches data that cannot be decoded.
    """
    from protocol.records.compressed_blocks import unpack_in_pieces

    return unpack_in_pieces(codec, data)


def estimated_plain_bytes(codec: Compression, data: memoryview) -> int:
    """Return the maximum uncompressed size of a compressed block, without decompressing it."""
    from protocol.records.compressed_blocks import plain_bytes_estimate

    return plain_bytes_estimate(codec, data)


def decompress(codec: Compression, data: Bytes, magic: int = NEWEST_MAGIC) -> bytes:
    """Return the decompressed data for a message format.

    Raises UndecodableRecords, also for more than PLAIN_BYTES_MAX.
    """
    from protocol.records.compressed_blocks import unpack

    return unpack(codec, data, magic)
