"""Share-partitions step by step.   Source: KIP-932, KIP-1206, KIP-1222; SharePartition."""

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.share_groups.rules_share_acknowledgement import Acknowledgement, acknowledge, release
from kraftsim.share_groups.rules_share_acquisition import AbortedRange
from kraftsim.share_groups.rules_share_partition import ShareLimits, SharePhase, StateWrite
from kraftsim.share_groups.rules_share_records import RecordState
from kraftsim.share_groups.rules_share_states import StateBatch
from protocol.errors import ErrorCode
from protocol.messages.k78_share_fetch import AcknowledgeType
from tests.core.share_partition_harness import LOCK_MS, LogBatch, ShareUnderTest, log_of

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
LIMIT = 1  # record_limit


def answered(
    share: ShareUnderTest, first: int, last: int, *types: int, member_id: str = "a"
) -> StateWrite | Refusal | None:
    """Acknowledge one range."""
    asked = [Acknowledgement(first, last, types)]
    return acknowledge(share.partition, member_id, asked, share.limits, share.now_ms)


def settle(
    share: ShareUnderTest,
    first: int,
    last: int,
    *types: int,
    error: ErrorCode = ErrorCode.NONE,
    member_id: str = "a",
) -> StateWrite:
    """Acknowledge one range, and let the persister answer."""
    write = answered(share, first, last, *types, member_id=member_id)
    assert isinstance(write, StateWrite)
    share.partition.on_written(write, error, share.now_ms)
    return write


def stored(write: StateWrite | None) -> list[tuple[int, int, int, int]]:
    """First offset, last offset, state and delivery count of what is to be stored."""
    assert write is not None
    return [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in write.batches
    ]


TEN = log_of((0, 9), (10, 19), (20, 29))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, [(0, 29, 1)]),
        ({"batch_size": 10}, [(0, 9, 1), (10, 19, 1), (20, 29, 1)]),
        ({"batch_size": 15}, [(0, 19, 1), (20, 29, 1)]),
        ({"records_max": 1}, [(0, 9, 1)]),
        ({"records_max": 11}, [(0, 19, 1)]),
        ({"records_max": 1, "mode": LIMIT}, [(0, 0, 1)]),
        ({"records_max": 11, "mode": LIMIT}, [(0, 10, 1)]),
        ({"records_max": 30, "mode": LIMIT, "batch_size": 1}, [(0, 29, 1)]),
    ],
)
def test_the_mode_decides_where_an_acquisition_ends(
    asked: dict[str, int], expected: list[tuple[int, int, int]]
) -> None:
    """Whole batches, unless records are limited exactly (KIP-1206)."""
    assert ShareUnderTest(TEN).ranges("a", **asked) == expected


def test_members_get_different_records() -> None:
    """What is acquired is locked; with a limit the rest of a batch is available at once."""
    share = ShareUnderTest(TEN)
    assert share.ranges("a", records_max=4, mode=LIMIT) == [(0, 3, 1)]
    assert share.ranges("b", records_max=4, mode=LIMIT) == [(4, 7, 1)]
    assert share.ranges("c", records_max=4, mode=LIMIT) == [(8, 9, 1), (10, 11, 1)]
    assert share.ranges("d") == [(12, 19, 1), (20, 29, 1)]
    assert share.ranges("d") == []


def test_at_most_so_many_records_are_locked() -> None:
    """group.share.partition.max.record.locks ends acquisitions, but not inside a batch."""
    share = ShareUnderTest(TEN, limits=ShareLimits(record_locks_max=15))
    assert share.ranges("a") == [(0, 19, 1)]
    assert share.ranges("b") == []
    settle(share, 0, 4, ACCEPT)
    assert share.ranges("b") == []
    settle(share, 5, 9, ACCEPT)
    assert share.ranges("b") == [(20, 29, 1)]


