"""What a batch is made of: single records, the four codecs that compress them, and the errors of
their bytes.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from functools import cache
from types import ModuleType
from typing import Final, NamedTuple

from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage

# --------------------------------------------------------------------------------------------------
# One record of a batch, and the bounds of its numbers
#
# Source: KIP-98 (message format 2), DefaultRecord.

Headers = tuple[tuple[str, bytes | None], ...]

UNASSIGNED_OFFSET = -1
NO_TIMESTAMP = -1
INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1
# a broker never decodes header keys: what is not UTF-8 must pass through unharmed
HEADER_KEY_ERRORS = "surrogateescape"


class Record(NamedTuple):
    """One record.

    A builder numbers records without an offset from the batch's base offset on; timestamps are
    milliseconds since 1970.
    """

    offset: int = UNASSIGNED_OFFSET
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


def in_64_bits(number: int) -> int:
    """Return what Java's arithmetic makes of a number: it wraps around."""
    return (number - INT64_MIN & 0xFFFF_FFFF_FFFF_FFFF) + INT64_MIN


# --------------------------------------------------------------------------------------------------
# Errors in the bytes of record batches, each with the error code that a broker returns
#
# A Produce handler turns these into its response; log recovery truncates the file at `position`.
# Source: DefaultRecordBatch, ByteBufferLogInputStream, ProduceRequest.validateRecords,
# LogValidator; codes observed on 3.9.1.


class MalformedBatch(MalformedMessage):
    """Bytes that should be a record batch are not one; `position` is where the batch starts in its
    buffer.
    """

    def __init__(
        self, reason: str, position: int = 0, error_code: ErrorCode = ErrorCode.INVALID_RECORD
    ) -> None:
        super().__init__(None, None, "record batch", reason, position)
        self.error_code = error_code


class TornBatch(MalformedBatch):
    """The buffer ends before the batch does: a truncated header or truncated records."""


class UnsupportedMagic(MalformedBatch):
    """An unsupported message format: one that exists (rejected as INVALID_RECORD), or garbage
    (CORRUPT_MESSAGE).
    """

    def __init__(self, magic: int, position: int = 0, spoken: str = "only 2 is") -> None:
        once_existed = 0 <= magic <= 2
        super().__init__(
            f"magic {magic}, {spoken} spoken here",
            position,
            ErrorCode.INVALID_RECORD if once_existed else ErrorCode.CORRUPT_MESSAGE,
        )
        self.magic = magic


class MalformedRecord(MalformedBatch):
    """A record inside a batch is inconsistent: its length, a varint, its headers, or the number of
    records.
    """


class UndecodableRecords(MalformedBatch):
    """Compressed records that their codec cannot read, or a codec number that does not exist."""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(reason, position, ErrorCode.UNKNOWN_SERVER_ERROR)


class UnconvertibleBatch(MalformedBatch):
    """Valid records that the target message format or codec cannot represent."""

    def __init__(
        self, reason: str, position: int = 0, error_code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    ) -> None:
        super().__init__(reason, position, error_code)


# --------------------------------------------------------------------------------------------------
# The four codecs of record batches: gzip, snappy, lz4 and zstd, in the framings that Kafka's
# clients write
#
# Snappy is read raw and in xerial's framing and written in the latter; lz4 is framed differently
# for message format 0. The maximum uncompressed size of a block is known before it is decompressed,
# so that corrupt data is distinguished from large data, and neither uses more memory than its size
# can justify.
# Source: KIP-110 (zstd), KAFKA-3160 (lz4 header checksum), CompressionType, SnappyOutputStream.

Bytes = bytes | bytearray | memoryview

NEWEST_MAGIC = 2


