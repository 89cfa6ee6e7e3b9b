"""Rules about producers in a log: sequences, epochs, snapshots."""

import pytest

from kraftsim.audit.checks import sequences, snapshots
from kraftsim.audit.rule import AuditOutcome
from tests.audit.sound_logs import IDEMPOTENT, TRANSACTIONAL, cluster
from tests.audit.tables_of import START_MS, Disks, Log, messages, producer_row

LAST = 2**31 - 1
HOUR_MS = 3_600_000


def one_log(**replica: int) -> tuple[Disks, Log]:
    """Return tables with one empty log."""
    disks = Disks()
    return disks, disks.broker().log("orders", 0, **replica)


# --------------------------------------------------------------------------------------------------
# One append per sequence


def test_a_batch_that_was_appended_twice_is_a_defect() -> None:
    disks, log = one_log()
    log.produce(5, 0, 0, 3)
    log.produce(5, 0, 3, 2)
    log.produce(5, 0, 0, 3)
    log.produce(5, 0, 5, 1)
    result = disks.result(sequences.BATCHES_APPENDED_ONCE)
    assert messages(result) == [
        "orders-0: the batch of producer id 5 epoch 0 with base sequence 0 is at offset 0 and "
        "again at offset 5"
    ]
    assert [each.offset for each in result.findings[0].witnesses] == [5, 0]
    assert disks.result(sequences.SEQUENCES_WITHOUT_GAPS).outcome is AuditOutcome.SOUND


def test_a_duplicate_is_a_defect_in_compacted_logs_too() -> None:
    disks, log = one_log(cleaned_until=3)
    log.produce(5, 0, 0)
    log.produce(5, 0, 0)
    assert disks.result(sequences.BATCHES_APPENDED_ONCE).defect_count == 1


def test_the_same_sequence_of_another_epoch_or_producer_is_no_duplicate() -> None:
    disks, log = one_log()
    log.produce(5, 0, 0)
    log.produce(5, 1, 0)
    log.produce(6, 1, 0)
    assert disks.result(sequences.BATCHES_APPENDED_ONCE).findings == ()


def test_a_sequence_that_is_reached_by_wrapping_around_is_no_duplicate() -> None:
    disks, log = one_log()
    log.produce(5, 0, 0)
    log.end_offset = 2**31 + 5
    log.produce(5, 0, 0)
    assert disks.result(sequences.BATCHES_APPENDED_ONCE).findings == ()


def test_batches_of_the_group_coordinator_have_no_sequences() -> None:
    disks = Disks()
    log = disks.broker().log("__consumer_offsets")
    log.transact(5, 0, 0)
    log.transact(5, 0, 0)
    for rule in (sequences.BATCHES_APPENDED_ONCE, sequences.SEQUENCES_WITHOUT_GAPS):
        assert disks.result(rule).outcome is AuditOutcome.NOT_APPLICABLE


def test_duplicates_below_the_log_start_offset_do_not_count() -> None:
    disks, log = one_log(log_start_offset=1)
    log.produce(5, 0, 0)
    log.produce(5, 0, 0)
    assert disks.result(sequences.BATCHES_APPENDED_ONCE).findings == ()


# --------------------------------------------------------------------------------------------------
# Sequences follow each other


def test_a_gap_in_the_sequences_is_a_defect() -> None:
    disks, log = one_log()
    log.produce(5, 0, 0, 3)
    log.produce(5, 0, 4)
    result = disks.result(sequences.SEQUENCES_WITHOUT_GAPS)
    assert messages(result) == [
        "orders-0: sequence 4 of producer id 5 epoch 0 at offset 3 comes after sequence 2 at "
        "offset 2"
    ]
    assert result.findings[0].since_ms == START_MS + 2000


def test_sequences_wrap_around() -> None:
    disks, log = one_log(log_start_offset=0)
    log.produce(5, 0, 0)
    log.batches[0].update(base_sequence=LAST - 4, last_sequence=LAST - 2, base_offset=0)
    log.produce(5, 0, LAST - 1, 2)
    log.produce(5, 0, 0)
    result = disks.result(sequences.SEQUENCES_WITHOUT_GAPS)
    assert messages(result) == []
    assert "begins with sequence" in messages(result, defects=False)[0]


def test_a_batch_across_the_wrap_around_is_followed_by_the_next_sequence() -> None:
    disks, log = one_log()
    log.produce(5, 0, 0)
    log.batches[0].update(base_sequence=LAST - 1, last_sequence=1)
    log.produce(5, 0, 2)
    assert messages(disks.result(sequences.SEQUENCES_WITHOUT_GAPS)) == []


def test_a_gap_with_removed_offsets_in_between_says_nothing() -> None:
    disks, log = one_log(cleaned_until=9)
    log.produce(5, 0, 0)
    log.end_offset = 4
    log.produce(5, 0, 4)
    assert disks.result(sequences.SEQUENCES_WITHOUT_GAPS).findings == ()


