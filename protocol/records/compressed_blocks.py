"""Compression and decompression of blocks: gzip, snappy, lz4 and zstd, in the framings that Kafka's
clients write.

Snappy is read raw and in xerial's framing and written in the latter; lz4 is framed differently for
message format 0. The maximum uncompressed size of a block is known before it is decompressed, so
that corrupt data is distinguished from large data, and neither uses more memory than its size can
justify. Imported with the first compressed batch: importing the codecs takes longer than most of a
node.
Source: KIP-110 (zstd), KAFKA-3160 (lz4 header checksum), CompressionType, SnappyOutputStream.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping

import cramjam

from protocol.records import lz4_frames, zstd_frames
from protocol.records.compression import Bytes, Compression
from protocol.records.malformed_batches import UndecodableRecords

PLAIN_BYTES_MAX = 128 * 1024 * 1024
"""The limit of a decompressed block.

Kafka decompresses as a stream without such a limit; one small batch must not fill a node's memory.
"""

GZIP_WINDOW_BITS = 31  # zlib's 15 bits of window, plus 16 for the gzip header and trailer
GZIP_MAGIC = b"\x1f\x8b"
GZIP_RATIO_MAX = 1032  # of deflate
GZIP_SIZE_BYTES = 4  # the size of the last member, at its end
GZIP_TRUSTED_BYTES_MAX = 8 * 1024
"""The size in the header of a shorter block is trusted: if it is wrong, it costs some
milliseconds.
"""
PIECE_BYTES = 256 * 1024
"""The size of the pieces in which gzip is decompressed."""
GIVEN_BYTES = 64 * 1024
FIRST_GIVEN_BYTES = 512
"""The input of zlib per step for a gzip member after the first one: zlib copies unconsumed input,
so passing all of it would take quadratic time.
"""
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest compatible version
XERIAL_BLOCK_BYTES = 32 * 1024
XERIAL_BLOCK_LENGTH = struct.Struct(">i")
SNAPPY_RATIO_MAX = 64  # of any element, so of a block
LZ4_RATIO_MAX = 255  # of a sequence, so of a block


def pack(codec: Compression, data: Bytes, magic: int) -> bytes:
    """Return data as one compressed block for a message format; NONE returns it unchanged."""
    if codec is Compression.LZ4 and magic == 0:
        return lz4_frames.build_frame(memoryview(data), with_wrong_checksum=True)
    return COMPRESSORS[codec](data)


def unpack(codec: Compression, data: Bytes, magic: int) -> bytes:
    """Return the decompressed data for a message format.

    Raises UndecodableRecords, also for more than PLAIN_BYTES_MAX.
    """
    try:
        if codec is Compression.LZ4 and magic == 0:
            return _decompress_lz4(lz4_frames.with_right_checksum(memoryview(data)))
        return DECOMPRESSORS[codec](data)
    except (zlib.error, cramjam.DecompressionError, struct.error, ValueError) as failure:
        raise UndecodableRecords(f"{codec.name.lower()}: {failure}") from failure


def _compress_gzip(data: Bytes) -> bytes:
    compressor = zlib.compressobj(wbits=GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Bytes) -> bytes:
    return b"".join(_gzip_pieces(data))


def _gzip_pieces(data: Bytes) -> Iterator[bytes]:
    """Read one or more gzip members, as Java's GZIPInputStream does: trailing bytes that are no
    member are ignored.
    """
    view = memoryview(data)
    plain_bytes = position = 0
    given_bytes = len(view)
    while True:
        decompressor = zlib.decompressobj(wbits=GZIP_WINDOW_BITS)
        while not decompressor.eof:
            given = view[position : position + given_bytes]
            given_bytes = GIVEN_BYTES
            piece = decompressor.decompress(given, PIECE_BYTES)
            taken_bytes = len(given) - len(
                decompressor.unused_data if decompressor.eof else decompressor.unconsumed_tail
            )
            position += taken_bytes
            if piece:
                plain_bytes += len(piece)
                _require_bounded(plain_bytes)
                yield piece
            elif not taken_bytes and not decompressor.eof:
                raise ValueError("the data ends inside a gzip member")
        if view[position : position + len(GZIP_MAGIC)] != GZIP_MAGIC:
            return
        given_bytes = FIRST_GIVEN_BYTES


def unpack_in_pieces(codec: Compression, data: Bytes) -> Iterator[bytes]:
    """Yield the decompressed data: gzip in pieces, so that the caller can stop early; other codecs
    at once.

    Raises UndecodableRecords as `unpack` does, when it reaches data that cannot be decoded.
    """
    try:
        if codec is Compression.GZIP:
            yield from _gzip_pieces(data)
        else:
            yield DECOMPRESSORS[codec](data)
    except (zlib.error, cramjam.DecompressionError, struct.error, ValueError) as failure:
        raise UndecodableRecords(f"{codec.name.lower()}: {failure}") from failure


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of either framing.

    Raises ValueError or struct.error for a broken framing.
    """
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield view
        return
    if len(view) < len(XERIAL_HEADER):
        raise ValueError("the data ends inside its header")
    position = len(
        XERIAL_HEADER
    )  # writers disagree in the versions behind the magic, not in what they mean
    while position < len(view):
        (length,) = XERIAL_BLOCK_LENGTH.unpack_from(view, position)
        position += XERIAL_BLOCK_LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise ValueError(f"a block of {length} bytes where {len(view) - position} are left")
        yield view[position : position + length]
        position += length