class Compression(IntEnum):
    """The codec of a batch, bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@cache
def _cramjam() -> ModuleType:
    """Return the library of the codecs, imported with the first compressed block: importing it
    takes longer than most of a node.
    """
    import cramjam

    return cramjam


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


def compress(codec: Compression, data: Bytes, magic: int = NEWEST_MAGIC) -> bytes:
    """Return data as one compressed block for a message format; NONE returns it unchanged."""
    if codec is Compression.LZ4 and magic == 0:
        return build_lz4_frame(memoryview(data), with_wrong_checksum=True)
    return COMPRESSORS[codec](data)


def decompress(codec: Compression, data: Bytes, magic: int = NEWEST_MAGIC) -> bytes:
    """Return the decompressed data for a message format.

    Raises UndecodableRecords, also for more than PLAIN_BYTES_MAX.
    """
    try:
        if codec is Compression.LZ4 and magic == 0:
            return _decompress_lz4(with_right_lz4_checksum(memoryview(data)))
        return DECOMPRESSORS[codec](data)
    except (zlib.error, _cramjam().DecompressionError, struct.error, ValueError) as failure:
        raise UndecodableRecords(f"{codec.name.lower()}: {failure}") from failure


def decompress_in_pieces(codec: Compression, data: Bytes) -> Iterator[bytes]:
    """Yield the decompressed data: gzip in pieces, so that the caller can stop early; other codecs
    at once.

    Raises UndecodableRecords as `decompress` does, when it reaches data that cannot be decoded.
    """
    try:
        if codec is Compression.GZIP:
            yield from _gzip_pieces(data)
        else:
            yield DECOMPRESSORS[codec](data)
    except (zlib.error, _cramjam().DecompressionError, struct.error, ValueError) as failure:
        raise UndecodableRecords(f"{codec.name.lower()}: {failure}") from failure


def estimated_plain_bytes(codec: Compression, data: memoryview) -> int:
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
                    int(_cramjam().snappy.decompress_raw_len(block))
                    for block in _snappy_blocks(data)
                )
            case Compression.LZ4:
                return min(lz4_frame_bounds(data).plain_bytes_max, len(data) * LZ4_RATIO_MAX)
            case Compression.ZSTD:
                return zstd_plain_bytes_bound(data)
            case _:
                return 0
    except (struct.error, ValueError, IndexError, _cramjam().DecompressionError):
        return 0


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


def _compress_snappy(data: Bytes) -> bytes:
    view = memoryview(data)
    chunks = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(_cramjam().snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
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
    plain_bytes = int(_cramjam().snappy.decompress_raw_len(view))
    _require_bounded(before_bytes + plain_bytes)
    if plain_bytes > SNAPPY_RATIO_MAX * len(view):
        raise ValueError(f"{len(view)} bytes cannot stand for {plain_bytes}")
    return bytes(_cramjam().snappy.decompress_raw(view))


def _compress_lz4(data: Bytes) -> bytes:
    return build_lz4_frame(memoryview(data), with_wrong_checksum=False)


def _decompress_lz4(data: Bytes) -> bytes:
    view = memoryview(data)
    bounds = lz4_frame_bounds(view)
    return _unpack_into_room(
        _cramjam().lz4.decompress_into, view[: bounds.end_position], bounds.plain_bytes_max
    )


def _compress_zstd(data: Bytes) -> bytes:
    return bytes(_cramjam().zstd.compress(data))


def _decompress_zstd(data: Bytes) -> bytes:
    view = memoryview(data)
    return _unpack_into_room(_cramjam().zstd.decompress_into, view, zstd_plain_bytes_bound(view))


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


# --------------------------------------------------------------------------------------------------
# LZ4 frames as Kafka writes and reads them, including those of message format 0, whose header
# checksum is wrong on purpose
#
# The first clients included the magic number in the checksum; a broker keeps writing it so for
# them, and ignores it when it reads theirs.
# Source: KAFKA-3160, KIP-57; Lz4BlockOutputStream, Lz4BlockInputStream, the LZ4 frame format 1.6.

LZ4_MAGIC: Final = bytes.fromhex("04224d18")
LZ4_FLAGS: Final = 0x60  # format version 1, blocks that do not depend on each other
BLOCK_SIZE_CODE: Final = 0x40  # 64 KiB
BLOCK_BYTES: Final = 64 * 1024
BLOCK_LENGTH: Final = struct.Struct("<I")
BLOCK_IS_PLAIN: Final = 0x80000000
END_MARK: Final = bytes(4)
VERSION_MASK, VERSION = 0xC0, 0x40
BLOCK_CHECKSUM_FLAG: Final = 0x10
CONTENT_SIZE_FLAG: Final = 0x08
CONTENT_CHECKSUM_FLAG: Final = 0x04
RESERVED_FLAG: Final = 0x02
DICTIONARY_FLAG: Final = 0x01
LZ4_CONTENT_SIZE_BYTES: Final = 8
LZ4_CHECKSUM_BYTES: Final = 4

XXH_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
XXH_INPUT_BYTES_MAX: Final = 15  # longer inputs go another way, and no header is longer
XXH_MASK: Final = 0xFFFFFFFF


class Lz4FrameBounds(NamedTuple):
    """The end of a frame, and its maximum uncompressed size."""

    end_position: int
    plain_bytes_max: int


def build_lz4_frame(data: memoryview, *, with_wrong_checksum: bool) -> bytes:
    """Return data as one frame of independent blocks, the only kind the Java client reads; the
    wrong checksum is that of message format 0.
    """
    chunks = [WRONG_LZ4_HEADER if with_wrong_checksum else LZ4_HEADER]
    for start in range(0, len(data), BLOCK_BYTES):
        plain = data[start : start + BLOCK_BYTES]
        block = bytes(_cramjam().lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            chunks += (BLOCK_LENGTH.pack(len(block)), block)
        else:
            chunks += (BLOCK_LENGTH.pack(len(plain) | BLOCK_IS_PLAIN), bytes(plain))
    chunks.append(END_MARK)
    return b"".join(chunks)


def lz4_frame_bounds(data: memoryview) -> Lz4FrameBounds:
    """Iterate over the blocks of the frame at the start of data.

    Raises ValueError if it is no frame, struct.error for a truncated one.
    """
    block_bytes_max, position = _open_lz4_header(data)
    trailer_bytes = LZ4_CHECKSUM_BYTES if data[4] & BLOCK_CHECKSUM_FLAG else 0
    plain_bytes_max = 0
    while True:
        (length,) = BLOCK_LENGTH.unpack_from(data, position)
        position += BLOCK_LENGTH.size
        if length == 0:
            break
        size_bytes = length & ~BLOCK_IS_PLAIN
        if size_bytes > block_bytes_max or position + size_bytes + trailer_bytes > len(data):
            raise ValueError(f"a block of {size_bytes} bytes where {len(data) - position} are left")
        plain_bytes_max += (
            size_bytes
            if length & BLOCK_IS_PLAIN
            else min(block_bytes_max, size_bytes * LZ4_RATIO_MAX)
        )
        position += size_bytes + trailer_bytes
    if data[4] & CONTENT_CHECKSUM_FLAG:
        position += LZ4_CHECKSUM_BYTES
    if position > len(data):
        raise ValueError("the content checksum is missing")
    return Lz4FrameBounds(position, plain_bytes_max)


def with_right_lz4_checksum(data: memoryview) -> bytes:
    """Return a frame with a valid header checksum, whatever it was."""
    _, position = _open_lz4_header(data)
    return b"".join(
        (data[: position - 1], _lz4_header_checksum(data[4 : position - 1]), data[position:])
    )


def _open_lz4_header(data: memoryview) -> tuple[int, int]:
    """Return the maximum uncompressed size of a block, and the position of the first one."""
    if data[:4] != LZ4_MAGIC or len(data) < len(LZ4_HEADER):
        raise ValueError("this is no LZ4 frame")
    flags, block_size_code = data[4], data[5] >> 4
    if (
        flags & VERSION_MASK != VERSION
        or flags & (RESERVED_FLAG | DICTIONARY_FLAG)
        or data[5] & 0x8F
        or block_size_code < 4
    ):
        raise ValueError(f"an LZ4 frame with the header {data[4]:02x}{data[5]:02x}")
    position = len(LZ4_HEADER) + (LZ4_CONTENT_SIZE_BYTES if flags & CONTENT_SIZE_FLAG else 0)
    if position > len(data):
        raise ValueError("the frame ends inside its header")
    return 1 << 2 * block_size_code + 8, position


def _lz4_header_checksum(header: bytes | memoryview) -> bytes:
    return bytes((xxh32_of_few(header) >> 8 & 0xFF,))


def xxh32_of_few(data: bytes | memoryview) -> int:
    """Return XXH32 with seed 0 of up to 15 bytes."""
    assert len(data) <= XXH_INPUT_BYTES_MAX, "a header is short"
    first, second, third, fourth, fifth = XXH_PRIMES
    value = (fifth + len(data)) & XXH_MASK
    whole = len(data) & ~3
    for (lane,) in struct.iter_unpack("<I", data[:whole]):
        value = _rotated(value + lane * third & XXH_MASK, 17) * fourth & XXH_MASK
    for byte in data[whole:]:
        value = _rotated(value + byte * fifth & XXH_MASK, 11) * first & XXH_MASK
    value = (value ^ value >> 15) * second & XXH_MASK
    value = (value ^ value >> 13) * third & XXH_MASK
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & XXH_MASK


_DESCRIPTOR = bytes((LZ4_FLAGS, BLOCK_SIZE_CODE))
LZ4_HEADER: Final = LZ4_MAGIC + _DESCRIPTOR + _lz4_header_checksum(_DESCRIPTOR)
WRONG_LZ4_HEADER: Final = LZ4_MAGIC + _DESCRIPTOR + _lz4_header_checksum(LZ4_MAGIC + _DESCRIPTOR)


# --------------------------------------------------------------------------------------------------
# The maximum uncompressed size of a zstd frame, read from its block headers without decompressing
# it
#
# The Java client streams, so that its frames do not contain their size; without this, a response
# that is too large looks like corrupt data.
# Source: RFC 8878, sections 3.1.1 and 3.1.2.

ZSTD_MAGIC: Final = 0xFD2FB528
SKIPPABLE_ZSTD_MAGIC: Final = 0x184D2A50  # to 0x184D2A5F
ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024
ZSTD_BLOCK_HEADER_BYTES: Final = 3
RAW_BLOCK, RLE_BLOCK, COMPRESSED_BLOCK = 0, 1, 2
SINGLE_SEGMENT_FLAG: Final = 0x20
ZSTD_CHECKSUM_FLAG: Final = 0x04
DICTIONARY_ID_BYTES: Final = (0, 1, 2, 4)
ZSTD_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)


def zstd_plain_bytes_bound(data: memoryview) -> int:
    """Return the maximum uncompressed size of the frames in data.

    Raises ValueError if it is no frame, and for a truncated one.
    """
    position = bound = 0
    if not data:
        raise ValueError("no frame")
    while position < len(data):
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic & ~0xF == SKIPPABLE_ZSTD_MAGIC:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
        elif magic == ZSTD_MAGIC:
            position, plain_bytes = _zstd_frame_bound(data, position + 4)
            bound += plain_bytes
        else:
            raise ValueError("this is no zstd frame")
    if position > len(data):
        raise ValueError("the data ends inside a frame")
    return bound


def _zstd_frame_bound(data: memoryview, position: int) -> tuple[int, int]:
    """Return the end of a frame and its maximum uncompressed size."""
    if position >= len(data):
        raise ValueError("the data ends inside a frame header")
    descriptor = data[position]
    content_size_code = descriptor >> 6
    single_segment = bool(descriptor & SINGLE_SEGMENT_FLAG)
    content_size_bytes = ZSTD_CONTENT_SIZE_BYTES[content_size_code] or int(single_segment)
    position += 1 + (not single_segment) + DICTIONARY_ID_BYTES[descriptor & 3] + content_size_bytes
    bound = 0
    is_last = False
    while not is_last:
        header = int.from_bytes(data[position : position + ZSTD_BLOCK_HEADER_BYTES], "little")
        position += ZSTD_BLOCK_HEADER_BYTES
        if position > len(data):
            raise ValueError("the data ends inside a frame")
        is_last, kind, size_bytes = bool(header & 1), header >> 1 & 3, header >> 3
        bound += ZSTD_BLOCK_BYTES_MAX if kind == COMPRESSED_BLOCK else size_bytes
        position += 1 if kind == RLE_BLOCK else size_bytes
    return position + (4 if descriptor & ZSTD_CHECKSUM_FLAG else 0), bound


# --------------------------------------------------------------------------------------------------
# The codecs by their numbers

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