def test_locks_end_and_records_are_delivered_again() -> None:
    """A lock that ended is stored; the delivery count grows by one with each delivery."""
    share = ShareUnderTest(TEN, limits=ShareLimits(throttles_deliveries=False))
    for count in range(1, 6):
        assert share.ranges("a", records_max=1) == [(0, 9, count)]
        share.now_ms += LOCK_MS - 1
        assert share.partition.expire_locks(share.limits, share.now_ms) is None
        share.now_ms += 1
        write = share.partition.expire_locks(share.limits, share.now_ms)
        state = RecordState.AVAILABLE if count < 5 else RecordState.ARCHIVED
        assert stored(write) == [(0, 9, state, count)]
        assert write is not None
        assert write.delivery_complete_count == (0 if count < 5 else 10)
        share.partition.on_written(write, ErrorCode.NONE, share.now_ms)
    assert share.partition.start_offset == 10
    assert share.ranges("a") == [(10, 29, 1)]


def test_suspected_records_are_delivered_in_ever_smaller_pieces() -> None:
    """From half of the limit on a batch is halved; the last delivery is of one record."""
    share = ShareUnderTest(log_of((0, 15)))
    seen = []
    for _ in range(3):
        seen.append(share.ranges())
        share.now_ms += LOCK_MS
        write = share.partition.expire_locks(share.limits, share.now_ms)
        assert write is not None
        share.partition.on_written(write, ErrorCode.NONE, share.now_ms)
    assert seen == [[(0, 15, 1)], [(0, 15, 2)], [(0, 15, 3)]]
    assert share.ranges() == [(0, 7, 4)]
    settle(share, 0, 7, RELEASE)
    assert share.ranges() == [(0, 0, 5)]
    settle(share, 0, 0, RELEASE)
    assert share.partition.start_offset == 1
    assert share.ranges() == [(1, 1, 5)]


@pytest.mark.parametrize(
    ("types", "states", "start_offset"),
    [
        ((ACCEPT,), [(0, 9, 2, 1)], 10),
        ((REJECT,), [(0, 9, 4, 1)], 10),
        ((GAP,), [(0, 9, 4, 1)], 10),
        ((RELEASE,), [(0, 9, 0, 1)], 0),
        (
            (ACCEPT, ACCEPT, RELEASE, GAP, REJECT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT),
            [(0, 0, 2, 1), (1, 1, 2, 1), (2, 2, 0, 1), (3, 3, 4, 1), (4, 4, 4, 1)]
            + [(offset, offset, 2, 1) for offset in range(5, 10)],
            2,
        ),
    ],
)
def test_acknowledgements_are_stored_and_move_the_start_offset(
    types: tuple[int, ...], states: list[tuple[int, int, int, int]], start_offset: int
) -> None:
    """Acknowledged and archived records at the start are done with."""
    share = ShareUnderTest(TEN)
    share.fetch(records_max=1)
    write = settle(share, 0, 9, *types)
    assert stored(write) == states
    assert write.start_offset == 0
    assert (write.state_epoch, write.leader_epoch) == (7, 3)
    assert share.partition.start_offset == start_offset


def test_one_acknowledgement_covers_several_acquisitions() -> None:
    """Ranges need not be those of the acquisition."""
    share = ShareUnderTest(TEN)
    share.fetch(batch_size=10)
    assert stored(settle(share, 0, 29, ACCEPT)) == [(0, 9, 2, 1), (10, 19, 2, 1), (20, 29, 2, 1)]
    assert share.partition.start_offset == 30


