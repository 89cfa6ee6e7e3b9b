"""Rules about the files of logs: what they hold to be sound, what a defect, and what undecided."""

import pytest

from kraftsim.audit.checks import checkpoints, structure
from kraftsim.audit.judging import RULES
from kraftsim.audit.rule import AuditOutcome, AuditRule
from tests.audit.sound_logs import cluster
from tests.audit.tables_of import Disks, messages, outcomes

LOG_FILES = ("structure", "sequences", "replicas", "checkpoints", "transactions", "snapshots")


def log_rules() -> tuple[AuditRule, ...]:
    """Return the rules of this part of the audit."""
    return tuple(rule for file, rule in RULES.with_files() if file in LOG_FILES)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_registered", [True, False])
def test_sound_logs_raise_no_alarm_whether_closed_or_not(
    is_clean: bool, is_registered: bool
) -> None:
    disks, _ = cluster(is_clean=is_clean, is_registered=is_registered)
    results = disks.results(*log_rules())
    assert [finding for each in results for finding in each.findings] == []
    idle = {name for name, outcome in outcomes(results).items() if outcome != "sound"}
    expected = set() if is_registered else {"record-counts-fit"}
    assert idle == expected | (set() if is_clean else {"producer-snapshot-at-end"})


def test_rules_have_nothing_to_say_about_empty_disks() -> None:
    results = Disks().results(*log_rules())
    assert set(outcomes(results).values()) == {"not applicable"}


def test_future_replicas_and_deleted_files_are_not_examined() -> None:
    disks, logs = cluster()
    logs[1].replica["is_future"] = True
    logs[1].batches[0]["base_offset"] = 1
    del logs[1].batches[2]
    segment = logs[2].segments[0]
    segment["state"] = "deleted"
    logs[2].replica.update(first_offset=8, first_segment_offset=8)
    assert {each.outcome for each in disks.results(*log_rules())} == {AuditOutcome.SOUND}


# --------------------------------------------------------------------------------------------------
# Segments, checksums, offsets


@pytest.mark.parametrize("problem", ["torn", "malformed"])
def test_unreadable_bytes_in_a_log_are_a_defect(problem: str) -> None:
    disks, logs = cluster(is_clean=False)
    logs[0].problem(problem, position=300)
    result = disks.result(structure.SEGMENTS_READABLE)
    assert result.outcome is AuditOutcome.DEFECT
    assert "at byte 300: as read, so the bytes are no readable record batch" in messages(result)[0]
    assert result.findings[0].witnesses[0].position == 300


@pytest.mark.parametrize(("is_clean", "outcome"), [(True, "defect"), (False, "unknown")])
def test_a_torn_tail_is_a_defect_only_of_a_log_that_was_closed(
    is_clean: bool, outcome: str
) -> None:
    disks, logs = cluster(is_clean=is_clean)
    logs[0].problem("torn", is_tail=True)
    assert disks.result(structure.SEGMENTS_READABLE).outcome == outcome


@pytest.mark.parametrize(
    ("problem", "reason"), [("unsupported", "cannot be examined"), ("unreadable", "not examined")]
)
def test_what_the_audit_cannot_read_is_undecided(problem: str, reason: str) -> None:
    disks, logs = cluster()
    logs[0].problem(problem)
    result = disks.result(structure.SEGMENTS_READABLE)
    assert result.outcome is AuditOutcome.UNKNOWN
    assert reason in messages(result, defects=False)[0]


def test_a_wrong_checksum_is_a_defect_unless_a_crash_left_it_at_the_end() -> None:
    disks, logs = cluster(is_clean=False)
    logs[0].batches[1]["crc_valid"] = False
    last = logs[1].batches[-1]
    last["crc_valid"] = False
    logs[1].replica["end_offset"] = last["base_offset"]
    result = disks.result(structure.CHECKSUMS_FIT)
    assert messages(result) == [
        "orders-0: the checksum of the batch at offset 3 does not fit its 100 bytes"
    ]
    assert "at the end of a log that was not closed" in messages(result, defects=False)[0]


def test_a_wrong_checksum_at_the_end_of_a_closed_log_is_a_defect() -> None:
    disks, logs = cluster()
    logs[1].batches[-1]["crc_valid"] = False
    logs[1].replica["end_offset"] = 10
    assert disks.result(structure.CHECKSUMS_FIT).defect_count == 1


def test_checksums_that_were_not_computed_are_not_examined() -> None:
    disks, logs = cluster()
    for log in logs:
        for batch in log.batches:
            batch["crc_valid"] = None
    assert disks.result(structure.CHECKSUMS_FIT).outcome is AuditOutcome.NOT_APPLICABLE


