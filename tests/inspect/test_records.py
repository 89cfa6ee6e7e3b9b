"""Record batches are decoded down to their records, and an error in one does not hide the next."""

import pytest

from kraftsim.inspect.lone import Hint, dissect_lone
from kraftsim.inspect.parts import DecodeTrouble, Part, walk
from kraftsim.inspect.records import dissect_batches
from protocol.coordinator.consumer_groups import OffsetCommitKey, OffsetCommitValue
from protocol.coordinator.registry import build_record as build_coordinator_record
from protocol.metadata.registry import build_record
from protocol.metadata.topics import TopicRecord
from protocol.records.batches import CRC, build_batch, split_batches
from protocol.records.control_records import build_leader_change, build_transaction_marker
from protocol.records.message_sets import build_message_set
from protocol.records.record import Compression, Record

RECORDS = [
    Record(0, 1_700_000_000_000, b"k", b"v" * 300, (("h", b"1"), ("n", None))),
    Record(1, 1_700_000_000_500, None, None),
    Record(2, 1_699_999_999_000, b"", b""),
]
PLAIN = build_batch(RECORDS, producer_id=7)


def records_of(batch: Part) -> list[tuple[object, ...]]:
    records = batch.part("records")
    assert records is not None
    return [
        (
            *(
                each.value
                for name in ("offset", "timestamp", "key", "value")
                for each in [record.part(name)]
                if each is not None
            ),
            tuple(
                (header.name, header.value)
                for part in [record.part("headers")]
                if part is not None
                for header in part.parts or ()
            ),
        )
        for record in records.parts or ()
    ]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("append_timestamp", [None, 1_700_000_009_999])
def test_records_match_those_of_the_batch_view(
    codec: Compression, append_timestamp: int | None
) -> None:
    content = b"before" + build_batch(RECORDS, compression=codec, append_timestamp=append_timestamp)
    troubles: list[DecodeTrouble] = []
    (batch,) = dissect_batches(content, 6, len(content), "", troubles)
    (view,) = split_batches(content[6:])
    assert not troubles and records_of(batch) == [tuple(record) for record in view.records()]
    assert [getattr(view, part.name) for part in (batch.parts or ())[:13]] == [
        part.value for part in (batch.parts or ())[:13]
    ]
    places = dict(walk(batch.parts or []))
    value = places["records[0].value"]
    assert value.uncompressed == (codec is not Compression.NONE)
    if not value.uncompressed:
        assert content[value.end - 300 : value.end] == b"v" * 300


def damaged(batch: bytes, position: int, value: int, *, with_checksum: bool = False) -> bytes:
    """Return the batch with one byte changed, optionally with a correct checksum."""
    from crc32c import crc32c

    changed = bytearray(batch)
    changed[position] = value
    if with_checksum:
        changed[17:21] = CRC.pack(crc32c(bytes(changed[21:])))
    return bytes(changed)


@pytest.mark.parametrize(
    ("batch", "troubles", "batches"),
    [
        (damaged(PLAIN, 70, 0x7F), ["[0].crc, byte 17: the checksum does not fit the bytes"], 2),
        (
            damaged(PLAIN, 61, 0x7E, with_checksum=True),
            ["[0].records[0], byte 68: 300 headers in 55 bytes"],
            2,
        ),
        (damaged(PLAIN, 60, 4, with_checksum=True), ["[0].records[3], byte "], 2),
        (damaged(PLAIN, 60, 2, with_checksum=True), ["[0].records, byte "], 2),
        (
            damaged(PLAIN, 22, 7, with_checksum=True),
            ["[0].records, byte 61: there is no codec 7"],
            2,
        ),
        (damaged(PLAIN, 22, 1, with_checksum=True), ["[0].records, byte 61: gzip: "], 2),
        (damaged(PLAIN, 16, 9), ["[0], byte 16: magic 9"], 1),
        (damaged(PLAIN, 8, 0x7F), ["[0], byte 0: the last batch is torn"], 0),
        (PLAIN[:-1], [f"[1], byte {len(PLAIN)}: the last batch is torn: "], 1),
    ],
)
def test_errors_name_their_position_and_the_next_batch_is_read(
    batch: bytes, troubles: list[str], batches: int
) -> None:
    found = next(iter(dissect_lone(batch + PLAIN, Hint.BATCH)))
    said = [str(trouble) for trouble in found.tree.troubles]
    assert len(said) == len(troubles), said
    assert all(words.startswith(start) for words, start in zip(said, troubles, strict=True)), said
    assert len(found.tree.parts) == batches


def opened(content: bytes, topic: str | None) -> tuple[dict[str, object], list[str], list[str]]:
    """Return value and annotation of every part, and the errors."""
    found = next(iter(dissect_lone(content, Hint.BATCH, topic=topic)))
    places = list(walk(found.tree.parts))
    return (
        {path: part.value for path, part in places},
        [part.emit for _, part in places],
        [str(each) for each in found.tree.troubles],
    )


@pytest.mark.parametrize("topic", ["__cluster_metadata", None])
def test_metadata_records_are_decoded_without_a_given_decoder(topic: str | None) -> None:
    values, notes, troubles = opened(
        build_batch(
            [Record(value=build_record(TopicRecord(name="orders", topic_id=bytes(16)), 0))]
        ),
        topic,
    )
    assert (
        values["[0].records[0].value.name"] == "orders"
        and "TopicRecord v0" in notes
        and not troubles
    )


def test_an_invalid_metadata_record_is_an_error_only_in_the_metadata_log() -> None:
    batch = build_batch([Record(value=b"\x01\x02\x00\x7f")])
    assert opened(batch, None)[2] == []
    assert opened(batch, "__cluster_metadata")[2][0].startswith("[0].records[0].value.name, byte ")


def test_coordinator_record_keys_and_values_are_decoded() -> None:
    key, value = build_coordinator_record(
        OffsetCommitKey(group="g", topic="t", partition=3), OffsetCommitValue(offset=42), 3
    )
    values, _, troubles = opened(
        build_batch([Record(key=key, value=value), Record(key=key, value=None)]),
        "__consumer_offsets",
    )
    assert (
        values["[0].records[0].key.group"],
        values["[0].records[0].value.offset"],
        values["[0].records[1].key.partition"],
    ) == ("g", 42, 3)
    assert not troubles


def test_control_records_are_decoded() -> None:
    marker = build_transaction_marker(
        commits=False, producer_id=7, producer_epoch=0, coordinator_epoch=4, timestamp=0
    )
    change = build_leader_change(
        leader_id=1, voters=[1, 2], granting_voters=[1], base_offset=1, leader_epoch=2, timestamp=0
    )
    values, notes, troubles = opened(marker + change, None)
    assert (
        values["[0].records[0].value.coordinator_epoch"] == 4
        and values["[1].records[0].value.voters[1].voter_id"] == 2
    )
    assert {"ABORT", "LEADER_CHANGE"} <= set(notes) and not troubles


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_old_message_formats_are_decoded(magic: int, codec: Compression) -> None:
    content = build_message_set(
        [Record(5, 1000, b"a", b"b"), Record(6, 2000, None, b"c")], magic=magic, compression=codec
    )
    found = next(iter(dissect_lone(content, Hint.NOTHING)))
    values = [part.value for path, part in walk(found.tree.parts) if path.endswith(".value")]
    assert values == [b"b", b"c"] and not found.tree.troubles and "checksum" in found.said
