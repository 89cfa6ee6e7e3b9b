"""Rules about replicas and transactions: equal, complete, whole, indexed and ended."""

import json

import pytest

from kraftsim.audit.checks import replicas, transactions
from kraftsim.audit.rule import AuditOutcome, HangingTransaction
from tests.audit.sound_logs import TRANSACTIONAL, cluster
from tests.audit.tables_of import START_MS, Disks, Log, messages

TIMEOUT_MS = 60_000
DAY_MS = 86_400_000

# --------------------------------------------------------------------------------------------------
# Replicas equal below the high watermark


def test_a_batch_that_differs_below_both_high_watermarks_is_a_defect() -> None:
    disks, logs = cluster(is_clean=False)
    logs[1].batches[4].update(crc=1, size=90, leader_epoch=2)
    result = disks.result(replicas.REPLICAS_EQUAL)
    assert messages(result) == [
        "orders-0: at offset 8, /copies/broker-2 and /copies/broker-1 have different batches: last "
        "offsets 9 and 9, sizes 90 and 100, leader epochs 2 and 0, checksums 1 and 7008, producer "
        "ids 6 and 6"
    ]
    assert [each.log_dir for each in result.findings[0].witnesses] == [
        "/copies/broker-2",
        "/copies/broker-1",
    ]


def test_only_the_first_difference_of_a_replica_is_reported() -> None:
    disks, logs = cluster()
    for batch in logs[1].batches[1:]:
        batch["crc"] = 1
    found = messages(disks.result(replicas.REPLICAS_EQUAL))
    assert len(found) == 1
    assert "at offset 3" in found[0]


def test_a_batch_that_one_replica_lacks_is_a_defect() -> None:
    disks, logs = cluster()
    del logs[1].batches[1]
    assert messages(disks.result(replicas.REPLICAS_EQUAL)) == [
        "orders-0: at offset 3, /copies/broker-2 lacks a batch of 100 bytes that /copies/broker-1 "
        "has"
    ]


def test_a_lacking_batch_of_a_topic_that_may_be_compacted_is_undecided() -> None:
    disks, logs = cluster(is_registered=False)
    del logs[1].batches[1]
    result = disks.result(replicas.REPLICAS_EQUAL)
    assert result.outcome is AuditOutcome.UNKNOWN
    assert "it is not known whether the topic was compacted" in result.findings[0].message


def test_replicas_of_compacted_topics_are_compared_batch_by_batch() -> None:
    disks, logs = cluster()
    disks.topic(policy="compact")
    del logs[1].batches[1]
    assert disks.result(replicas.REPLICAS_EQUAL).outcome is AuditOutcome.SOUND
    disks, logs = cluster()
    disks.topic(policy="compact")
    logs[1].batches[1]["crc"] = 1
    assert disks.result(replicas.REPLICAS_EQUAL).outcome is AuditOutcome.DEFECT
    disks, logs = cluster()
    logs[0].replica["cleaned_until"] = 5
    logs[1].batches[1]["crc"] = 1
    assert disks.result(replicas.REPLICAS_EQUAL).outcome is AuditOutcome.SOUND


def test_a_difference_that_one_replica_had_not_committed_is_undecided() -> None:
    disks, logs = cluster(is_clean=False)
    logs[1].batches[5]["crc"] = 1
    logs[1].replica["high_watermark"] = 10
    result = disks.result(replicas.REPLICAS_EQUAL)
    assert result.outcome is AuditOutcome.UNKNOWN
    assert "it truncates its log when it follows a leader again" in result.findings[0].message


def test_closed_replicas_in_the_isr_are_equal_up_to_the_highest_watermark() -> None:
    disks, logs = cluster()
    logs[1].batches[5]["crc"] = 1
    logs[1].replica["high_watermark"] = 10
    assert disks.result(replicas.REPLICAS_EQUAL).outcome is AuditOutcome.DEFECT


def test_replicas_are_compared_from_where_all_have_the_log() -> None:
    disks, logs = cluster()
    logs[1].replica.update(first_offset=5, first_segment_offset=5, log_start_offset=5)
    del logs[1].batches[:2]
    result = disks.result(replicas.REPLICAS_EQUAL)
    assert (result.outcome, result.examined) == (AuditOutcome.SOUND, 6 + 4)


