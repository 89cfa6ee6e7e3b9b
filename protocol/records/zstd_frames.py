"""The maximum uncompressed size of a zstd frame, read from its block headers without decompressing
it.

The Java client streams, so that its frames do not contain their size; without this, a response that
is too large looks like corrupt data.
Source: RFC 8878, sections 3.1.1 and 3.1.2.
"""

from typing import Final

MAGIC: Final = 0xFD2FB528
SKIPPABLE_MAGIC: Final = 0x184D2A50  # to 0x184D2A5F
BLOCK_BYTES_MAX: Final = 128 * 1024
BLOCK_HEADER_BYTES: Final = 3
RAW_BLOCK, RLE_BLOCK, COMPRESSED_BLOCK = 0, 1, 2
SINGLE_SEGMENT_FLAG: Final = 0x20
CHECKSUM_FLAG: Final = 0x04
DICTIONARY_ID_BYTES: Final = (0, 1, 2, 4)
CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)


def plain_bytes_bound(data: memoryview) -> int:
    """Return the maximum uncompressed size of the frames in data.

    Raises ValueError if it is no frame, and for a truncated one.
    """
    position = bound = 0
    if not data:
        raise ValueError("no frame")
    while position < len(data):
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic & ~0xF == SKIPPABLE_MAGIC:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
        elif magic == MAGIC:
            position, plain_bytes = _frame_bound(data, position + 4)
            bound += plain_bytes
        else:
            raise ValueError("this is no zstd frame")
    if position > len(data):
        raise ValueError("the data ends inside a frame")
    return bound


def _frame_bound(data: memoryview, position: int) -> tuple[int, int]:
    """Return the end of a frame and its maximum uncompressed size."""
    if position >= len(data):
        raise ValueError("the data ends inside a frame header")
    descriptor = data[position]
    content_size_code = descriptor >> 6
    single_segment = bool(descriptor & SINGLE_SEGMENT_FLAG)
    content_size_bytes = CONTENT_SIZE_BYTES[content_size_code] or int(single_segment)
    position += 1 + (not single_segment) + DICTIONARY_ID_BYTES[descriptor & 3] + content_size_bytes
    bound = 0
    is_last = False
    while not is_last:
        header = int.from_bytes(data[position : position + BLOCK_HEADER_BYTES], "little")
        position += BLOCK_HEADER_BYTES
        if position > len(data):
            raise ValueError("the data ends inside a frame")
        is_last, kind, size_bytes = bool(header & 1), header >> 1 & 3, header >> 3
        bound += BLOCK_BYTES_MAX if kind == COMPRESSED_BLOCK else size_bytes
        position += 1 if kind == RLE_BLOCK else size_bytes
    return position + (4 if descriptor & CHECKSUM_FLAG else 0), bound
