"""The variant that keeps one batch of each producer: one row for each case, beside what Apache Kafka says to it.   Source: KIP-758."""

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_state.latest_batch import LatestBatchStateManager
from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.core.producer_state.policy import SEQUENCES_BEHIND_MAX, ProducerStatePolicy, UnknownProducer
from kraftsim.core.producer_state.snapshot import snapshot_rows, state_entries
from kraftsim.core.producer_state.verdict import APPEND, Duplicate, Verdict
from protocol.batches import RecordBatch
from protocol.errors import ErrorCode
from tests.core.batches import make_batch, make_marker

LAST = 2**31 - 1
BEHIND = 100
POLICY = ProducerStatePolicy(sequences_behind=BEHIND)
OUT_OF_ORDER = Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
SOMEWHERE = Refusal(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


def states(*taken: RecordBatch, policy: ProducerStatePolicy = POLICY) -> tuple[LatestBatchStateManager, ProducerStateManager]:
    """Return both kinds of state after these batches, from offset 100 on."""
    both = LatestBatchStateManager(policy), ProducerStateManager(policy)
    for state in both:
        offset = 100
        for each in taken:
            state.apply(each, offset)
            offset += each.last_offset_delta + 1
    return both


def at(first_offset: int, last_offset: int) -> Duplicate:
    return Duplicate(first_offset=first_offset, last_offset=last_offset, log_append_time_ms=1000)


def run(first: int, count: int) -> list[RecordBatch]:
    """Return batches of ten records in sequence."""
    return [make_batch((first + 10 * each) % 2**31, (first + 10 * each + 9) % 2**31) for each in range(count)]


@pytest.mark.parametrize(
    ("first", "last", "latest", "five"),
    [
        (200, 209, APPEND, APPEND),
        (190, 199, at(290, 299), at(290, 299)),
        (150, 159, SOMEWHERE, at(250, 259)),  # the fifth batch back: known to be there, no longer where
        (140, 149, SOMEWHERE, OUT_OF_ORDER),  # the sixth
        (100, 100, SOMEWHERE, OUT_OF_ORDER),  # 99 behind, the end of the range
        (99, 99, OUT_OF_ORDER, OUT_OF_ORDER),  # 100 behind
        (0, 150, SOMEWHERE, OUT_OF_ORDER),  # its end counts
        (195, 199, SOMEWHERE, OUT_OF_ORDER),  # a part of the latest batch
        (195, 204, OUT_OF_ORDER, OUT_OF_ORDER),  # begins in what is there and ends behind it
        (201, 201, OUT_OF_ORDER, OUT_OF_ORDER),  # a gap
        (LAST, LAST, OUT_OF_ORDER, OUT_OF_ORDER),
    ],
)
def test_what_lies_behind_the_latest_batch_is_there_already(first: int, last: int, latest: Verdict, five: Verdict) -> None:
    """Within the range, without having seen it; the offset is known of the latest batch only."""
    assert tuple(state.check(make_batch(first, last)) for state in states(*run(0, 20))) == (latest, five)


@pytest.mark.parametrize(
    ("first", "last", "latest", "five"),
    [
        (20, 29, APPEND, APPEND),
        (10, 19, at(170, 179), at(170, 179)),
        (LAST - 9, LAST, SOMEWHERE, at(150, 159)),
        (LAST - 29, LAST - 20, SOMEWHERE, at(130, 139)),
        (LAST - 80, LAST - 80, OUT_OF_ORDER, OUT_OF_ORDER),  # 20 + 80 behind
        (LAST - 79, LAST - 79, SOMEWHERE, OUT_OF_ORDER),
        (LAST, 21, OUT_OF_ORDER, OUT_OF_ORDER),  # across both ends
    ],
)
def test_the_range_goes_across_the_end_of_the_numbers(first: int, last: int, latest: Verdict, five: Verdict) -> None:
    """0 follows 2^31-1, and 2^31-1 lies behind 0."""
    assert tuple(state.check(make_batch(first, last)) for state in states(*run(LAST - 59, 8))) == (latest, five)


def test_a_sequence_that_was_never_seen_is_taken_for_a_duplicate() -> None:
    """The harm of it: a producer that lost its way behind the end of the numbers is told that its records are there. They are nowhere."""
    latest, five = states(make_batch(0, 10))
    astray = make_batch(LAST - 5, LAST)
    assert (latest.check(astray), five.check(astray)) == (SOMEWHERE, OUT_OF_ORDER)


@pytest.mark.parametrize(
    ("epoch", "first", "verdict"),
    [
        (4, 0, APPEND),
        (4, 5, OUT_OF_ORDER),
        (2, 0, Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)),
        (2, 199, Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)),
    ],
)
def test_the_range_is_of_one_epoch(epoch: int, first: int, verdict: Verdict) -> None:
    """Another epoch is judged as ever."""
    latest, five = states(make_batch(0, 9, epoch=3))
    assert latest.check(make_batch(first, epoch=epoch)) == five.check(make_batch(first, epoch=epoch)) == verdict


def test_where_nothing_is_remembered_there_is_nothing_behind() -> None:
    """An unknown producer, or one of whom a marker is left, is judged as the release does."""
    for policy in (POLICY, ProducerStatePolicy(unknown_producer=UnknownProducer.OUT_OF_ORDER)):
        latest, five = states(policy=policy)
        assert latest.check(make_batch(7)) == five.check(make_batch(7))
        latest, five = states(make_marker(), policy=policy)
        assert latest.check(make_batch(7)) == five.check(make_batch(7)) == OUT_OF_ORDER


def test_at_most_half_of_all_numbers_lie_behind() -> None:
    """Or what lies ahead would lie behind as well."""
    latest, _ = states(make_batch(0, 9), policy=ProducerStatePolicy(sequences_behind=SEQUENCES_BEHIND_MAX))
    verdicts = [latest.check(make_batch((9 - behind) % 2**31)) for behind in (SEQUENCES_BEHIND_MAX - 1, SEQUENCES_BEHIND_MAX)]
    assert verdicts == [SOMEWHERE, OUT_OF_ORDER]


def test_one_batch_is_kept_and_a_restart_changes_nothing() -> None:
    """A snapshot holds one batch of each, which is all that this variant ever knew."""
    latest, five = states(*run(0, 20))
    assert (len(latest.entries[7].retained), len(five.entries[7].retained)) == (1, 5)
    again = LatestBatchStateManager(POLICY)
    again.load(state_entries(snapshot_rows(latest.entries.values()), again.entry_class), 1000)
    for first in (0, 99, 100, 150, 190, 200, 201):
        assert again.check(make_batch(first, first + 9)) == latest.check(make_batch(first, first + 9))
    again.apply(make_batch(200, 209), 300)
    assert len(again.entries[7].retained) == 1
