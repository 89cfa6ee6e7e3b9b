"""The records of `__remote_log_metadata`, their partition, and which segments they make visible."""

import base64

import pytest

from kraftsim.metadata.rules_config_releases import KAFKA_3_9
from kraftsim.partitions.rules_log import RetentionRules
from kraftsim.tiered_storage.rules_copying import (
    UNREFERENCED_EPOCHS,
    epochs_within,
    expired_remotely,
    highest_remote_offset,
)
from kraftsim.tiered_storage.rules_segments import (
    RemoteSegment,
    SegmentCatalogue,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
    is_within,
    metadata_partition,
    parse_metadata,
    segment_record,
    update_record,
)
from protocol.storage.text_files import EpochStart

OWNER = TopicIdPartition(b"t" * 16, 0, "topic")
FINISHED = SegmentState.COPY_SEGMENT_FINISHED


def segment(
    name: str, start: int, end: int, epochs: dict[int, int] | None = None, **changes: object
) -> RemoteSegment:
    """Return a segment with a letter as its id; by default all of it is of epoch 0."""
    values: dict[str, object] = {
        "segment_id": name.encode() * 16,
        "owner": OWNER,
        "start_offset": start,
        "end_offset": end,
        "max_timestamp_ms": end,
        "broker_id": 1,
        "event_timestamp_ms": 5,
        "size_bytes": 100,
        "leader_epochs": tuple(EpochStart(*each) for each in (epochs or {0: start}).items()),
        **changes,
    }
    return RemoteSegment(**values)  # type: ignore[arg-type]  # a dict of values of several types


def update(name: str, state: SegmentState) -> SegmentUpdate:
    """Return an update of a segment."""
    return SegmentUpdate(
        segment_id=name.encode() * 16, owner=OWNER, broker_id=1, event_timestamp_ms=6, state=state
    )


def catalogue(*segments: RemoteSegment) -> SegmentCatalogue:
    """Return the catalogue with these segments finished."""
    found = SegmentCatalogue()
    for each in segments:
        assert found.apply_started(each)
        assert found.apply_update(update(chr(each.segment_id[0]), FINISHED))
    return found


@pytest.mark.parametrize(
    ("topic_id", "partition", "number"),
    [
        ("LWgrMmVrT0a__7a4SasuPA", 0, 1),
        ("LWgrMmVrT0a__7a4SasuPA", 1, 18),
        ("LWgrMmVrT0a__7a4SasuPA", 2, 30),
        ("LWgrMmVrT0a__7a4SasuPA", 3, 2),
        ("oAtiIQ95REujbuzNd_lkLQ", 7, 4),
    ],
)
def test_metadata_partition_is_the_one_of_apache_kafka(
    topic_id: str, partition: int, number: int
) -> None:
    """Verified with RemoteLogMetadataTopicPartitioner of Apache Kafka 3.9.1, for 50 partitions."""
    owner = TopicIdPartition(base64.urlsafe_b64decode(topic_id + "=="), partition, "t")
    assert metadata_partition(owner, 50) == number


def test_records_round_trip() -> None:
    """Both kinds."""
    original = segment(
        "a", 3, 9, {0: 3, 2: 5}, custom_metadata=b"where", is_transaction_index_empty=True
    )
    assert parse_metadata(segment_record(original)) == original
    assert parse_metadata(update_record(update("a", FINISHED))) == update("a", FINISHED)


def test_segment_is_found_from_copy_finished_until_deletion_starts() -> None:
    """RemoteLogMetadataCache: segments being copied or being deleted cannot be read."""
    known = SegmentCatalogue()
    known.apply_started(segment("a", 0, 9))
    assert known.holding(0, 5) is None and known.highest_offset(0) is None
    known.apply_update(update("a", FINISHED))
    assert (found := known.holding(0, 5)) is not None and found.start_offset == 0
    assert (
        known.highest_offset(0) == 9
        and known.holding(0, 10) is None
        and known.holding(1, 5) is None
    )
    known.apply_update(update("a", SegmentState.DELETE_SEGMENT_STARTED))
    assert known.holding(0, 5) is None and len(known.segments) == 1
    known.apply_update(update("a", SegmentState.DELETE_SEGMENT_FINISHED))
    assert not known.segments


