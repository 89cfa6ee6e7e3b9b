"""The four codecs of record batches: gzip, snappy, lz4 and zstd, in the framings Kafka's clients write.

Snappy is read raw and in xerial's framing and written in the latter; lz4 is written in independent blocks, the only kind the Java client reads.
Source: KIP-110 (zstd), KAFKA-3160 (lz4 header checksum), CompressionType, SnappyOutputStream, Lz4BlockOutputStream.
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from enum import IntEnum

import cramjam

from protocol.malformed_batches import UndecodableRecords

Bytes = bytes | bytearray | memoryview

PLAIN_BYTES_MAX = 128 * 1024 * 1024
"""What a block may hold when it is unpacked. Kafka unpacks as a stream and has no such limit; one small batch must not fill a node."""
FIRST_ROOM_BYTES = 64 * 1024
ROOM_GROWTH = 8

GZIP_WINDOW_BITS = 31  # zlib's 15 bits of window, plus 16 for the gzip header and trailer
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)  # magic, version, oldest compatible version
XERIAL_BLOCK_BYTES = 32 * 1024
XERIAL_BLOCK_LENGTH = struct.Struct(">i")
LZ4_FRAME_HEADER = bytes.fromhex("04224d18604082")  # magic; version 1, independent blocks; 64 KiB blocks; checksum of these two bytes
LZ4_BLOCK_BYTES = 64 * 1024
LZ4_BLOCK_LENGTH = struct.Struct("<I")
LZ4_BLOCK_IS_PLAIN = 0x80000000
LZ4_END_MARK = bytes(4)


class Compression(IntEnum):
    """The codec of a batch, bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, data: Bytes) -> bytes:
    """Return data as one compressed block; NONE returns it unchanged."""
    return COMPRESSORS[codec](data)


def decompress(codec: Compression, data: Bytes) -> bytes:
    """Return what was compressed. Raises UndecodableRecords, also for more than PLAIN_BYTES_MAX."""
    try:
        return DECOMPRESSORS[codec](data)
    except (zlib.error, cramjam.DecompressionError, struct.error, ValueError) as failure:
        raise UndecodableRecords(f"{codec.name.lower()}: {failure}") from failure


def _compress_gzip(data: Bytes) -> bytes:
    compressor = zlib.compressobj(wbits=GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Bytes) -> bytes:
    """Read one or more gzip members, as Java's GZIPInputStream does."""
    plain = bytearray()
    rest = bytes(data)
    while rest:
        decompressor = zlib.decompressobj(wbits=GZIP_WINDOW_BITS)
        plain += decompressor.decompress(rest, PLAIN_BYTES_MAX - len(plain) + 1)
        _require_bounded(len(plain))
        if not decompressor.eof:
            raise ValueError("the data ends inside a gzip member")
        rest = decompressor.unused_data
    return bytes(plain)


def _compress_snappy(data: Bytes) -> bytes:
    view = memoryview(data)
    chunks = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        chunks += (XERIAL_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(chunks)


def _decompress_snappy(data: Bytes) -> bytes:
    view = memoryview(data)
    if view[: len(XERIAL_HEADER)] == XERIAL_HEADER:
        return b"".join(_xerial_blocks(view[len(XERIAL_HEADER) :]))
    return _decompress_raw_snappy(view, 0)


def _decompress_raw_snappy(view: memoryview, before_bytes: int) -> bytes:
    """Unpack one block, whose size stands at its beginning; `before_bytes` were unpacked already."""
    _require_bounded(before_bytes + int(cramjam.snappy.decompress_raw_len(view)))
    return bytes(cramjam.snappy.decompress_raw(view))


def _xerial_blocks(view: memoryview) -> list[bytes]:
    plain: list[bytes] = []
    plain_bytes = 0
    position = 0
    while position < len(view):
        (length,) = XERIAL_BLOCK_LENGTH.unpack_from(view, position)
        position += XERIAL_BLOCK_LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise ValueError(f"a block of {length} bytes where {len(view) - position} are left")
        plain.append(_decompress_raw_snappy(view[position : position + length], plain_bytes))
        plain_bytes += len(plain[-1])
        position += length
    return plain


def _compress_lz4(data: Bytes) -> bytes:
    view = memoryview(data)
    chunks = [LZ4_FRAME_HEADER]
    for start in range(0, len(view), LZ4_BLOCK_BYTES):
        plain = view[start : start + LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            chunks += (LZ4_BLOCK_LENGTH.pack(len(block)), block)
        else:
            chunks += (LZ4_BLOCK_LENGTH.pack(len(plain) | LZ4_BLOCK_IS_PLAIN), bytes(plain))
    chunks.append(LZ4_END_MARK)
    return b"".join(chunks)


def _decompress_lz4(data: Bytes) -> bytes:
    return _decompress_bounded(cramjam.lz4.decompress_into, data)


def _compress_zstd(data: Bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def _decompress_zstd(data: Bytes) -> bytes:
    return _decompress_bounded(cramjam.zstd.decompress_into, data)


def _decompress_bounded(decompress_into: Callable[[Bytes, bytearray], int], data: Bytes) -> bytes:
    """Unpack into a room that grows until the answer fits. A codec does not tell bad data from too little room: both end at the limit."""
    room_bytes = max(FIRST_ROOM_BYTES, ROOM_GROWTH * len(data))
    while True:
        room = bytearray(min(room_bytes, PLAIN_BYTES_MAX))
        try:
            return bytes(memoryview(room)[: decompress_into(data, room)])
        except cramjam.DecompressionError:
            if len(room) == PLAIN_BYTES_MAX:
                raise
        room_bytes *= ROOM_GROWTH


def _require_bounded(plain_bytes: int) -> None:
    if plain_bytes > PLAIN_BYTES_MAX:
        raise ValueError(f"more than {PLAIN_BYTES_MAX} bytes when unpacked")


COMPRESSORS: Mapping[Compression, Callable[[Bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
DECOMPRESSORS: Mapping[Compression, Callable[[Bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