def test_a_failed_write_takes_everything_back() -> None:
    """The member still owns the records, and may acknowledge them again until its lock ends."""
    share = ShareUnderTest(TEN)
    share.fetch(records_max=1)
    write = settle(share, 0, 9, ACCEPT, error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert write.delivery_complete_count == 10
    assert share.partition.delivery_complete_count == 0
    assert share.partition.start_offset == 0
    assert share.ranges("b", records_max=1) == [(10, 19, 1)]
    settle(share, 0, 9, ACCEPT)
    assert share.partition.start_offset == 10


def test_a_write_that_fails_after_the_lock_releases_the_records() -> None:
    """The lock ends while the acknowledgement is being stored."""
    share = ShareUnderTest(TEN)
    share.fetch(records_max=1)
    write = answered(share, 0, 9, ACCEPT)
    assert isinstance(write, StateWrite)
    share.now_ms += LOCK_MS
    assert share.partition.expire_locks(share.limits, share.now_ms) is None
    share.partition.on_written(write, ErrorCode.COORDINATOR_NOT_AVAILABLE, share.now_ms)
    assert share.ranges("b", records_max=1) == [(0, 9, 2)]


@pytest.mark.parametrize(
    ("first", "last", "member_id", "error"),
    [
        (0, 9, "b", ErrorCode.INVALID_RECORD_STATE),
        (3, 4, "b", ErrorCode.INVALID_RECORD_STATE),
        (0, 10, "a", ErrorCode.INVALID_REQUEST),
        (10, 12, "a", ErrorCode.INVALID_REQUEST),
    ],
)
def test_acknowledgements_of_others_records_are_refused(
    first: int, last: int, member_id: str, error: ErrorCode
) -> None:
    """Only the owner acknowledges, and only what is in flight."""
    share = ShareUnderTest(TEN)
    share.fetch("a", records_max=1)
    refused = answered(share, first, last, ACCEPT, member_id=member_id)
    assert isinstance(refused, Refusal)
    assert refused.error is error
    assert stored(settle(share, 0, 9, ACCEPT)) == [(0, 9, 2, 1)]


def test_a_request_is_applied_whole_or_not_at_all() -> None:
    """A second range that is invalid takes the first one back."""
    share = ShareUnderTest(TEN)
    share.fetch("a", batch_size=10, records_max=20)
    asked = [Acknowledgement(0, 9, [ACCEPT]), Acknowledgement(10, 25, [ACCEPT])]
    refused = acknowledge(share.partition, "a", asked, share.limits, 0)
    assert isinstance(refused, Refusal)
    assert refused.error is ErrorCode.INVALID_REQUEST
    assert share.partition.delivery_complete_count == 0
    assert stored(settle(share, 0, 19, ACCEPT)) == [(0, 9, 2, 1), (10, 19, 2, 1)]


def test_nothing_in_flight_is_an_invalid_record_state() -> None:
    """No member has acquired anything yet."""
    refused = answered(ShareUnderTest(TEN), 0, 9, ACCEPT)
    assert isinstance(refused, Refusal)
    assert refused.error is ErrorCode.INVALID_RECORD_STATE


def test_what_is_below_the_start_offset_is_ignored() -> None:
    """A repeated acknowledgement succeeds once the start offset has passed it."""
    share = ShareUnderTest(TEN)
    share.fetch(records_max=1)
    settle(share, 0, 9, ACCEPT)
    assert answered(share, 0, 9, ACCEPT) is None


def test_renewals_prolong_locks_and_store_nothing() -> None:
    """KIP-1222; a group may forbid them."""
    share = ShareUnderTest(TEN)
    share.fetch(records_max=1)
    share.now_ms = LOCK_MS - 1
    assert answered(share, 0, 4, RENEW) is None
    share.now_ms = LOCK_MS
    write = share.partition.expire_locks(share.limits, share.now_ms)
    assert stored(write) == [(offset, offset, 0, 1) for offset in range(5, 10)]
    assert share.partition.next_deadline_ms == 2 * LOCK_MS - 1
    share.limits = ShareLimits(allows_renewal=False)
    refused = answered(share, 0, 4, RENEW)
    assert isinstance(refused, Refusal)
    assert refused.error is ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize(("counts_abandoned", "count"), [(True, 2), (False, 1)])
def test_a_closed_session_releases_its_records(counts_abandoned: bool, count: int) -> None:
    """Until 4.1 such a delivery did not count."""
    share = ShareUnderTest(TEN, limits=ShareLimits(counts_abandoned=counts_abandoned))
    share.fetch("a", records_max=1)
    share.fetch("b", records_max=1)
    write = release(share.partition, "a", share.limits, 0)
    assert isinstance(write, StateWrite)
    assert stored(write) == [(0, 9, 0, count - 1)]
    assert share.ranges("c", records_max=1) == [(20, 29, 1)]
    share.partition.on_written(write, ErrorCode.NONE, 0)
    assert share.ranges("c", records_max=1) == [(0, 9, count)]


def test_records_below_the_log_start_are_archived() -> None:
    """What is acquired there ends with its lock, and the start offset never goes back."""
    share = ShareUnderTest(TEN)
    share.fetch("a", records_max=1)
    share.fetch("b", records_max=1)
    settle(share, 10, 19, RELEASE, member_id="b")
    assert share.partition.on_log_start(15)
    assert not share.partition.on_log_start(12)
    assert share.partition.start_offset == 15
    share.log = log_of((10, 19), (20, 29))
    assert share.ranges("c", records_max=1) == [(15, 19, 2)]
    share.now_ms = LOCK_MS
    write = share.partition.expire_locks(share.limits, share.now_ms)
    assert stored(write)[0] == (0, 9, RecordState.ARCHIVED, 1)


def test_records_that_compaction_removed_are_archived() -> None:
    """A fetch finds the next batch behind what was available."""
    share = ShareUnderTest(TEN)
    share.fetch(records_max=1)
    settle(share, 0, 9, RELEASE)
    share.log = log_of((10, 19), (20, 29))
    assert share.ranges(records_max=1) == [(10, 19, 1)]
    settle(share, 10, 19, ACCEPT)
    assert share.partition.start_offset == 20


def test_aborted_transactions_are_archived_and_not_delivered() -> None:
    """share.isolation.level read_committed: markers are delivered, and are gaps to the client."""
    log = [LogBatch(0, 4), LogBatch(5, 9, 77), LogBatch(10, 14, 88), LogBatch(15, 15, 77)]
    share = ShareUnderTest([*log, LogBatch(16, 19, 77)])
    found = share.fetch(aborted=[AbortedRange(77, 5)], markers=[15])
    assert [(each.first_offset, each.last_offset) for each in found] == [(0, 4), (10, 19)]
    assert share.partition.delivery_complete_count == 5
    settle(share, 0, 4, ACCEPT)
    assert share.partition.start_offset == 10


@pytest.mark.parametrize(
    "states",
    [
        [StateBatch(3, 4, 0, 1)],
        [StateBatch(8, 7, 0, 1)],
        [StateBatch(6, 8, 0, 1), StateBatch(8, 9, 0, 1)],
        [StateBatch(6, 8, 1, 1)],
    ],
)
def test_an_impossible_stored_state_fails_the_share_partition(states: list[StateBatch]) -> None:
    """Below the start offset, in the wrong order, or acquired."""
    share = ShareUnderTest(TEN, start_offset=5, states=states)
    assert share.refused is not None
    assert share.refused.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert share.partition.phase is SharePhase.FAILED
    assert share.fetch() == ()


def test_gaps_between_stored_states_are_delivered() -> None:
    """What the former leader had delivered but not stored is available to the next one."""
    states = [StateBatch(5, 9, 2, 1), StateBatch(20, 24, 0, 3)]
    share = ShareUnderTest(TEN, states=states)
    assert share.ranges() == [(0, 4, 1), (10, 19, 1)]
    settle(share, 0, 4, ACCEPT)
    assert share.partition.start_offset == 10
    assert share.ranges() == [(20, 21, 4)]


def test_a_fenced_share_partition_does_nothing() -> None:
    """A write that completes later changes nothing."""
    share = ShareUnderTest(TEN)
    share.fetch(records_max=1)
    write = answered(share, 0, 9, ACCEPT)
    assert isinstance(write, StateWrite)
    share.partition.fence("another leader")
    assert not share.partition.on_written(write, ErrorCode.NONE, 0)
    assert share.partition.start_offset == 0
    assert share.fetch() == ()
    share.now_ms = LOCK_MS
    assert share.partition.expire_locks(share.limits, share.now_ms) is None