@pytest.mark.parametrize(
    ("former", "latter"),
    [
        (FINISHED, FINISHED),
        (SegmentState.DELETE_SEGMENT_STARTED, FINISHED),
        (FINISHED, SegmentState.DELETE_SEGMENT_FINISHED),
    ],
)
def test_invalid_state_transition_is_ignored(former: SegmentState, latter: SegmentState) -> None:
    """RemoteLogSegmentState.isValidTransition; the same state again changes nothing."""
    known = SegmentCatalogue()
    known.apply_started(segment("a", 0, 9))
    known.apply_update(update("a", former))
    assert not known.apply_update(update("a", latter))
    assert known.segments[0].state is former


def test_longer_copy_replaces_those_that_it_covers() -> None:
    """A leader that did not know of its predecessor's copies copies the same offsets again
    (RemoteLogLeaderEpochState).
    """
    known = catalogue(segment("a", 0, 9), segment("b", 10, 19), segment("c", 0, 25))
    assert [known.holding(0, offset) for offset in (3, 12, 25)] == [known.find(b"c" * 16)] * 3
    assert catalogue(segment("c", 0, 25), segment("a", 0, 9)).holding(0, 3) == catalogue(
        segment("c", 0, 25)
    ).find(b"c" * 16)


def test_truncated_records_are_not_found_in_the_epoch_of_their_replacement() -> None:
    """An offset is looked up together with the epoch that the log has for it (KIP-405)."""
    known = catalogue(segment("a", 0, 14), segment("b", 10, 19, {1: 10}))
    assert known.holding(0, 12) == known.find(b"a" * 16) and known.holding(1, 12) == known.find(
        b"b" * 16
    )
    assert highest_remote_offset(known, (EpochStart(0, 0), EpochStart(1, 10)), 30) == 19
    assert (
        highest_remote_offset(
            catalogue(segment("a", 0, 14)), (EpochStart(0, 0), EpochStart(1, 10)), 30
        )
        == 9
    )


@pytest.mark.parametrize(
    ("epochs", "log_epochs", "expected"),
    [
        ({0: 5}, {0: 0}, True),
        ({0: 5}, {0: 0, 1: 8}, False),
        ({0: 5, 1: 8}, {0: 0, 1: 8}, True),
        ({0: 5, 1: 7}, {0: 0, 1: 8}, False),
        ({0: 5, 2: 8}, {0: 0, 1: 8}, False),
        ({0: 5}, {1: 0}, False),
        ({0: 5, 1: 7}, {1: 8}, True),
    ],
)
def test_segment_belongs_to_a_log_if_its_epochs_do(
    epochs: dict[int, int], log_epochs: dict[int, int], expected: bool
) -> None:
    """RemoteLogManager.isRemoteSegmentWithinLeaderEpochs, for a segment of the offsets 5 to 9."""
    assert (
        is_within(
            segment("a", 5, 9, epochs), 20, [EpochStart(*each) for each in log_epochs.items()]
        )
        is expected
    )


def test_epochs_of_a_segment_begin_at_its_start() -> None:
    """The first one began before it."""
    epochs = [EpochStart(0, 0), EpochStart(2, 4), EpochStart(3, 9)]
    assert epochs_within(epochs, 2, 9) == (EpochStart(0, 2), EpochStart(2, 4))
    assert epochs_within(epochs, 4, 12) == (EpochStart(2, 4), EpochStart(3, 9))


@pytest.mark.parametrize(
    ("rules", "log_start_offset", "gone", "begins_at"),
    [
        (RetentionRules(retention_ms=-1), 0, "", 0),
        (RetentionRules(retention_ms=-1), 10, "a", 10),
        (RetentionRules(retention_ms=-1), 9, "", 9),
        (RetentionRules(retention_ms=15), 0, "a", 10),
        (RetentionRules(retention_ms=5), 0, "ab", 20),
        (RetentionRules(retention_ms=-1, retention_bytes=250), 0, "a", 10),
        (RetentionRules(retention_ms=-1, retention_bytes=251), 0, "", 0),
        (RetentionRules(retention_ms=-1, retention_bytes=50), 0, "abc", 30),
    ],
)
def test_oldest_segments_expire_first(
    rules: RetentionRules, log_start_offset: int, gone: str, begins_at: int
) -> None:
    """Three segments of 100 bytes each, with timestamps 9, 19 and 29; 50 bytes are local only; the
    time is 25 (RLMExpirationTask).
    """
    known = catalogue(segment("a", 0, 9), segment("b", 10, 19), segment("c", 20, 29))
    expiry = expired_remotely(
        known.segments,
        rules,
        epochs=[EpochStart(0, 0)],
        now_ms=25,
        log_start_offset=log_start_offset,
        log_end_offset=40,
        local_only_bytes=50,
    )
    assert "".join(chr(each.segment.segment_id[0]) for each in expiry.going) == gone
    assert expiry.log_start_offset == begins_at


