"""LZ4 frames as Kafka writes and reads them, including those of message format 0, whose header
checksum is wrong on purpose.

The first clients included the magic number in the checksum; a broker keeps writing it so for them,
and ignores it when it reads theirs.
Source: KAFKA-3160, KIP-57; Lz4BlockOutputStream, Lz4BlockInputStream, the LZ4 frame format 1.6.
"""

import struct
from typing import Final, NamedTuple

import cramjam

MAGIC: Final = bytes.fromhex("04224d18")
FLAGS: Final = 0x60  # format version 1, blocks that do not depend on each other
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
CONTENT_SIZE_BYTES: Final = 8
CHECKSUM_BYTES: Final = 4
RATIO_MAX: Final = 255  # what one compressed byte can stand for at most

XXH_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
XXH_INPUT_BYTES_MAX: Final = 15  # longer inputs go another way, and no header is longer
MASK: Final = 0xFFFFFFFF


class FrameBounds(NamedTuple):
    """The end of a frame, and its maximum uncompressed size."""

    end_position: int
    plain_bytes_max: int


def build_frame(data: memoryview, *, with_wrong_checksum: bool) -> bytes:
    """Return data as one frame of independent blocks, the only kind the Java client reads; the
    wrong checksum is that of message format 0.
    """
    chunks = [WRONG_HEADER if with_wrong_checksum else HEADER]
    for start in range(0, len(data), BLOCK_BYTES):
        plain = data[start : start + BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            chunks += (BLOCK_LENGTH.pack(len(block)), block)
        else:
            chunks += (BLOCK_LENGTH.pack(len(plain) | BLOCK_IS_PLAIN), bytes(plain))
    chunks.append(END_MARK)
    return b"".join(chunks)


def frame_bounds(data: memoryview) -> FrameBounds:
    """Iterate over the blocks of the frame at the start of data.

    Raises ValueError if it is no frame, struct.error for a truncated one.
    """
    block_bytes_max, position = _open_header(data)
    trailer_bytes = CHECKSUM_BYTES if data[4] & BLOCK_CHECKSUM_FLAG else 0
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
            size_bytes if length & BLOCK_IS_PLAIN else min(block_bytes_max, size_bytes * RATIO_MAX)
        )
        position += size_bytes + trailer_bytes
    if data[4] & CONTENT_CHECKSUM_FLAG:
        position += CHECKSUM_BYTES
    if position > len(data):
        raise ValueError("the content checksum is missing")
    return FrameBounds(position, plain_bytes_max)


def with_right_checksum(data: memoryview) -> bytes:
    """Return a frame with a valid header checksum, whatever it was."""
    _, position = _open_header(data)
    return b"".join(
        (data[: position - 1], _header_checksum(data[4 : position - 1]), data[position:])
    )


def _open_header(data: memoryview) -> tuple[int, int]:
    """Return the maximum uncompressed size of a block, and the position of the first one."""
    if data[:4] != MAGIC or len(data) < len(HEADER):
        raise ValueError("this is no LZ4 frame")
    flags, block_size_code = data[4], data[5] >> 4
    if (
        flags & VERSION_MASK != VERSION
        or flags & (RESERVED_FLAG | DICTIONARY_FLAG)
        or data[5] & 0x8F
        or block_size_code < 4
    ):
        raise ValueError(f"an LZ4 frame with the header {data[4]:02x}{data[5]:02x}")
    position = len(HEADER) + (CONTENT_SIZE_BYTES if flags & CONTENT_SIZE_FLAG else 0)
    if position > len(data):
        raise ValueError("the frame ends inside its header")
    return 1 << 2 * block_size_code + 8, position


def _header_checksum(header: bytes | memoryview) -> bytes:
    return bytes((xxh32_of_few(header) >> 8 & 0xFF,))


def xxh32_of_few(data: bytes | memoryview) -> int:
    """Return XXH32 with seed 0 of up to 15 bytes."""
    assert len(data) <= XXH_INPUT_BYTES_MAX, "a header is short"
    first, second, third, fourth, fifth = XXH_PRIMES
    value = (fifth + len(data)) & MASK
    whole = len(data) & ~3
    for (lane,) in struct.iter_unpack("<I", data[:whole]):
        value = _rotated(value + lane * third & MASK, 17) * fourth & MASK
    for byte in data[whole:]:
        value = _rotated(value + byte * fifth & MASK, 11) * first & MASK
    value = (value ^ value >> 15) * second & MASK
    value = (value ^ value >> 13) * third & MASK
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & MASK


_DESCRIPTOR = bytes((FLAGS, BLOCK_SIZE_CODE))
HEADER: Final = MAGIC + _DESCRIPTOR + _header_checksum(_DESCRIPTOR)
WRONG_HEADER: Final = MAGIC + _DESCRIPTOR + _header_checksum(MAGIC + _DESCRIPTOR)