def test_logs_of_deleted_topics_and_other_clusters_are_not_compared() -> None:
    for change in ("topic", "cluster"):
        disks, logs = cluster()
        for batch in logs[1].batches:
            batch["crc"] = 1
        if change == "topic":
            logs[1].replica["topic_id"] = "id-of-a-former-topic"
        else:
            logs[1].home.row["cluster_id"] = "another"
        assert disks.result(replicas.REPLICAS_EQUAL).outcome is AuditOutcome.SOUND


# --------------------------------------------------------------------------------------------------
# Replicas complete, and of one topic


def shortened(*, is_clean: bool = True, isr: str = "[1, 2, 3]") -> Disks:
    """Return a cluster whose second replica lacks the second segment."""
    disks, logs = cluster(is_clean=is_clean, is_registered=False)
    if isr:
        disks.topic(isr=isr)
    del logs[1].batches[4:]
    logs[1].replica["high_watermark"] = 8
    return disks


def test_a_short_replica_in_the_isr_is_a_defect() -> None:
    assert messages(shortened().result(replicas.IN_SYNC_REPLICAS_COMPLETE)) == [
        "orders-0: the log in /copies/broker-2 ends at offset 8, but offsets up to the high "
        "watermark 11 of /copies/broker-1 were committed"
    ]


def test_a_short_replica_outside_the_isr_is_sound() -> None:
    result = shortened(isr="[1,3]").result(replicas.IN_SYNC_REPLICAS_COMPLETE)
    assert result.outcome is AuditOutcome.SOUND


@pytest.mark.parametrize(
    ("isr", "reason"),
    [("", "does not say whether it was in the ISR"), ("[1,2,3]", "may be of different times")],
)
def test_a_short_replica_is_undecided_without_isr_or_clean_shutdown(isr: str, reason: str) -> None:
    disks = shortened(is_clean=not isr, isr=isr)
    result = disks.result(replicas.IN_SYNC_REPLICAS_COMPLETE)
    assert result.outcome is AuditOutcome.UNKNOWN
    assert reason in result.findings[0].message


def test_the_newest_record_of_the_metadata_log_says_who_is_in_sync() -> None:
    disks = shortened()
    disks.add(
        "metadata_partitions",
        log_dir="/copies/broker-1",
        record_offset=12,
        topic_id="id-of-orders",
        partition_id=0,
        is_change=True,
        isr="[1, 3]",
    )
    assert disks.result(replicas.IN_SYNC_REPLICAS_COMPLETE).outcome is AuditOutcome.SOUND


def test_a_foreign_topic_id_in_the_isr_is_a_defect() -> None:
    disks, logs = cluster()
    logs[1].replica["topic_id"] = "id-of-payments"
    assert messages(disks.result(replicas.TOPIC_IDS_AGREE)) == [
        "orders-0: the replica in /copies/broker-2 has topic id id-of-payments, the metadata log "
        "has id-of-orders and counts the replica as in sync"
    ]


@pytest.mark.parametrize("is_registered", [True, False])
def test_a_replica_of_a_former_topic_is_undecided(is_registered: bool) -> None:
    disks, logs = cluster(is_registered=False)
    if is_registered:
        disks.topic(isr="[1,3]")
    logs[1].replica["topic_id"] = "id-of-a-former-topic"
    result = disks.result(replicas.TOPIC_IDS_AGREE)
    assert result.outcome is AuditOutcome.UNKNOWN
    reason = "may have been down" if is_registered else "does not say which is right"
    assert reason in result.findings[0].message


# --------------------------------------------------------------------------------------------------
# Transactions end once, and are in the transaction index


def test_a_transaction_that_commits_here_and_aborts_there_is_a_defect() -> None:
    disks = Disks()
    home = disks.broker()
    for partition, kind in ((0, "COMMIT"), (1, "ABORT")):
        log = home.log(partition=partition)
        log.transact(5, 0, 0)
        log.marker(kind, 5, 1)
    assert messages(disks.result(transactions.TRANSACTIONS_WHOLE)) == [
        "the transaction of producer id 5 that ended with epoch 1 is committed in orders-0 at "
        "offset 1 and aborted in orders-1 at offset 1"
    ]