def plain_bytes_estimate(codec: Compression, data: memoryview) -> int:
    """Return the maximum uncompressed size of a block, from its header; 0 if the header makes no
    sense.

    A gzip block may declare less than it contains: if it is long enough to contain much, the
    estimate is used.
    """
    try:
        match codec:
            case Compression.GZIP:
                announced = int.from_bytes(data[-GZIP_SIZE_BYTES:], "little")
                return (
                    announced
                    if len(data) < GZIP_TRUSTED_BYTES_MAX
                    else max(announced, len(data) * GZIP_RATIO_MAX)
                )
            case Compression.SNAPPY:
                return sum(
                    int(cramjam.snappy.decompress_raw_len(block)) for block in _snappy_blocks(data)
                )
            case Compression.LZ4:
                return min(lz4_frames.frame_bounds(data).plain_bytes_max, len(data) * LZ4_RATIO_MAX)
            case Compression.ZSTD:
                return zstd_frames.plain_bytes_bound(data)
            case _:
                return 0
    except (struct.error, ValueError, IndexError, cramjam.DecompressionError):
        return 0


def _compress_snappy(data: Bytes) -> bytes:
    view = memoryview(data)
    chunks = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        chunks += (XERIAL_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(chunks)


def _decompress_snappy(data: Bytes) -> bytes:
    plain: list[bytes] = []
    plain_bytes = 0
    for block in _snappy_blocks(memoryview(data)):
        plain.append(_decompress_raw_snappy(block, plain_bytes))
        plain_bytes += len(plain[-1])
    return b"".join(plain)


def _decompress_raw_snappy(view: memoryview, before_bytes: int) -> bytes:
    """Decompress one block with a size prefix; `before_bytes` were decompressed already."""
    plain_bytes = int(cramjam.snappy.decompress_raw_len(view))
    _require_bounded(before_bytes + plain_bytes)
    if plain_bytes > SNAPPY_RATIO_MAX * len(view):
        raise ValueError(f"{len(view)} bytes cannot stand for {plain_bytes}")
    return bytes(cramjam.snappy.decompress_raw(view))


def _compress_lz4(data: Bytes) -> bytes:
    return lz4_frames.build_frame(memoryview(data), with_wrong_checksum=False)


def _decompress_lz4(data: Bytes) -> bytes:
    view = memoryview(data)
    bounds = lz4_frames.frame_bounds(view)
    return _unpack_into_room(
        cramjam.lz4.decompress_into, view[: bounds.end_position], bounds.plain_bytes_max
    )


def _compress_zstd(data: Bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def _decompress_zstd(data: Bytes) -> bytes:
    view = memoryview(data)
    return _unpack_into_room(
        cramjam.zstd.decompress_into, view, zstd_frames.plain_bytes_bound(view)
    )


def _unpack_into_room(
    decompress_into: Callable[[Bytes, bytearray], int], data: memoryview, bound: int
) -> bytes:
    """Decompress data that needs `bound` bytes at most.

    If that is above the limit, the actual size may still be below: the codec finds out.
    """
    room = bytearray(min(bound, PLAIN_BYTES_MAX))
    return bytes(memoryview(room)[: decompress_into(data, room)])


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
