"""Finds the fields of records in many batches at once: the first record of each batch, then the
second of each, and so on, each step with numpy.

Python needs microseconds for each record; with hundreds of batches side by side a record takes a
fraction of that. A batch with anything unusual is left to the decoder of `protocol.records`, which
decides whether it is wrong.
Source: DefaultRecord, ByteUtils (varints).
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, and one byte for each of timestamp, offset, key, value and headers."""
INT_BYTES_MAX: Final = 5
LONG_BYTES_MAX: Final = 9
"""Of a varint that is read here; ten bytes hold numbers that need all 64 bits."""


class Walked(NamedTuple):
    """The fields of all records of the batches that are not `is_left`, in their order.

    Starts are positions in the buffer; a size of -1 is a null. `batch` is the number of the batch.
    """

    is_left: Bools
    """By batch: whether it must be decoded otherwise."""
    batch: Longs
    timestamp_delta: Longs
    offset_delta: Longs
    key_start: Longs
    key_size: Longs
    value_start: Longs
    value_size: Longs
    header_count: Longs
    headers_position: Longs
    """Of the count."""
    record_end: Longs


def walk(content: npt.NDArray[np.uint8], starts: Longs, ends: Longs, counts: Longs) -> Walked:
    """Find the records of batches, whose records lie between `starts` and `ends`."""
    is_left = (counts < 0) | (counts * RECORD_BYTES_MIN > ends - starts)
    counts = np.where(is_left, 0, counts)
    first_rows = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)[:-1]))[: len(counts)]
    fields = np.zeros((9, int(counts.sum())), np.int64)
    active = np.flatnonzero(counts > 0)
    positions = starts[active]
    step = 0
    while len(active):
        values, positions, is_sound = _records(content, positions, ends[active])
        fields[:, first_rows[active] + step] = values
        is_left[active[~is_sound]] = True
        step += 1
        goes_on = is_sound & (counts[active] > step)
        is_over = is_sound & ~goes_on
        is_left[active[is_over]] |= positions[is_over] != ends[active[is_over]]
        active, positions = active[goes_on], positions[goes_on]
    empty = np.flatnonzero((counts == 0) & ~is_left)
    is_left[empty] |= starts[empty] != ends[empty]
    numbers = np.repeat(np.arange(len(counts)), counts)
    walked = Walked(is_left, numbers, *fields)
    return without(walked, is_left) if is_left.any() else walked


def without(walked: Walked, is_left: Bools) -> Walked:
    """Leave out the records of some batches."""
    kept = ~is_left[walked.batch]
    batch, *fields = (column[kept] for column in walked[1:])
    return Walked(walked.is_left | is_left, batch, *fields)


def _records(
    content: npt.NDArray[np.uint8], positions: Longs, ends: Longs
) -> tuple[npt.NDArray[np.int64], Longs, Bools]:
    """Return the fields of one record of each batch, where it ends, and whether it is as usual."""
    is_sound = np.ones(len(positions), bool)
    size, start = _varints(content, positions, INT_BYTES_MAX, is_sound)
    record_ends = start + size
    timestamp_delta, after = _varints(content, start + 1, LONG_BYTES_MAX, is_sound)
    offset_delta, after = _varints(content, after, INT_BYTES_MAX, is_sound)
    key_size, key_start = _varints(content, after, INT_BYTES_MAX, is_sound)
    after = key_start + np.maximum(key_size, 0)
    value_size, value_start = _varints(content, after, INT_BYTES_MAX, is_sound)
    after = value_start + np.maximum(value_size, 0)
    headers_position = after
    header_count, after = _varints(content, after, INT_BYTES_MAX, is_sound)
    is_sound &= (size > 0) & (record_ends <= ends) & (key_size >= -1) & (value_size >= -1)
    is_sound &= np.where(header_count == 0, after == record_ends, header_count > 0)
    is_sound &= after <= record_ends
    fields = np.stack(
        (
            timestamp_delta,
            offset_delta,
            key_start,
            key_size,
            value_start,
            value_size,
            header_count,
            headers_position,
            record_ends,
        )
    )
    return fields, record_ends, is_sound


def _varints(
    content: npt.NDArray[np.uint8], positions: Longs, bytes_max: int, is_sound: Bools
) -> tuple[Longs, Longs]:
    """Return zigzag varints and the positions after them; longer ones are not sound.

    A position after the end reads the last byte: the caller compares positions with the ends.
    """
    last = len(content) - 1
    byte = content[np.minimum(positions, last)]
    value = (byte & 0x7F).astype(np.int64)
    after = positions + 1
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    while len(more):
        if shift == 7 * bytes_max:
            is_sound[more] = False
            break
        byte = content[np.minimum(after[more], last)]
        value[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    return (value >> 1) ^ -(value & 1), after


def cut_out(content: npt.NDArray[np.uint8], starts: Longs, sizes: Longs) -> pa.Array:
    """Return pieces of a buffer, which begin one after the other, as a column of bytes; a size of
    -1 gives a null.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[::2] = starts
    offsets[1::2] = starts + np.maximum(sizes, 0)
    # every second element is a piece, the others are what lies between them
    all_pieces = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    )
    wanted = np.arange(0, 2 * count, 2)
    return all_pieces.take(pa.array(wanted, mask=sizes < 0))
