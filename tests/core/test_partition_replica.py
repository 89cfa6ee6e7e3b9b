"""A partition on its leader.   Source: kafka.cluster.Partition."""

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.partitions.events import (
    BatchAppended,
    DuplicateAnswered,
    IsrChanged,
    LeaderElected,
    LeadershipLost,
    ProduceRefused,
    ProducerStateExpired,
)
from kraftsim.partitions.rules_append import AppendDecision, AppendRules
from kraftsim.partitions.rules_follower import (
    NOTHING_FOUND,
    Diverging,
    OffsetAnswer,
    ReadBounds,
    SearchMaxTimestamp,
    SearchTimestamp,
)
from kraftsim.partitions.rules_leader import LeaderAndIsrState, LeaderRules
from kraftsim.partitions.rules_log import LeaderEpochs
from kraftsim.partitions.rules_reading import decide_list_offset, decide_read
from kraftsim.partitions.rules_replica import PartitionReplica
from kraftsim.producer_state.rules_entries import DAY_MS, Duplicate, ProducerStatePolicy
from kraftsim.producer_state.rules_manager import ProducerStateManager
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch, TimestampType
from protocol.storage.text_files import EpochStart
from tests.core.batches import make_batch

NOW_MS = 5000
OWN_ID = 1
TRUSTING = ProducerStatePolicy(verifies_transactions=False)


def replica(
    emitted: list[Event],
    *,
    log_start_offset: int = 0,
    log_end_offset: int = 0,
    leader_epoch: int | None = 3,
    rules: AppendRules | None = None,
) -> PartitionReplica:
    """Return a partition that has been leader since epoch 3 unless given otherwise; epoch 1 began
    at offset 0.
    """
    made = PartitionReplica(
        topic="lines",
        partition=2,
        replica_id=OWN_ID,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        epochs=LeaderEpochs([EpochStart(1, 0)] if log_end_offset else []),
        producer_state=ProducerStateManager(TRUSTING),
        rules=rules or AppendRules(),
        emit=emitted.append,
    )
    if leader_epoch is not None:
        lead(made, leader_epoch)
    emitted.clear()
    return made


def lead(partition: PartitionReplica, leader_epoch: int) -> bool:
    """Make this broker the leader of a partition without followers."""
    leader_and_isr = LeaderAndIsrState(
        leader_epoch=leader_epoch, partition_epoch=leader_epoch, replicas=(OWN_ID,), isr=(OWN_ID,)
    )
    rules = LeaderRules(min_in_sync=min(partition.rules.min_in_sync_replicas, 1))
    return partition.lead(
        leader_and_isr, now_ms=NOW_MS, rules=rules, eligible=lambda replica_id, broker_epoch: True
    )


def append(partition: PartitionReplica, batch: RecordBatch) -> AppendDecision:
    decision = partition.decide_append(batch, -1, NOW_MS)
    assert isinstance(decision, AppendDecision)
    partition.apply_append(decision)
    return decision


def test_append_assigns_offsets_and_the_leader_epoch(emitted: list[Event]) -> None:
    """Only the base offset and the leader epoch change in its bytes, so its checksum remains
    valid.
    """
    partition = replica(emitted, log_end_offset=40)
    batch = make_batch(0, 4)
    decision = append(partition, batch)
    written = RecordBatch(b"".join(decision.chunks))
    assert (written.base_offset, written.last_offset, written.partition_leader_epoch) == (40, 44, 3)
    assert written.crc_is_valid() and written.crc == batch.crc
    assert (partition.log_end_offset, partition.high_watermark) == (45, 45)
    assert emitted == [
        BatchAppended(
            topic="lines",
            partition=2,
            leader_epoch=3,
            first_offset=40,
            last_offset=44,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            last_sequence=4,
            record_count=5,
            size_bytes=batch.size_bytes,
            crc=batch.crc,
        )
    ]


def test_validation_alone_changes_nothing(emitted: list[Event]) -> None:
    """If the write fails the retry is validated like the first attempt.   Source: KAFKA-6683."""
    partition = replica(emitted)
    for _ in range(2):
        decision = partition.decide_append(make_batch(0), -1, NOW_MS)
        assert isinstance(decision, AppendDecision) and decision.first_offset == 0
    assert emitted == [] and partition.log_end_offset == 0


def test_two_validations_cannot_both_be_applied(emitted: list[Event]) -> None:
    """No other append may come between validation and write."""
    partition = replica(emitted)
    first, second = (
        partition.decide_append(make_batch(0, producer_id=producer_id), 1, NOW_MS)
        for producer_id in (1, 2)
    )
    assert isinstance(first, AppendDecision) and isinstance(second, AppendDecision)
    partition.apply_append(first)
    with pytest.raises(AssertionError, match="decided for 0, the log ends at 1"):
        partition.apply_append(second)