def test_unfinished_copy_of_a_dead_leader_is_deleted_with_its_offsets() -> None:
    """It is deleted once the log start offset is beyond it."""
    known = catalogue(segment("a", 0, 9))
    known.apply_started(segment("x", 0, 9))
    expiry = expired_remotely(
        known.segments,
        RetentionRules(retention_ms=-1),
        epochs=[EpochStart(0, 0)],
        now_ms=0,
        log_start_offset=10,
        log_end_offset=40,
        local_only_bytes=0,
    )
    assert sorted(chr(each.segment.segment_id[0]) for each in expiry.going) == ["a", "x"]


@pytest.mark.parametrize(
    ("epochs", "gone"),
    [
        ({0: 0, 2: 5, 3: 30}, ""),
        ({2: 5, 3: 30}, "a"),
        ({3: 30}, "ab"),
        ({3: 0}, "ab"),
        ({4: 40}, "abc"),
    ],
)
def test_segments_of_epochs_missing_from_the_log_are_deleted(
    epochs: dict[int, int], gone: str
) -> None:
    """An unclean leader's log may begin in a later epoch: earlier copies belong to no log any more,
    and nothing else would delete them.

    Source: KIP-405, RLMExpirationTask.deleteLogSegmentsDueToLeaderEpochCacheTruncation.
    """
    known = catalogue(
        segment("a", 0, 9, {0: 0}),
        segment("b", 10, 19, {0: 10, 2: 15}),
        segment("c", 20, 39, {2: 20, 3: 30}),
    )
    expiry = expired_remotely(
        known.segments,
        RetentionRules(retention_ms=-1),
        epochs=[EpochStart(*each) for each in epochs.items()],
        now_ms=0,
        log_start_offset=0,
        log_end_offset=50,
        local_only_bytes=0,
    )
    assert sorted(chr(each.segment.segment_id[0]) for each in expiry.going) == sorted(gone)
    assert {each.reason for each in expiry.going} <= {UNREFERENCED_EPOCHS}


BROKER = {"remote.log.storage.system.enable": "true"}
TIERED = {"remote.storage.enable": "true"}


@pytest.mark.parametrize(
    ("values", "present", "begins"),
    [
        (TIERED, {}, None),
        (
            {**TIERED, "cleanup.policy": "compact"},
            {},
            "Remote log storage is unsupported for the compacted topics",
        ),
        (
            {**TIERED, "retention.ms": "1000", "local.retention.ms": "2000"},
            {},
            (
                "Invalid value 2000 for configuration local.retention.ms: Value must not be more "
                "than retention.ms property value: 1000"
            ),
        ),
        (
            {**TIERED, "retention.bytes": "1000", "local.retention.bytes": "-1"},
            {},
            (
                "Invalid value -1 for configuration local.retention.bytes: Value must not be -1 as "
                "retention.bytes value is set as 1000."
            ),
        ),
        (
            {**TIERED, "remote.log.copy.disable": "true", "local.retention.ms": "5"},
            {},
            "When `remote.log.copy.disable` is set to true, the `local.retention.ms`",
        ),
        (
            {"remote.storage.enable": "false"},
            TIERED,
            "It is invalid to disable remote storage without deleting remote data.",
        ),
        ({"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}, TIERED, None),
    ],
)
def test_topic_configs_incompatible_with_tiering_are_rejected(
    values: dict[str, str], present: dict[str, str], begins: str | None
) -> None:
    """LogConfig.validateTopicLogConfigValues of Apache Kafka 3.9.1, with its messages."""
    complaint = KAFKA_3_9.complaint_about_topic(values, BROKER, present)
    assert (
        complaint == begins
        if begins is None
        else complaint is not None and complaint.startswith(begins)
    )