def test_a_gap_after_a_long_time_is_undecided() -> None:
    disks, log = one_log()
    log.produce(5, 0, 0)
    log.now_ms += HOUR_MS
    log.produce(5, 0, 4)
    result = disks.result(sequences.SEQUENCES_WITHOUT_GAPS)
    assert result.outcome is AuditOutcome.UNKNOWN
    assert "may have forgotten the producer" in result.findings[0].message


def test_a_new_epoch_that_does_not_begin_at_zero_is_a_defect() -> None:
    disks, log = one_log()
    log.produce(5, 0, 0)
    log.produce(5, 1, 3)
    assert messages(disks.result(sequences.SEQUENCES_WITHOUT_GAPS)) == [
        "orders-0: producer id 5 epoch 1 begins with sequence 3 at offset 1 instead of 0, after "
        "epoch 0 at offset 0"
    ]


def test_an_unknown_producer_may_begin_anywhere() -> None:
    disks, log = one_log()
    log.produce(5, 0, 3)
    result = disks.result(sequences.SEQUENCES_WITHOUT_GAPS)
    assert result.outcome is AuditOutcome.UNKNOWN
    assert (
        "a broker accepts that from a producer that it does not know"
        in messages(result, defects=False)[0]
    )


def test_sequences_before_the_log_start_offset_are_not_missed() -> None:
    disks, log = one_log(log_start_offset=1)
    log.marker("COMMIT", 5, 0)
    log.marker("COMMIT", 5, 0)
    log.transact(5, 0, 3)
    assert disks.result(sequences.SEQUENCES_WITHOUT_GAPS).findings == ()


# --------------------------------------------------------------------------------------------------
# Epochs never fall


def test_a_batch_of_a_fenced_producer_is_a_defect() -> None:
    disks, log = one_log()
    log.transact(5, 0, 0)
    log.marker("ABORT", 5, 1)
    log.transact(5, 0, 1)
    assert messages(disks.result(sequences.PRODUCER_EPOCHS_NEVER_FALL)) == [
        "orders-0: the batch at offset 2 of producer id 5 has epoch 0 after epoch 1 at offset 1"
    ]


def test_a_marker_of_an_older_coordinator_is_a_defect() -> None:
    disks, log = one_log()
    log.transact(5, 0, 0)
    log.marker("COMMIT", 5, 0, coordinator_epoch=3)
    log.transact(5, 0, 1)
    log.marker("COMMIT", 5, 0, coordinator_epoch=2)
    assert messages(disks.result(sequences.PRODUCER_EPOCHS_NEVER_FALL)) == [
        "orders-0: the marker at offset 3 of producer id 5 has coordinator epoch 2 after "
        "coordinator epoch 3 at offset 1"
    ]


def test_an_epoch_that_falls_after_a_long_time_is_undecided() -> None:
    disks, log = one_log()
    log.produce(5, 1, 0)
    log.now_ms += HOUR_MS
    log.produce(5, 0, 0)
    assert disks.result(sequences.PRODUCER_EPOCHS_NEVER_FALL).outcome is AuditOutcome.UNKNOWN


def test_a_leader_epoch_that_falls_is_a_defect() -> None:
    disks, log = one_log()
    log.batch(leader_epoch=4)
    log.batch(leader_epoch=3)
    log.batch(leader_epoch=4)
    assert messages(disks.result(sequences.LEADER_EPOCHS_NEVER_FALL)) == [
        "orders-0: the batch at offset 1 has leader epoch 3 after leader epoch 4"
    ]


def test_old_formats_have_no_leader_epochs_and_no_producers() -> None:
    disks, log = one_log()
    log.batch(leader_epoch=None, magic=1)
    for rule in sequences.RULES:
        assert disks.result(rule).outcome is AuditOutcome.NOT_APPLICABLE


# --------------------------------------------------------------------------------------------------
# Producer snapshots


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"producer_epoch": 3}, "has epoch 3 of producer id 5, by the log it is 0"),
        ({"last_offset": 2}, "has offset 2 as the last of producer id 5, by the log it is 4"),
        ({"last_sequence": 9}, "has last sequence 9 of producer id 5 in a batch of 2 records"),
        ({"offset_delta": 0}, "has last sequence 4 of producer id 5 in a batch of 1 records"),
        (
            {"transaction_first_offset": 3},
            "has first offset 3 of the open transaction of producer id 5, by the log it is -1",
        ),
        (
            {"producer_id": 77},
            "has producer id 77 with a last batch at offset 4, and the log has none of it",
        ),
        (
            {"producer_id": 77, "last_offset": -1, "last_sequence": -1},
            "has producer id 77, of which the log has nothing before the snapshot",
        ),
    ],
)
def test_a_snapshot_that_contradicts_its_log_is_a_defect(
    columns: dict[str, int], said: str
) -> None:
    disks, _ = cluster()
    disks.rows["producer_snapshots"][0].update(columns)
    result = disks.result(snapshots.PRODUCER_SNAPSHOTS_FIT)
    assert [said in message for message in messages(result)] == [True]
    assert "orders-0: the producer snapshot at offset 8 " in messages(result)[0]


