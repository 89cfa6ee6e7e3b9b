"""Records of the coordinator topics and of remote log metadata: their types, tombstones, and errors
at which a reader must stop.
"""

import pytest

from protocol.coordinator.consumer_groups import OffsetCommitKey, OffsetCommitValue
from protocol.coordinator.registry import (
    CoordinatorTopic,
    build_record,
    declared_types,
    parse_record,
    record_classes,
    value_version,
)
from protocol.coordinator.share_states import ShareSnapshotKey
from protocol.coordinator.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from protocol.malformed import MalformedMessage
from protocol.metadata import registry as metadata
from protocol.remote_log import records as remote_log
from protocol.remote_log.records import (
    RemoteLogSegmentMetadataUpdateRecord,
)
from protocol.schema import declaration_of

OFFSETS, TRANSACTIONS, SHARES = (
    CoordinatorTopic.CONSUMER_OFFSETS,
    CoordinatorTopic.TRANSACTION_STATE,
    CoordinatorTopic.SHARE_GROUP_STATE,
)


def test_every_type_of_the_newest_release_is_declared() -> None:
    """9 was used by a preview, 18 only during development."""
    assert declared_types(OFFSETS) == tuple(number for number in range(24) if number not in (9, 18))
    assert declared_types(TRANSACTIONS) == (0,) and declared_types(SHARES) == (0, 1)
    for topic in CoordinatorTopic:
        for record_type in declared_types(topic):
            key, value = map(declaration_of, record_classes(topic, record_type))
            assert key.name.removesuffix("Key") == value.name.removesuffix("Value")
            assert (str(key.versions), str(key.flexible)) == ("0", "none"), (
                "Kafka's rule for keys: their bytes must stay comparable"
            )


@pytest.mark.parametrize(
    "topic, key, value, version, hexed",
    [
        (
            TRANSACTIONS,
            TransactionLogKey(transactional_id="t"),
            TransactionLogValue(
                producer_id=5,
                transaction_partitions=[PartitionsSchema(topic="x", partition_ids=[1])],
            ),
            0,
            (
                "0000 0001 74",
                "0000 0000000000000005 0000 00000000 00 00000001 0001 78 00000001 00000001"
                + "0000000000000000" * 2,
            ),
        ),
        (
            OFFSETS,
            OffsetCommitKey(group="g", topic="t", partition=1),
            OffsetCommitValue(offset=9, leader_epoch=2, commit_timestamp=3),
            3,
            (
                "0001 0001 67 0001 74 00000001",
                "0003 0000000000000009 00000002 0000 0000000000000003",
            ),
        ),
        (
            OFFSETS,
            OffsetCommitKey(group="g", topic="t", partition=1),
            None,
            0,
            ("0001 0001 67 0001 74 00000001", None),
        ),
    ],
)
def test_a_record_is_built_byte_for_byte(
    topic: CoordinatorTopic, key: object, value: object, version: int, hexed: tuple[str, str | None]
) -> None:
    """Handwritten vectors: the type before the key, the version before the value, null for a
    tombstone.
    """
    expected = (bytes.fromhex(hexed[0]), None if hexed[1] is None else bytes.fromhex(hexed[1]))
    assert build_record(key, value, version) == expected
    assert parse_record(topic, *expected) == (key, value)
    assert expected[1] is None or value_version(expected[1]) == version


def test_a_newer_record_type_is_skipped() -> None:
    """KIP-915: an older coordinator skips records of a newer one; the same number means different
    types in different topics.
    """
    for record_type in ("0009", "0012", "0018", "ffff"):
        assert parse_record(OFFSETS, bytes.fromhex(record_type) + b"anything", b"anything") is None
    key, _ = build_record(ShareSnapshotKey(group_id="g"), None)
    assert parse_record(SHARES, key, None) == (ShareSnapshotKey(group_id="g"), None)
    assert parse_record(TRANSACTIONS, b"\x00\x01" + key[2:], None) is None


@pytest.mark.parametrize(
    "key, value, error",
    [
        ("", None, "too short for a version"),
        ("00", None, "too short for a version"),
        ("0001", None, "group"),
        ("0001 0001 67 0001 74 000000", None, "partition"),
        ("0001 0001 67 0001 74 00000001", "", "too short for a version"),
        ("0001 0001 67 0001 74 00000001", "0005 00", "version 5, not 0-4"),
        ("0001 0001 67 0001 74 00000001", "ffff 00", "version -1"),
        ("0001 0001 67 0001 74 00000001", "0000 0000000000000009 0000", "commit_timestamp"),
    ],
)
def test_an_unreadable_coordinator_record_stops_the_reader(
    key: str, value: str | None, error: str
) -> None:
    """A partially loaded group or transaction state is not usable (CoordinatorRecordSerde)."""
    with pytest.raises(MalformedMessage, match=error):
        parse_record(OFFSETS, bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def test_mismatched_key_and_value_types_are_refused() -> None:
    with pytest.raises(AssertionError):
        build_record(OffsetCommitKey(), TransactionLogValue())
    with pytest.raises(AssertionError):
        build_record(TransactionLogValue(), None)


def test_remote_log_metadata_has_its_own_record_types() -> None:
    """The same frame, and type 1 in both: the reader decides which record it is."""
    assert [declaration_of(cls).api_key for cls in remote_log.declared_records()] == [0, 1, 2, 3]
    value = remote_log.build_record(RemoteLogSegmentMetadataUpdateRecord(broker_id=1), 0)
    assert value[:3] == bytes((1, 1, 0)) and remote_log.record_version(value) == 0
    assert remote_log.parse_record(value) == RemoteLogSegmentMetadataUpdateRecord(broker_id=1)
    assert remote_log.record_class(1) is not metadata.record_class(1)
    with pytest.raises(MalformedMessage, match="unknown kind"):
        remote_log.parse_record(bytes((1, 4, 0, 0)))
    with pytest.raises(MalformedMessage, match="left"):
        remote_log.parse_record(value + b"\x00")
