"""Records decoded side by side are those of the decoder that reads one after the other.

Source: DefaultRecord; `protocol.records.record_codec`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftsim.audit.reading.disks import LocalDisk
from kraftsim.audit.reading.pieces import Origin, TablePiece, arrow_of
from kraftsim.audit.reading.records import one_by_one, record_pieces
from kraftsim.audit.reading.segments import (
    FoundBatches,
    RangeReader,
    SegmentRange,
    batch_rows,
    control_of,
)
from protocol.records.batches import HEADER_SIZE_BYTES, RecordBatch, build_batch
from protocol.records.control_records import build_transaction_marker
from protocol.records.record import Compression, Headers, Record

Rows = list[dict[str, object]]
DrawnRecord = tuple[int, bytes | None, bytes | None, Headers]
Drawn = tuple[list[DrawnRecord], Compression, bool, int, int]
"""Records, and of their batch codec, whether it has LogAppendTime, base offset, base sequence."""
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(
    st.tuples(st.text("ab\N{SNOWMAN}", max_size=3), st.none() | st.binary(max_size=3)), max_size=2
).map(tuple)
TIMES = st.integers(0, 1 << 40) | st.integers(-(1 << 62), (1 << 62) - 1)
RECORDS = st.lists(st.tuples(TIMES, BYTES, BYTES, HEADERS), min_size=1, max_size=8)
BATCHES = st.lists(
    st.tuples(
        RECORDS,
        st.sampled_from(Compression),
        st.booleans(),
        st.integers(0, 1 << 40) | st.integers((1 << 62), (1 << 63) - 100),
        st.sampled_from((-1, 0, (1 << 31) - 3)),
    ),
    min_size=1,
    max_size=6,
)


def built(batch: Drawn) -> bytes:
    """Build a batch of drawn values."""
    records, compression, is_stamped, base_offset, base_sequence = batch
    return build_batch(
        [
            Record(timestamp=time, key=key, value=value, headers=headers)
            for time, key, value, headers in records
        ],
        base_offset=base_offset,
        producer_id=5,
        producer_epoch=1,
        base_sequence=base_sequence,
        compression=compression,
        append_timestamp=77 if is_stamped else None,
    )


def part_of(content: bytes, directory: Path) -> SegmentRange:
    """Write a segment, and return it as one range."""
    file = directory / "00000000000000000000.log"
    file.write_bytes(content)
    origin = Origin(
        log_dir=str(directory),
        node_id=1,
        directory="t-0",
        topic="t",
        partition=0,
        file=file.name,
        size=len(content),
        path=str(file),
    )
    return SegmentRange(
        origin=origin, base_offset=0, start=0, end=len(content), is_last=True, is_newest=True
    )


def found_in(part: SegmentRange) -> Iterator[FoundBatches]:
    """Yield the batches of a range, with their checksums unchecked."""
    for found in RangeReader(LocalDisk(), part, with_crc=False).found():
        if isinstance(found, FoundBatches):
            yield found


def rows_of(pieces: Iterator[TablePiece], table: str) -> Rows:
    """Return rows in the order of the log."""
    found: Rows = []
    for piece in pieces:
        if piece.table == table:
            found += arrow_of(piece).to_pylist()
    return sorted(found, key=lambda row: (repr(row["position"]), repr(row.get("record_offset"))))


def both(part: SegmentRange, table: str) -> tuple[Rows, Rows]:
    """Return the rows of a table by both decoders."""
    together = (piece for found in found_in(part) for piece in record_pieces(part, found))
    alone = (
        piece
        for found in found_in(part)
        for batch in found.batches()
        for piece in one_by_one(part, batch, found.shift)
    )
    return rows_of(together, table), rows_of(alone, table)


@pytest.fixture(name="place", scope="module")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@settings(max_examples=60, deadline=None)
@given(batches=BATCHES)
def test_records_are_the_same_by_both_decoders(place: Path, batches: list[Drawn]) -> None:
    """Null keys, headers, all codecs, sequences that wrap around, numbers that are far out."""
    part = part_of(b"".join(map(built, batches)), place)
    together, alone = both(part, "records")
    assert together == alone
    assert len(alone) == sum(len(batch[0]) for batch in batches)


@settings(max_examples=60, deadline=None)
@given(batches=BATCHES, choice=st.data())
def test_damaged_records_are_the_same_by_both_decoders(
    place: Path, batches: list[Drawn], choice: st.DataObject
) -> None:
    """What is unusual is left to the plain decoder, which says what is wrong."""
    changed = bytearray(b"".join(map(built, batches)))
    at = choice.draw(st.integers(HEADER_SIZE_BYTES - 4, len(changed) - 1))
    changed[at] = choice.draw(st.integers(0, 255))
    part = part_of(bytes(changed), place)
    for table in ("records", "problems"):
        together, alone = both(part, table)
        assert together == alone


@pytest.mark.parametrize("value", [0, 1, 2, 0x7F, 0x80, 0xFF])
def test_a_marker_with_any_byte_changed_is_the_same_by_both_decoders(
    place: Path, value: int
) -> None:
    """In each place, so that no choice at random has to meet one."""
    whole = build_transaction_marker(
        commits=True,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=7,
        timestamp=0,
        base_offset=0,
    )
    for at in range(HEADER_SIZE_BYTES - 4, len(whole)):
        content = bytearray(whole)
        content[at] = value
        part = part_of(bytes(content), place)
        found = rows_of(
            (piece for each in found_in(part) for piece in batch_rows(part, each)), "batches"
        )
        assert [(row["control_type"], row["coordinator_epoch"]) for row in found] == [
            control_of(RecordBatch(bytes(content)))
        ], at


@settings(max_examples=40, deadline=None)
@given(choice=st.data())
def test_markers_are_the_same_by_both_decoders(place: Path, choice: st.DataObject) -> None:
    """Also markers that no release writes."""
    contents = []
    for number in range(choice.draw(st.integers(1, 4))):
        content = bytearray(
            build_transaction_marker(
                commits=choice.draw(st.booleans()),
                producer_id=number,
                producer_epoch=0,
                coordinator_epoch=choice.draw(st.integers(0, (1 << 31) - 1)),
                timestamp=0,
                base_offset=number,
            )
        )
        if choice.draw(st.booleans()):
            at = choice.draw(st.integers(HEADER_SIZE_BYTES - 4, len(content) - 1))
            content[at] = choice.draw(st.integers(0, 255))
        contents.append(bytes(content))
    part = part_of(b"".join(contents), place)
    found = rows_of(
        (piece for each in found_in(part) for piece in batch_rows(part, each)), "batches"
    )
    expected = [control_of(RecordBatch(content)) for content in contents]
    found.sort(key=lambda row: int(str(row["position"])))
    assert [(row["control_type"], row["coordinator_epoch"]) for row in found] == expected


def test_bytes_left_over_are_malformed_for_both_decoders(place: Path) -> None:
    """Behind the last record that the header counts, and inside a record behind its headers."""
    two = bytearray(build_batch([Record(value=b"a"), Record(value=b"b")]))
    two[HEADER_SIZE_BYTES - 1] = 1
    longer = bytearray(build_batch([Record(value=b"a")]))
    longer[HEADER_SIZE_BYTES] += 2  # zigzag: one byte more
    longer[8:12] = (int.from_bytes(longer[8:12]) + 1).to_bytes(4)
    longer += b"\0"
    for content in (two, longer):
        together, alone = both(part_of(bytes(content), place), "problems")
        assert together == alone
        assert [row["problem"] for row in alone] == ["malformed"]
