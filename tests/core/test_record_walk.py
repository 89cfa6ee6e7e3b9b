"""The walk over the lengths of records, compared with the full record reader."""

from collections.abc import Callable
from random import Random

import pytest

from protocol.records.batches import HEADER_SIZE_BYTES, RecordBatch, build_batch
from protocol.records.record import MalformedRecord, Record

SIZES: dict[str, Callable[[Random, int], int]] = {
    "none": lambda draw, index: 0,
    "all of one byte": lambda draw, index: 1,
    "all short": lambda draw, index: 40,
    "all of a kilobyte": lambda draw, index: 1024,
    "at the edge of two length bytes": lambda draw, index: draw.choice((8170, 8180, 8190)),
    "runs": lambda draw, index: (7, 90, 300)[index // 23 % 3],
    "in pairs": lambda draw, index: 50 + index // 2 % 2,
    "any": lambda draw, index: draw.randrange(300),
    "long": lambda draw, index: 20_000,
}


def batch_of(kind: str, count: int) -> bytes:
    draw = Random(f"{kind}/{count}")
    return build_batch(
        [Record(timestamp=index, value=bytes(SIZES[kind](draw, index))) for index in range(count)]
    )


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 11, 64, 65, 300])
def test_records_of_any_sizes_are_accepted(kind: str, count: int) -> None:
    """Records of equal size are skipped together; others one by one."""
    RecordBatch(batch_of(kind, count)).require_whole_records()


@pytest.mark.parametrize("kind", SIZES)
def test_changed_length_is_detected_wherever_the_reader_would_fail(kind: str) -> None:
    """One byte of the records is changed: the walk ignores changes that leave the lengths intact
    and must detect all others.
    """
    whole = batch_of(kind, 40)
    draw = Random(kind)
    for _ in range(200):
        changed = bytearray(whole)
        at = HEADER_SIZE_BYTES + draw.randrange(min(len(whole) - HEADER_SIZE_BYTES, 2000))
        changed[at] ^= 1 << draw.randrange(8)
        batch = RecordBatch(bytes(changed))
        try:
            list(batch.records())
        except MalformedRecord:
            continue
        try:
            batch.require_whole_records()
        except MalformedRecord:
            pytest.fail(f"byte {at} of a batch that can be read")


@pytest.mark.parametrize("missing", [1, 2, 1024, 2000])
def test_truncated_batch_is_rejected(missing: int) -> None:
    """Fewer bytes than the records need: the last one ends outside."""
    whole = batch_of("all of a kilobyte", 50)
    cut = bytearray(whole[:-missing])
    cut[8:12] = (len(cut) - 12).to_bytes(4, "big")
    with pytest.raises(MalformedRecord):
        RecordBatch(bytes(cut)).require_whole_records()


@pytest.mark.parametrize("change", [-1, 1])
def test_wrong_record_count_is_rejected(change: int) -> None:
    """One record more or fewer than in the header."""
    whole = bytearray(batch_of("all of a kilobyte", 50))
    whole[57:61] = (50 + change).to_bytes(4, "big")
    with pytest.raises(MalformedRecord):
        RecordBatch(bytes(whole)).require_whole_records()