def test_transactions_of_one_epoch_may_end_differently_before_kip_890() -> None:
    disks = Disks()
    log = disks.broker().log()
    for kind in ("COMMIT", "ABORT", "ABORT", "COMMIT"):
        log.transact(5, 0, len(log.batches))
        log.marker(kind, 5, 0)
        log.marker(kind, 5, 0)
    assert disks.result(transactions.TRANSACTIONS_WHOLE).findings == ()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (None, "the index lacks the aborted transaction of producer id 6 from offset 5 to 7"),
        ({"first_offset": 6}, "begin at offset 6, the log at offset 5"),
        ({"last_stable_offset": 5}, "the last stable offset 5, by the log it is 8"),
        ({"producer_id": 9}, "the index has an aborted transaction of producer id 9 from offset 5"),
    ],
)
def test_a_transaction_index_that_contradicts_its_log_is_a_defect(
    columns: dict[str, int] | None, said: str
) -> None:
    disks, _ = cluster()
    rows = disks.rows["aborted_transactions"]
    if columns is None:
        del rows[0]
    else:
        rows[0].update(columns)
    found = messages(disks.result(transactions.TRANSACTION_INDEXES_FIT))
    assert any(said in message for message in found), found


def test_the_last_stable_offset_of_an_index_is_that_of_the_oldest_open_transaction() -> None:
    for stable, expected in (
        (0, AuditOutcome.SOUND),
        (1, AuditOutcome.DEFECT),
        (3, AuditOutcome.DEFECT),
    ):
        disks = Disks()
        log = disks.broker().log()
        log.transact(5, 0, 0)
        log.transact(6, 0, 0)
        log.marker("ABORT", 6, 0)
        log.aborted(6, 1, 2, stable)
        log.marker("COMMIT", 5, 0)
        result = disks.result(transactions.TRANSACTION_INDEXES_FIT)
        assert result.outcome is expected, messages(result)


def test_a_follower_may_index_a_later_last_stable_offset() -> None:
    disks, _ = cluster()
    disks.rows["aborted_transactions"][0]["last_stable_offset"] = 9
    assert disks.result(transactions.TRANSACTION_INDEXES_FIT).outcome is AuditOutcome.SOUND


def test_an_index_may_name_a_transaction_whose_records_retention_deleted() -> None:
    disks, logs = cluster()
    for log in logs:
        log.replica.update(first_offset=7, log_start_offset=7)
        del log.batches[:3]
    assert disks.result(transactions.TRANSACTION_INDEXES_FIT).findings == ()


def test_an_index_behind_the_recovery_point_of_an_open_log_is_undecided() -> None:
    for recovery_point, expected in ((5, AuditOutcome.UNKNOWN), (8, AuditOutcome.DEFECT)):
        disks, logs = cluster(is_clean=False)
        del disks.rows["aborted_transactions"][0]
        logs[0].replica["recovery_point"] = recovery_point
        assert disks.result(transactions.TRANSACTION_INDEXES_FIT).outcome is expected


# --------------------------------------------------------------------------------------------------
# Hanging transactions


def with_open_transaction(
    *, is_clean: bool = True, isr: str = "[1, 2, 3]", coordinators: int = 1
) -> tuple[Disks, Log]:
    """Return a broker with a transaction open since offset 2 of orders-0, and its coordinator."""
    disks = Disks()
    home = disks.broker(is_clean=is_clean)
    log = home.log()
    log.transact(5, 0, 0)
    log.marker("COMMIT", 5, 0, coordinator_epoch=3)
    log.transact(5, 0, 1)
    log.transact(5, 0, 2, 4)
    disks.topic(isr=isr)
    if coordinators:
        disks.topic("__transaction_state", isr=isr)
    for partition in range(coordinators):
        home.log("__transaction_state", partition).batch()
    return disks, log


def state(disks: Disks, status: str, partitions: list[list[object]], **columns: object) -> None:
    """Write a record of the coordinator of producer id 5."""
    disks.add(
        "transaction_states",
        **{
            "log_dir": "/copies/broker-1",
            "directory": "__transaction_state-0",
            "record_offset": len(disks.rows["transaction_states"]),
            "transactional_id": "billing",
            "is_tombstone": False,
            "producer_id": 5,
            "previous_producer_id": -1,
            "next_producer_id": -1,
            "producer_epoch": 0,
            "timeout_ms": TIMEOUT_MS,
            "status": status,
            "partitions": json.dumps(partitions),
            **columns,
        },
    )


def test_an_open_transaction_that_its_coordinator_does_not_know_hangs() -> None:
    disks, _ = with_open_transaction()
    state(disks, "Ongoing", [["orders", 0]])
    state(disks, "Empty", [])
    result = disks.result(transactions.NO_HANGING_TRANSACTIONS)
    assert messages(result) == [
        "orders-0: producer id 5 epoch 0 has a transaction open since offset 2; read_committed "
        "consumers stop there, 5 offsets before the end of the log; its coordinator has "
        "transactional id billing in state Empty, without this partition"
    ]
    finding = result.findings[0]
    assert finding.since_ms == START_MS + 3000
    assert finding.transaction == HangingTransaction(
        topic="orders",
        partition=0,
        producer_id=5,
        producer_epoch=0,
        coordinator_epoch=3,
        start_offset=2,
    )


