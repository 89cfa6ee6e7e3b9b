"""Producer state is written to a snapshot and loaded from it.   Source:
ProducerStateManager.{writeSnapshot,readSnapshot,loadFromSnapshot}.
"""

from kraftsim.core.decision import Refusal
from kraftsim.producer_state.rules_entries import (
    APPEND,
    DAY_MS,
    Duplicate,
    ProducerStatePolicy,
    snapshot_file,
    snapshot_rows,
    state_entries,
)
from kraftsim.producer_state.rules_manager import ProducerStateManager
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch
from protocol.storage.producer_snapshot import (
    ProducerSnapshotEntry,
    build_producer_rows,
    parse_producer_rows,
    parse_producer_snapshot,
)
from tests.core.batches import make_batch, make_marker
from tools.claims.recording import Figures

LAST = 2**31 - 1
OUT_OF_ORDER = Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def state_of(*batches: RecordBatch) -> ProducerStateManager:
    """Return a state after these batches, from offset 100 on."""
    state, offset = ProducerStateManager(ProducerStatePolicy(verifies_transactions=False)), 100
    for taken in batches:
        state.apply(taken, offset)
        offset += taken.last_offset_delta + 1
    return state


def stored(state: ProducerStateManager) -> bytes:
    data = snapshot_file(state.entries.values())
    assert data == build_producer_rows(snapshot_rows(state.entries.values()))
    return data


def through_a_file(state: ProducerStateManager, now_ms: int = 1000) -> ProducerStateManager:
    """Return the state after a restart."""
    again = state_of()
    again.load(state_entries(parse_producer_rows(stored(state))), now_ms)
    return again


def test_snapshot_restores_the_last_of_five_batches(figures: Figures) -> None:
    """A file holds one batch per producer: after a restart an older one that is retried is out of
    order, not a duplicate.
    """
    state = state_of(make_batch(0, 4), make_batch(5, 9), make_batch(10))
    again = through_a_file(state)
    assert state.check(make_batch(5, 9)) == Duplicate(
        first_offset=105, last_offset=109, log_append_time_ms=1000
    )
    assert again.check(make_batch(5, 9)) == OUT_OF_ORDER
    assert again.check(make_batch(10)) == Duplicate(
        first_offset=110, last_offset=110, log_append_time_ms=1000
    )
    figures(
        batches_before=len(state.entries[7].retained),
        batches_in_the_file=len(again.entries[7].retained),
    )
    assert again.check(make_batch(11)) == APPEND
    assert stored(again) == stored(state)


def test_batch_across_the_wraparound_is_restored() -> None:
    """KAFKA-7692: the first sequence is computed backwards from the last one."""
    again = through_a_file(state_of(make_batch(LAST - 1, 2)))
    assert again.check(make_batch(LAST - 1, 2)) == Duplicate(
        first_offset=100, last_offset=104, log_append_time_ms=1000
    )
    assert again.check(make_batch(3)) == APPEND


def test_transactions_and_coordinator_epochs_are_restored() -> None:
    """An open transaction limits readers from the start; of a producer with only a marker the
    epochs are known.
    """
    state = state_of(
        make_batch(0, producer_id=9, transactional=True),
        make_batch(0, producer_id=8, transactional=True),
        make_marker(producer_id=7, epoch=3, coordinator_epoch=12),
    )
    (nine, eight, seven) = parse_producer_snapshot(stored(state))
    assert (nine.current_transaction_first_offset, eight.current_transaction_first_offset) == (
        100,
        101,
    )
    assert seven == ProducerSnapshotEntry(
        producer_id=7,
        producer_epoch=3,
        last_sequence=-1,
        last_offset=-1,
        offset_delta=0,
        timestamp=1000,
        coordinator_epoch=12,
    )
    again = through_a_file(state)
    assert again.first_unstable_offset == 100
    assert again.apply(make_marker(producer_id=9), 103) is None
    assert again.check(make_batch(1, producer_id=9)) == APPEND
    assert again.check(make_batch(1, producer_id=8)) == Refusal(ErrorCode.INVALID_TXN_STATE)
    assert (
        again.entries[7].coordinator_epoch == 12
        and again.check(make_batch(1, epoch=3)) == OUT_OF_ORDER
    )


def test_expired_producers_are_not_loaded() -> None:
    """A day after its last batch; an open transaction keeps its producer."""
    state = state_of(
        make_batch(0, timestamp=1000),
        make_batch(0, producer_id=8, timestamp=1000, transactional=True),
    )
    assert list(through_a_file(state, now_ms=999 + DAY_MS).entries) == [7, 8]
    assert list(through_a_file(state, now_ms=1000 + DAY_MS).entries) == [8]