def test_duplicate_batch_is_acknowledged_with_its_first_offset(emitted: list[Event]) -> None:
    """It is not written."""
    partition = replica(emitted)
    append(partition, make_batch(0, 4))
    append(partition, make_batch(5, 6))
    emitted.clear()
    assert partition.decide_append(make_batch(0, 4), -1, NOW_MS) == Duplicate(
        first_offset=0, last_offset=4, log_append_time_ms=1000
    )
    assert emitted == [
        DuplicateAnswered(
            topic="lines",
            partition=2,
            first_offset=0,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            last_sequence=4,
        )
    ]


@pytest.mark.parametrize(
    ("batch", "acks", "rules", "error"),
    [
        (make_batch(0), 2, AppendRules(), ErrorCode.INVALID_REQUIRED_ACKS),
        (make_batch(0), -1, AppendRules(min_in_sync_replicas=2), ErrorCode.NOT_ENOUGH_REPLICAS),
        (make_batch(0, base_offset=9), -1, AppendRules(), ErrorCode.INVALID_RECORD),
        (make_batch(6), -1, AppendRules(), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (make_batch(0, epoch=-1), -1, AppendRules(), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_rejected_batch_emits_an_event_and_is_not_written(
    batch: RecordBatch, acks: int, rules: AppendRules, error: ErrorCode, emitted: list[Event]
) -> None:
    """Order of the checks: request, replicas, batch, producer."""
    partition = replica(emitted)
    append(partition, make_batch(0, 4))
    emitted.clear()
    partition.rules = rules
    assert partition.decide_append(batch, acks, NOW_MS) == Refusal(error)
    (event,) = emitted
    assert isinstance(event, ProduceRefused) and event.error_code == error and event.reason
    assert partition.log_end_offset == 5


def test_only_acks_all_requires_in_sync_replicas(emitted: list[Event]) -> None:
    """acks=1 needs only the leader."""
    partition = replica(emitted, rules=AppendRules(min_in_sync_replicas=2))
    assert isinstance(partition.decide_append(make_batch(0), 1, NOW_MS), AppendDecision)


def test_log_append_time_stamps_batches(emitted: list[Event]) -> None:
    """With a new checksum, which covers the timestamp."""
    partition = replica(emitted, rules=AppendRules(keeps_append_time=True))
    decision = append(partition, make_batch(0, timestamp=1))
    written = RecordBatch(b"".join(decision.chunks))
    assert written.crc_is_valid() and written.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (written.max_timestamp, decision.max_timestamp) == (NOW_MS, NOW_MS)
    noticed = next(event for event in emitted if isinstance(event, BatchAppended))
    assert noticed.crc == written.crc != make_batch(0, timestamp=1).crc, (
        "followers emit it for replicated batches"
    )
    assert partition.decide_append(make_batch(0, timestamp=1), -1, NOW_MS + 1) == Duplicate(
        first_offset=0, last_offset=0, log_append_time_ms=NOW_MS
    )


def test_non_leader_rejects_requests(emitted: list[Event]) -> None:
    """NOT_LEADER_OR_FOLLOWER makes clients look up the leader."""
    refused = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    partition = replica(emitted, leader_epoch=None)
    for _ in range(2):
        assert partition.decide_append(make_batch(0), -1, NOW_MS) == refused
        assert decide_read(partition, 0) == refused
        assert decide_list_offset(partition, -1, api_version=5) == refused
        lead(partition, 3)
        partition.resign()


def test_leader_epoch_begins_at_the_log_end_and_emits_an_event(emitted: list[Event]) -> None:
    """Each one rewrites the leader-epoch checkpoint; resigning twice emits one event."""
    partition = replica(emitted, log_end_offset=40, leader_epoch=None)
    assert lead(partition, 3) and not lead(partition, 3)
    append(partition, make_batch(0))
    assert lead(partition, 5)
    partition.resign()
    partition.resign()
    assert list(partition.epochs.starts) == [(1, 0), (3, 40), (5, 41)]
    assert [event for event in emitted if not isinstance(event, BatchAppended)] == [
        LeaderElected(topic="lines", partition=2, leader_epoch=3, next_offset=40),
        IsrChanged(topic="lines", partition=2, leader_epoch=3, partition_epoch=3, isr="1"),
        LeaderElected(topic="lines", partition=2, leader_epoch=5, next_offset=41),
        IsrChanged(topic="lines", partition=2, leader_epoch=5, partition_epoch=5, isr="1"),
        LeadershipLost(topic="lines", partition=2, leader_epoch=5),
    ]


@pytest.mark.parametrize(
    ("fetch_offset", "current_epoch", "last_fetched_epoch", "answer"),
    [
        (10, -1, -1, (10, 40)),
        (40, 3, -1, (40, 40)),  # nothing yet
        (39, 3, 1, (39, 40)),
        (40, 3, 3, (40, 40)),
        (9, -1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (41, -1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (20, 2, -1, ErrorCode.FENCED_LEADER_EPOCH),
        (20, 4, -1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (20, -1, 4, ErrorCode.OFFSET_OUT_OF_RANGE),  # an unknown epoch
        (9, -1, 1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (20, -1, 2, Diverging(leader_epoch=1, end_offset=40)),  # epoch 2 never existed
        (
            41,
            -1,
            1,
            Diverging(leader_epoch=1, end_offset=40),
        ),  # the fetcher has more of epoch 1 than there is
    ],
)
def test_read_is_bounded_by_the_log_and_checked_by_epoch(
    fetch_offset: int,
    current_epoch: int,
    last_fetched_epoch: int,
    answer: object,
    emitted: list[Event],
) -> None:
    """The log has the offsets 10 to 39, all of epoch 1.

    Source: KIP-320, KIP-595 for diverging epochs.
    """
    partition = replica(emitted, log_start_offset=10, log_end_offset=40)
    read = decide_read(
        partition,
        fetch_offset,
        current_leader_epoch=current_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    match read:
        case ReadBounds():
            assert (read.first_offset, read.end_offset) == answer
            assert (read.high_watermark, read.last_stable_offset, read.log_start_offset) == (
                40,
                40,
                10,
            )
        case Refusal(error):
            assert error == answer
        case Diverging():
            assert read == answer


def test_read_committed_stops_at_the_oldest_open_transaction(emitted: list[Event]) -> None:
    """A read beyond it returns no records and no error."""
    partition = replica(emitted)
    append(partition, make_batch(0, producer_id=1))
    append(partition, make_batch(0, transactional=True))
    append(partition, make_batch(1, producer_id=1))
    ends = []
    for fetch_offset in (0, 2):
        read = decide_read(partition, fetch_offset, reads_committed=True)
        assert isinstance(read, ReadBounds)
        ends.append((read.end_offset, read.last_stable_offset, read.high_watermark))
    assert ends == [(1, 1, 3), (2, 1, 3)]
    assert decide_list_offset(partition, -1, api_version=5, reads_committed=True) == OffsetAnswer(
        offset=1, timestamp=-1, leader_epoch=3
    )


@pytest.mark.parametrize(
    ("timestamp", "api_version", "answer"),
    [
        (-1, 0, OffsetAnswer(offset=40, timestamp=-1, leader_epoch=3)),
        (-2, 0, OffsetAnswer(offset=10, timestamp=-1, leader_epoch=1)),
        (-3, 7, SearchMaxTimestamp(end_offset=40)),
        (-3, 6, Refusal(ErrorCode.UNSUPPORTED_VERSION)),
        (-4, 8, OffsetAnswer(offset=10, timestamp=-1, leader_epoch=1)),
        (-4, 7, Refusal(ErrorCode.UNSUPPORTED_VERSION)),
        (-5, 9, NOTHING_FOUND),
        (-5, 8, Refusal(ErrorCode.UNSUPPORTED_VERSION)),
        (-6, 9, Refusal(ErrorCode.UNSUPPORTED_VERSION)),
        (0, 1, SearchTimestamp(timestamp=0, end_offset=40)),
        (77, 9, SearchTimestamp(timestamp=77, end_offset=40)),
    ],
)
def test_offsets_are_listed_by_timestamp(
    timestamp: int, api_version: int, answer: object, emitted: list[Event]
) -> None:
    """-1 latest, -2 earliest, -3 of the greatest timestamp, -4 earliest local, -5 latest tiered."""
    partition = replica(emitted, log_start_offset=10, log_end_offset=40)
    assert decide_list_offset(partition, timestamp, api_version=api_version) == answer
    assert decide_list_offset(
        partition, timestamp, api_version=api_version, current_leader_epoch=2
    ) == Refusal(ErrorCode.FENCED_LEADER_EPOCH)


def test_inactive_producer_expires_and_emits_an_event(emitted: list[Event]) -> None:
    """After a day by default.   Source: KIP-854."""
    partition = replica(emitted)
    append(partition, make_batch(0))
    emitted.clear()
    partition.expire_producers(999 + DAY_MS)
    assert emitted == []
    partition.expire_producers(1000 + DAY_MS)
    assert emitted == [ProducerStateExpired(topic="lines", partition=2, producer_id=7)]


@pytest.mark.parametrize(("truncated_to", "copied"), [(12, 7), (8, 7), (7, -1), (3, -1)])
def test_remote_copies_beyond_a_truncation_do_not_count(truncated_to: int, copied: int) -> None:
    """Otherwise local segments without a remote copy would be deleted."""
    followed = replica([], log_end_offset=12, leader_epoch=None)
    followed.remote_end_offset = 7
    followed.on_truncated(0, truncated_to)
    assert followed.remote_end_offset == copied