def test_an_ongoing_transaction_of_other_partitions_does_not_hold_this_one() -> None:
    disks, _ = with_open_transaction()
    state(disks, "Ongoing", [["orders", 1], ["payments", 0]])
    assert disks.result(transactions.NO_HANGING_TRANSACTIONS).defect_count == 1


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("Ongoing", "ongoing, with a timeout of 60000 ms"),
        ("PrepareCommit", "in state PrepareCommit and writes the marker when the brokers run"),
    ],
)
def test_a_transaction_that_its_coordinator_holds_is_undecided(status: str, reason: str) -> None:
    disks, _ = with_open_transaction()
    state(disks, status, [["payments", 0], ["orders", 0]])
    result = disks.result(transactions.NO_HANGING_TRANSACTIONS)
    assert result.outcome is AuditOutcome.UNKNOWN
    assert reason in result.findings[0].message


def test_a_transaction_whose_producer_id_has_no_transactional_id_hangs() -> None:
    disks, _ = with_open_transaction()
    state(disks, "Ongoing", [["orders", 0]])
    state(disks, "Ongoing", [], is_tombstone=True)
    found = messages(disks.result(transactions.NO_HANGING_TRANSACTIONS))
    assert "no transactional id has this producer id" in found[0]


def test_the_previous_producer_id_of_a_transactional_id_counts() -> None:
    disks, _ = with_open_transaction()
    state(disks, "PrepareAbort", [["orders", 0]], producer_id=8, previous_producer_id=5)
    assert disks.result(transactions.NO_HANGING_TRANSACTIONS).outcome is AuditOutcome.UNKNOWN


def test_an_open_transaction_is_undecided_without_its_coordinator() -> None:
    for coordinators in (0, 2):
        disks, _ = with_open_transaction(coordinators=coordinators)
        if coordinators:
            disks.add(
                "metadata_partitions",
                log_dir="/copies/broker-1",
                record_offset=11,
                topic_id="id-of-__transaction_state",
                partition_id=2,
                isr="[1]",
            )
        result = disks.result(transactions.NO_HANGING_TRANSACTIONS)
        assert result.outcome is AuditOutcome.UNKNOWN
        assert "__transaction_state is not here, or not all of it" in result.findings[0].message


@pytest.mark.parametrize(("is_clean", "isr"), [(False, "[1]"), (True, "[2]")])
def test_a_young_transaction_is_undecided_if_logs_may_be_of_different_times(
    is_clean: bool, isr: str
) -> None:
    disks, _ = with_open_transaction(is_clean=is_clean, isr=isr)
    state(disks, "Empty", [])
    result = disks.result(transactions.NO_HANGING_TRANSACTIONS)
    assert result.outcome is AuditOutcome.UNKNOWN
    assert "may have been copied at different times" in result.findings[0].message


def test_a_transaction_older_than_any_timeout_hangs_whatever_was_closed() -> None:
    disks, log = with_open_transaction(is_clean=False)
    state(disks, "Empty", [])
    log.now_ms += DAY_MS
    log.marker("COMMIT", 6, 0)
    assert disks.result(transactions.NO_HANGING_TRANSACTIONS).outcome is AuditOutcome.UNKNOWN
    disks, log = with_open_transaction(is_clean=False)
    state(disks, "Empty", [])
    log.now_ms += DAY_MS
    log.marker("COMMIT", 6, 0)
    coordinator = disks.logs[1]
    coordinator.now_ms = log.now_ms
    coordinator.batch()
    result = disks.result(transactions.NO_HANGING_TRANSACTIONS)
    assert result.outcome is AuditOutcome.DEFECT
    assert "its last record is 86401 seconds older" in result.findings[0].message


def test_the_replica_with_the_latest_end_says_whether_a_transaction_is_open() -> None:
    disks, logs = cluster()
    del logs[0].batches[5:]
    assert disks.result(transactions.NO_HANGING_TRANSACTIONS).outcome is AuditOutcome.SOUND
    disks, logs = cluster()
    for log in logs:
        del log.batches[5:]
    result = disks.result(transactions.NO_HANGING_TRANSACTIONS)
    assert [each.subject for each in result.findings] == [f"orders-0 producer {TRANSACTIONAL}"]