def test_an_offset_that_comes_twice_is_a_defect() -> None:
    disks, logs = cluster()
    logs[0].batches[2].update(base_offset=4, last_offset=6)
    assert messages(disks.result(structure.OFFSETS_GROW)) == [
        "orders-0: the batch at offset 4 comes after offset 4"
    ]


def test_a_segment_that_begins_before_the_end_of_the_one_before_is_a_defect() -> None:
    disks, logs = cluster()
    logs[0].batches[3].update(last_offset=9)
    found = messages(disks.result(structure.OFFSETS_GROW))
    assert "orders-0: the segment named 8 comes after offset 9" in found


def test_a_batch_before_the_name_of_its_segment_is_a_defect() -> None:
    disks, logs = cluster()
    for batch in logs[0].batches[:4]:
        batch["segment_offset"] = 1
    logs[0].segments[0]["base_offset"] = 1
    assert messages(disks.result(structure.OFFSETS_GROW)) == [
        "orders-0: the batch at offset 0 is in the segment named 1"
    ]


def test_missing_offsets_are_a_defect_if_the_topic_is_known_not_to_be_compacted() -> None:
    disks, logs = cluster()
    del logs[0].batches[1]
    result = disks.result(structure.NO_OFFSET_GAPS)
    assert messages(result) == ["orders-0: offsets 3 to 4 are missing in the segment named 0"]
    assert [each.offset for each in result.findings[0].witnesses] == [5, 2]


def test_a_missing_segment_is_a_defect_of_closed_logs_only() -> None:
    for is_clean in (True, False):
        disks, logs = cluster(is_clean=is_clean)
        logs[0].batches[3:4] = []
        result = disks.result(structure.NO_OFFSET_GAPS)
        assert "offsets 7 to 7 are missing before the segment named 8" in result.findings[0].message
        assert result.outcome is (AuditOutcome.DEFECT if is_clean else AuditOutcome.UNKNOWN)


def test_missing_offsets_are_undecided_without_a_metadata_log() -> None:
    disks, logs = cluster(is_registered=False)
    del logs[0].batches[1]
    result = disks.result(structure.NO_OFFSET_GAPS)
    assert result.outcome is AuditOutcome.UNKNOWN
    assert "it is not known whether the topic was compacted" in result.findings[0].message


@pytest.mark.parametrize("evidence", ["checkpoint", "config", "horizon", "internal", "partial"])
def test_missing_offsets_of_compacted_topics_are_no_defect(evidence: str) -> None:
    disks, logs = cluster(is_registered=evidence not in ("config", "partial"))
    del logs[0].batches[1]
    if evidence == "checkpoint":
        logs[2].replica["cleaned_until"] = 2
    elif evidence == "config":
        disks.topic(policy="compact,delete")
    elif evidence == "horizon":
        logs[1].batches[0]["delete_horizon_ms"] = 5
    elif evidence == "partial":
        logs[1].batches[0]["records"] = 1
    else:
        for log in logs:
            for row in (log.place, log.replica, *log.batches, *log.segments):
                row["topic"] = "__consumer_offsets"
    assert disks.result(structure.NO_OFFSET_GAPS).findings == ()


def test_offsets_below_the_log_start_offset_may_be_missing() -> None:
    disks, logs = cluster()
    del logs[0].batches[1]
    logs[0].replica["log_start_offset"] = 5
    assert disks.result(structure.NO_OFFSET_GAPS).outcome is AuditOutcome.SOUND


def test_a_batch_with_fewer_records_than_offsets_is_a_defect_where_nothing_was_compacted() -> None:
    disks, logs = cluster()
    logs[0].batches[0]["records"] = 2
    assert messages(disks.result(structure.RECORD_COUNTS_FIT)) == [
        "orders-0: the batch of offsets 0 to 2 has 2 records"
    ]


def test_counts_at_the_end_of_a_log_that_was_not_closed_are_not_examined() -> None:
    disks, logs = cluster(is_clean=False)
    logs[0].batches[-1]["records"] = 0
    assert disks.result(structure.RECORD_COUNTS_FIT).findings == ()


# --------------------------------------------------------------------------------------------------
# Indexes


def with_index(is_clean: bool, *, base_offset: int = 0) -> tuple[Disks, str]:
    """Return a cluster, and an index file of its first replica."""
    disks, logs = cluster(is_clean=is_clean)
    file = logs[0].file(base_offset, "timeindex")
    disks.add("files", **logs[0].place, file=file, kind="timeindex", base_offset=0, state="live")
    return disks, file


def test_an_index_that_contradicts_itself_is_a_defect() -> None:
    disks, file = with_index(is_clean=True)
    disks.logs[0].problem("index", file=file, position=24)
    result = disks.result(structure.INDEXES_FIT)
    assert messages(result) == [f"orders-0: {file} at byte 24: as read"]