def test_a_snapshot_with_another_coordinator_epoch_is_a_defect() -> None:
    disks, _ = cluster()
    disks.rows["producer_snapshots"][1]["coordinator_epoch"] = 4
    assert messages(disks.result(snapshots.PRODUCER_SNAPSHOTS_FIT)) == [
        "orders-0: the producer snapshot at offset 8 has coordinator epoch 4 of producer id 6, by "
        "the log it is 0"
    ]


def test_a_snapshot_without_the_producer_of_an_open_transaction_is_a_defect() -> None:
    disks, log = one_log()
    log.transact(5, 0, 0)
    log.roll()
    log.snapshot()
    log.marker("COMMIT", 5, 0)
    assert messages(disks.result(snapshots.PRODUCER_SNAPSHOTS_FIT)) == [
        "orders-0: the producer snapshot at offset 1 lacks producer id 5, which has a transaction "
        "open since offset 0"
    ]


def test_a_snapshot_at_the_first_offset_of_a_transaction_does_not_have_it() -> None:
    disks, log = one_log()
    log.produce(5, 0, 0)
    log.roll()
    log.snapshot(producer_row(5, 0, last_sequence=0, last_offset=0))
    log.transact(6, 0, 0)
    log.snapshot(
        producer_row(5, 0, last_sequence=0, last_offset=0),
        producer_row(6, 0, last_sequence=0, last_offset=1, transaction_first_offset=1),
    )
    assert disks.result(snapshots.PRODUCER_SNAPSHOTS_FIT).outcome is AuditOutcome.SOUND


def test_a_producer_whose_batches_retention_deleted_may_be_in_a_snapshot() -> None:
    disks, log = one_log(log_start_offset=20)
    log.segments[0].update(base_offset=20, file=log.file(20, "log"))
    log.end_offset = 20
    for producer in (5, 6):
        log.marker("COMMIT", producer, 0)
    for batch in log.batches:
        batch.update(segment_offset=20, file=log.file(20, "log"))
    log.snapshot(
        producer_row(5, 0, last_sequence=7, last_offset=12, coordinator_epoch=0),
        producer_row(6, 0, coordinator_epoch=0),
        producer_row(7, 0, last_sequence=7, last_offset=14, transaction_first_offset=14),
    )
    assert disks.result(snapshots.PRODUCER_SNAPSHOTS_FIT).outcome is AuditOutcome.SOUND


def test_an_expired_producer_may_be_absent_but_a_recent_one_is_undecided() -> None:
    for age_ms, expected in ((0, AuditOutcome.UNKNOWN), (HOUR_MS, AuditOutcome.NOT_APPLICABLE)):
        disks, log = one_log()
        log.produce(5, 0, 0)
        log.now_ms += age_ms
        log.roll()
        log.snapshot()
        assert disks.result(snapshots.PRODUCER_SNAPSHOTS_FIT).outcome is expected


def test_a_snapshot_behind_the_recovery_point_of_an_open_log_is_undecided() -> None:
    for recovery_point, expected in ((5, AuditOutcome.UNKNOWN), (8, AuditOutcome.DEFECT)):
        disks, logs = cluster(is_clean=False)
        disks.rows["producer_snapshots"][0]["last_offset"] = 2
        logs[0].replica["recovery_point"] = recovery_point
        assert disks.result(snapshots.PRODUCER_SNAPSHOTS_FIT).outcome is expected


def test_snapshots_of_compacted_topics_are_not_compared() -> None:
    disks, logs = cluster()
    disks.rows["producer_snapshots"][0]["last_offset"] = 2
    logs[0].replica["cleaned_until"] = 3
    assert disks.result(snapshots.PRODUCER_SNAPSHOTS_FIT).outcome is AuditOutcome.NOT_APPLICABLE


def test_a_closed_log_without_a_snapshot_at_its_end_is_a_defect() -> None:
    disks, logs = cluster()
    files = disks.rows["files"]
    gone = [each for each in files if each["file"] == logs[0].file(11, "snapshot")]
    files.remove(gone[0])
    result = disks.result(snapshots.PRODUCER_SNAPSHOTS_AT_END)
    assert messages(result) == [
        "orders-0: the newest producer snapshot is at offset 8, and the log ends at offset 11"
    ]


def test_a_snapshot_after_the_end_is_a_defect_of_closed_logs_only() -> None:
    for is_clean in (True, False):
        disks, logs = cluster(is_clean=is_clean)
        logs[1].snapshot(producer_row(IDEMPOTENT, 0), offset=40)
        result = disks.result(snapshots.PRODUCER_SNAPSHOTS_AT_END)
        assert "the newest producer snapshot is at offset 40" in result.findings[0].message
        assert result.outcome is (AuditOutcome.DEFECT if is_clean else AuditOutcome.UNKNOWN)


def test_the_epoch_of_a_marker_forgets_the_batches_before() -> None:
    disks, _ = cluster()
    row = disks.rows["producer_snapshots"][1]
    assert row["producer_id"] == TRANSACTIONAL
    row.update(last_offset=6, last_sequence=1, offset_delta=1)
    assert (
        "has offset 6 as the last of producer id 6, by the log it is -1"
        in messages(disks.result(snapshots.PRODUCER_SNAPSHOTS_FIT))[0]
    )
