"""Calls protocol.records.compressed_blocks, which is imported with the first compressed block:
importing the codecs takes longer than most of a node.
"""

from collections.abc import Iterator

from protocol.records.compression import NEWEST_MAGIC, Bytes, Compression


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