def test_an_index_behind_the_recovery_point_of_an_open_log_is_undecided() -> None:
    for recovery_point, outcome in ((3, AuditOutcome.UNKNOWN), (9, AuditOutcome.DEFECT)):
        disks, file = with_index(is_clean=False)
        disks.logs[0].problem("index", file=file, position=24)
        disks.logs[0].replica["recovery_point"] = recovery_point
        assert disks.result(structure.INDEXES_FIT).outcome is outcome


def test_a_time_index_has_the_largest_timestamp_up_to_its_offset() -> None:
    for shift_ms, expected in ((0, AuditOutcome.SOUND), (-1, AuditOutcome.DEFECT)):
        disks, file = with_index(is_clean=True)
        log = disks.logs[0]
        disks.add(
            "time_index",
            **log.place,
            file=file,
            base_offset=0,
            entry=0,
            indexed_ms=log.batches[1]["max_ms"] + shift_ms,
            indexed_offset=4,
        )
        result = disks.result(structure.INDEXES_FIT)
        assert result.outcome is expected, messages(result)


# --------------------------------------------------------------------------------------------------
# Checkpoints


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"high_watermark": 12}, "the high watermark 12 is after the end of the log at offset 11"),
        ({"recovery_point": 12}, "the recovery point 12 is after the end of the log at offset 11"),
        (
            {"log_start_offset": 9, "high_watermark": 8},
            "the log start offset 9 is after the high watermark 8",
        ),
        (
            {"log_start_offset": 12, "high_watermark": None},
            "the log start offset 12 is after the end of the log at offset 11",
        ),
    ],
)
def test_checkpoints_beyond_their_log_are_a_defect_of_closed_logs(
    columns: dict[str, int], said: str
) -> None:
    for is_clean in (True, False):
        disks, logs = cluster(is_clean=is_clean)
        logs[0].replica.update(columns)
        result = disks.result(checkpoints.CHECKPOINTS_FIT)
        assert said in result.findings[0].message
        assert result.outcome is (AuditOutcome.DEFECT if is_clean else AuditOutcome.UNKNOWN)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (((0, 0), (1, 5)), "the batch at offset 5 has leader epoch 0, but by the leader-epoch-"),
        (((0, 3),), "has leader epoch 0, but the leader-epoch-checkpoint has no epoch for it"),
        ((), "has leader epoch 0, but the leader-epoch-checkpoint has no epoch for it"),
        (((0, 0), (3, 40)), "leader epoch 3 of the leader-epoch-checkpoint starts at offset 40"),
        (((0, 5), (1, 3)), "starts at offset 3, and an earlier epoch at offset 5"),
    ],
)
def test_a_leader_epoch_checkpoint_of_another_log_is_a_defect(
    entries: tuple[tuple[int, int], ...], said: str
) -> None:
    for is_clean in (True, False):
        disks, logs = cluster(is_clean=is_clean)
        rows = disks.rows["leader_epochs"]
        rows[:] = [row for row in rows if row["log_dir"] != "/copies/broker-2"]
        logs[1].epochs(*entries)
        result = disks.result(checkpoints.LEADER_EPOCHS_FIT)
        assert any(said in each.message for each in result.findings)
        assert result.outcome is (AuditOutcome.DEFECT if is_clean else AuditOutcome.UNKNOWN)


def test_an_epoch_without_batches_at_the_end_fits_a_log() -> None:
    disks, logs = cluster()
    logs[0].epochs((4, 11))
    assert disks.result(checkpoints.LEADER_EPOCHS_FIT).outcome is AuditOutcome.SOUND


def test_batches_below_the_log_start_offset_need_no_entry() -> None:
    disks, logs = cluster()
    disks.rows["leader_epochs"][0]["start_offset"] = 5
    logs[0].replica["log_start_offset"] = 5
    assert disks.result(checkpoints.LEADER_EPOCHS_FIT).outcome is AuditOutcome.SOUND


def test_epochs_of_the_metadata_log_may_begin_at_its_first_snapshot() -> None:
    """A controller of Apache Kafka removes epochs with the snapshots before it, and segments later;
    a later epoch must fit all the same.
    """
    for first_epoch, outcome in ((3, AuditOutcome.SOUND), (4, AuditOutcome.DEFECT)):
        disks, logs = cluster()
        log = logs[0].home.log("__cluster_metadata", topic_id=None)
        log.batch()
        log.leader_epoch = 3
        log.batch(2)
        log.epochs((first_epoch, 1))
        assert disks.result(checkpoints.LEADER_EPOCHS_FIT).outcome is outcome
