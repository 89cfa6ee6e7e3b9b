"""How producer state validates a batch: one row per case.

Source: KIP-98, KIP-360, ProducerAppendInfo.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftsim.core.decision import Refusal
from kraftsim.producer_state.rules_entries import (
    APPEND,
    DAY_MS,
    CheckResult,
    Duplicate,
    ProducerAppend,
    ProducerStatePolicy,
    UnknownProducer,
)
from kraftsim.producer_state.rules_manager import ProducerStateManager
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch
from tests.core.batches import make_batch, make_marker
from tools.claims.recording import Figures

LAST = 2**31 - 1
DEFAULT_POLICY = ProducerStatePolicy()
OUT_OF_ORDER = Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
OLD_EPOCH = Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
UNKNOWN = Refusal(ErrorCode.UNKNOWN_PRODUCER_ID)
WRONG_TRANSACTION = Refusal(ErrorCode.INVALID_TXN_STATE)


def manager(
    *batches: RecordBatch, policy: ProducerStatePolicy = DEFAULT_POLICY
) -> ProducerStateManager:
    """Return a manager after these batches, one after the other from offset 100 on."""
    state = ProducerStateManager(policy)
    offset = 100
    for taken in batches:
        state.apply(taken, offset)
        offset += taken.last_offset_delta + 1
    return state


def duplicate(first_offset: int, last_offset: int) -> Duplicate:
    return Duplicate(first_offset=first_offset, last_offset=last_offset, log_append_time_ms=1000)


@pytest.mark.parametrize(
    ("first", "last", "verdict"),
    [
        (10, 14, APPEND),
        (0, 4, duplicate(100, 104)),
        (5, 9, duplicate(105, 109)),
        (0, 9, OUT_OF_ORDER),  # two old batches in one: a duplicate of neither
        (5, 8, OUT_OF_ORDER),  # a part of an old batch
        (11, 12, OUT_OF_ORDER),  # a gap
        (8, 12, OUT_OF_ORDER),  # an overlap
    ],
)
def test_sequence_decides_the_result(first: int, last: int, verdict: CheckResult) -> None:
    """A producer's next batch starts right after its last one; an exact duplicate is acknowledged
    with its first offset.
    """
    assert manager(make_batch(0, 4), make_batch(5, 9)).check(make_batch(first, last)) == verdict


@pytest.mark.parametrize(
    ("before", "asked", "epoch", "first", "verdict"),
    [
        (None, (0, 0, False), 0, 0, APPEND),
        (None, (0, 2, False), 0, 2, APPEND),  # an unknown producer may begin anywhere
        (None, (0, 2, True), 0, 2, OUT_OF_ORDER),  # one with an epoch per transaction begins at 0
        (None, (0, 0, True), 0, 0, APPEND),
        ((0, 4), (3, 5, False), 3, 5, APPEND),
        ((0, 4), (3, 5, True), 3, 5, APPEND),  # it is known, so its expected sequence is, too
        (
            (0, 4),
            (3, 3, False),
            3,
            5,
            OUT_OF_ORDER,
        ),  # in sequence, but an earlier batch still waits
        ((0, 4), (4, 0, True), 4, 0, APPEND),
        ((0, 4), (4, 1, False), 4, 2, OUT_OF_ORDER),
        ((0, 4), (3, 5, False), 2, 5, OLD_EPOCH),  # a past epoch is fenced in any case
    ],
)
def test_no_batch_overtakes_one_awaiting_verification(
    before: tuple[int, int] | None,
    asked: tuple[int, int, bool],
    epoch: int,
    first: int,
    verdict: ProducerAppend | Refusal,
) -> None:
    """The lowest sequence of those being verified comes first (KAFKA-14920)."""
    state = manager(*(() if before is None else (make_batch(*before, epoch=3),)))
    producer_epoch, base_sequence, adds = asked
    guard = state.begin_verification(7, producer_epoch, base_sequence, 0, adds=adds)
    assert isinstance(guard, int)
    assert state.check(make_batch(first, first, epoch=epoch, transactional=True), guard) == verdict


@pytest.mark.parametrize(
    ("epoch", "first", "verdict"),
    [
        (3, 2, APPEND),
        (3, 0, duplicate(100, 101)),
        (2, 0, OLD_EPOCH),  # also a duplicate of nothing
        (2, 2, OLD_EPOCH),
        (4, 0, APPEND),
        (4, 2, OUT_OF_ORDER),  # a new epoch begins at 0
    ],
)
def test_epoch_is_checked_with_the_sequence(epoch: int, first: int, verdict: CheckResult) -> None:
    """An older epoch is fenced, a newer one starts over."""
    last = first + 1 if verdict == duplicate(100, 101) else first
    assert manager(make_batch(0, 1, epoch=3)).check(make_batch(first, last, epoch=epoch)) == verdict


def test_five_batches_are_remembered_and_older_ones_are_out_of_order(figures: Figures) -> None:
    """A duplicate of an older batch is out of order.   Source: NUM_BATCHES_TO_RETAIN."""
    state = manager(*(make_batch(sequence) for sequence in range(6)))
    verdicts = [state.check(make_batch(sequence)) for sequence in range(7)]
    assert verdicts == [
        OUT_OF_ORDER,
        *(duplicate(100 + sequence, 100 + sequence) for sequence in range(1, 6)),
        APPEND,
    ]
    assert isinstance(verdicts[0], Refusal)
    figures(
        remembered=sum(isinstance(each, Duplicate) for each in verdicts),
        older=int(verdicts[0].error),
    )


def test_new_epoch_discards_the_batches_of_the_old_one() -> None:
    """A retry of a batch from before the bump is fenced."""
    state = manager(make_batch(0), make_batch(0, epoch=1))
    assert state.check(make_batch(0, epoch=0)) == OLD_EPOCH
    assert state.check(make_batch(0, epoch=1)) == duplicate(101, 101)


@pytest.mark.parametrize(
    ("taken", "first", "last", "verdict"),
    [
        ((LAST, LAST), 0, 3, APPEND),
        ((LAST - 1, LAST), 0, 0, APPEND),
        ((LAST - 1, LAST), 1, 1, OUT_OF_ORDER),
        ((LAST - 1, 2), 3, 5, APPEND),  # the batch spans the wraparound
        ((LAST - 1, 2), LAST - 1, 2, duplicate(100, 104)),
        ((LAST - 1, 2), 0, 2, OUT_OF_ORDER),
    ],
)
def test_sequences_wrap(
    taken: tuple[int, int], first: int, last: int, verdict: CheckResult
) -> None:
    """0 follows 2^31-1, inside a batch and between batches.   Source: KAFKA-7692."""
    assert manager(make_batch(*taken)).check(make_batch(first, last)) == verdict


@pytest.mark.parametrize(
    ("policy", "verdict"),
    [
        (UnknownProducer.ACCEPTED, APPEND),
        (UnknownProducer.UNKNOWN_PRODUCER_ID, UNKNOWN),
        (UnknownProducer.OUT_OF_ORDER, OUT_OF_ORDER),
    ],
)
def test_unknown_producer_may_begin_anywhere_since_2_5(
    policy: UnknownProducer, verdict: CheckResult, figures: Figures
) -> None:
    """Error 59 until 2.4, error 45 in 0.11; a batch that begins at 0 was always accepted.

    Source: KIP-360.
    """
    state = ProducerStateManager(ProducerStatePolicy(unknown_producer=policy))
    assert state.check(make_batch(7)) == verdict
    assert state.check(make_batch(0)) == APPEND
    figures(
        **{
            f"unknown_{policy.name.lower()}": int(verdict.error)
            if isinstance(verdict, Refusal)
            else 0,
        },
    )


def test_new_log_begins_with_sequence_0_after_4_4() -> None:
    """A later sequence may have overtaken the first one. A log that had records accepts any, as it
    may have forgotten the producer.   Source: KAFKA-15591.
    """
    for policy, verdict in (
        (UnknownProducer.ACCEPTED, APPEND),
        (UnknownProducer.OUT_OF_ORDER_IN_NEW_LOGS, OUT_OF_ORDER),
    ):
        state = ProducerStateManager(ProducerStatePolicy(unknown_producer=policy))
        state.is_new_log = True
        assert state.check(make_batch(7)) == verdict
        assert state.check(make_batch(0)) == APPEND
        state.is_new_log = False
        assert state.check(make_batch(7)) == APPEND


@pytest.mark.parametrize(
    ("policy", "verdict"),
    [(UnknownProducer.ACCEPTED, OUT_OF_ORDER), (UnknownProducer.UNKNOWN_PRODUCER_ID, UNKNOWN)],
)
def test_epoch_with_only_a_marker_begins_at_zero(
    policy: UnknownProducer, verdict: CheckResult
) -> None:
    """KAFKA-7298 returned error 59 here until 2.4."""
    state = manager(make_marker(), policy=ProducerStatePolicy(unknown_producer=policy))
    assert state.check(make_batch(3)) == verdict
    assert state.check(make_batch(0)) == APPEND


def test_batch_without_producer_id_is_never_checked() -> None:
    """Producers without idempotence carry -1."""
    state = manager(make_batch(-1, producer_id=-1, epoch=-1))
    assert state.check(make_batch(-1, producer_id=-1, epoch=-1)) == APPEND
    assert state.entries == {}


def test_transactional_data_requires_the_partition_in_the_transaction_since_3_6() -> None:
    """KIP-890: no coordinator verifies it here.   Before: the leader appended it unchecked."""
    transactional = make_batch(0, transactional=True)
    assert manager().check(transactional) == WRONG_TRANSACTION
    trusting = ProducerStatePolicy(verifies_transactions=False)
    assert manager(policy=trusting).check(transactional) == APPEND


@pytest.mark.parametrize(
    ("checks_epochs_first", "verdict"), [(True, OLD_EPOCH), (False, WRONG_TRANSACTION)]
)
def test_verification_that_a_timeout_outdates_reports_the_epoch_since_4_0(
    checks_epochs_first: bool, verdict: Refusal
) -> None:
    """KAFKA-19690: while the coordinator verified the batch, the transaction timed out, and its
    marker has a later epoch. Verified with 3.9.1, 4.0.0, 4.0.2, 4.1.0, 4.1.1 and 4.4.0.
    """
    policy = ProducerStatePolicy(checks_epochs_first=checks_epochs_first)
    state = ProducerStateManager(policy)
    guard = state.begin_verification(7, 3, 0, 0)
    assert isinstance(guard, int)
    state.apply(make_marker(epoch=4), 100)
    batch = make_batch(0, epoch=3, transactional=True)
    assert state.check(batch, guard) == verdict
    assert state.check_coordinated(batch, guard) == verdict


def test_non_transactional_data_is_rejected_during_a_transaction() -> None:
    """And readers of committed data stop where the oldest open transaction begins, until its marker
    is on all in-sync replicas.
    """
    state = manager(make_batch(0, 1, transactional=True), make_batch(2, transactional=True))
    assert state.first_unstable_offset == 100
    assert state.check(make_batch(3)) == WRONG_TRANSACTION
    assert state.check(make_batch(3, transactional=True)) == APPEND
    state.apply(make_marker(), 103)
    assert state.first_unstable_offset == 100, "the marker is not replicated"
    state.on_high_watermark(103)
    assert state.first_unstable_offset == 100
    state.on_high_watermark(104)
    assert state.first_unstable_offset is None
    assert state.check(make_batch(3)) == APPEND


@pytest.mark.parametrize(
    ("producer_id", "epoch", "coordinator_epoch", "refusal"),
    [
        (7, 2, 5, None),
        (7, 3, 6, None),
        (7, 1, 5, OLD_EPOCH),
        (7, 1, 4, OLD_EPOCH),  # the producer is checked first
        (7, 2, 4, Refusal(ErrorCode.TRANSACTION_COORDINATOR_FENCED)),
        (7, 3, 4, Refusal(ErrorCode.TRANSACTION_COORDINATOR_FENCED)),
        (8, 0, 0, None),  # unknown here
    ],
)
def test_marker_needs_a_current_epoch_and_coordinator(
    producer_id: int, epoch: int, coordinator_epoch: int, refusal: Refusal | None
) -> None:
    """ProducerAppendInfo.checkCoordinatorEpoch: a deposed coordinator cannot end a transaction."""
    state = manager(
        make_batch(0, epoch=2, transactional=True), make_marker(epoch=2, coordinator_epoch=5)
    )
    assert state.check_marker(producer_id, epoch, coordinator_epoch) == refusal


def test_replicated_marker_counts_whatever_its_coordinator_epoch() -> None:
    """Origin REPLICATION: what the leader appended is in the log, in this order."""
    state = manager(
        make_marker(epoch=2, coordinator_epoch=5), make_marker(epoch=1, coordinator_epoch=4)
    )
    assert (state.entries[7].producer_epoch, state.entries[7].coordinator_epoch) == (1, 4)


def test_validation_changes_nothing() -> None:
    """A failed write must not make the retry look like a duplicate.   Source: KAFKA-6683."""
    state = manager()
    assert state.check(make_batch(0, 4)) == APPEND
    assert state.check(make_batch(0, 4)) == APPEND
    assert state.entries == {}


def test_replayed_log_gives_the_same_results() -> None:
    """Recovery replays without validation, also what is out of order or of an older epoch (origin
    REPLICATION).
    """
    state = ProducerStateManager(ProducerStatePolicy())
    for replayed in (
        make_batch(4, 6, base_offset=30, epoch=2),
        make_batch(0, 1, base_offset=33, epoch=1),
        make_batch(9, base_offset=40, epoch=1),
    ):
        state.replay(replayed)
    assert state.check(make_batch(9, epoch=1)) == duplicate(40, 40)
    assert state.check(make_batch(0, 1, epoch=1)) == duplicate(33, 34)
    assert state.check(make_batch(10, epoch=1)) == APPEND


def test_producer_expires_a_day_after_its_last_batch(figures: Figures) -> None:
    """By the batch's own timestamp; an open transaction keeps its producer.   Source: KIP-854."""
    state = manager(
        make_batch(0, timestamp=1000),
        make_batch(0, producer_id=8, timestamp=2000, transactional=True),
        make_batch(0, producer_id=9, timestamp=2000),
    )
    assert state.expire(1000 + DAY_MS - 1) == []
    assert state.expire(1000 + DAY_MS) == [7]
    assert state.expire(2000 + DAY_MS) == [9]
    assert list(state.entries) == [8]
    figures(forgotten_after_ms=DAY_MS, known_with_an_open_transaction=list(state.entries) == [8])


def test_append_time_counts_with_log_append_time() -> None:
    """A topic with LogAppendTime stamps the batch itself."""
    state = ProducerStateManager(ProducerStatePolicy())
    state.apply(make_batch(0, timestamp=1), 0, append_timestamp=5000)
    assert state.check(make_batch(0)) == Duplicate(
        first_offset=0, last_offset=0, log_append_time_ms=5000
    )
    assert state.expire(4999 + DAY_MS) == []


@dataclass
class NaiveState:
    """The rule literally: search the whole log of a producer."""

    log: list[tuple[RecordBatch, int]] = field(default_factory=list)

    def check(self, batch: RecordBatch) -> CheckResult:
        mine = [(old, offset) for old, offset in self.log if old.producer_id == batch.producer_id]
        if not mine:
            return APPEND
        epoch = mine[-1][0].producer_epoch
        of_epoch = [(old, offset) for old, offset in mine if old.producer_epoch == epoch]
        if batch.producer_epoch < epoch:
            return OLD_EPOCH
        if batch.producer_epoch > epoch:
            return APPEND if batch.base_sequence == 0 else OUT_OF_ORDER
        for old, offset in of_epoch[-5:]:
            if (old.base_sequence, old.last_sequence) == (batch.base_sequence, batch.last_sequence):
                return duplicate(offset, offset + old.last_offset_delta)
        return (
            APPEND
            if batch.base_sequence == (of_epoch[-1][0].last_sequence + 1) % 2**31
            else OUT_OF_ORDER
        )


steps = st.tuples(
    st.integers(1, 2),  # producer id
    st.sampled_from([0, 0, 0, 0, 1, -1]),  # epoch, relative to the last accepted one
    st.sampled_from(
        [0, 0, 0, 0, -1, -2, -7, 1, 100]
    ),  # base sequence, relative to the expected one
    st.integers(1, 3),  # records
)


@settings(max_examples=200)
@given(st.sampled_from([0, LAST - 6]), st.lists(steps, max_size=25))
def test_state_agrees_with_a_search_of_the_whole_log(
    start: int, history: list[tuple[int, int, int, int]]
) -> None:
    """Five remembered batches give exactly the results of the whole log."""
    state, naive = ProducerStateManager(ProducerStatePolicy()), NaiveState()
    epochs, following = {1: 1, 2: 1}, {1: start, 2: start}
    offset = 0
    for producer_id, epoch_step, sequence_step, count in history:
        epoch = max(epochs[producer_id] + epoch_step, 0)
        base = (
            0
            if epoch > epochs[producer_id] and sequence_step == 0
            else (following[producer_id] + sequence_step) % 2**31
        )
        candidate = make_batch(
            base, (base + count - 1) % 2**31, producer_id=producer_id, epoch=epoch
        )
        verdict = state.check(candidate)
        assert verdict == naive.check(candidate)
        if verdict is APPEND:
            state.apply(candidate, offset)
            naive.log.append((candidate, offset))
            offset += count
            epochs[producer_id], following[producer_id] = (
                epoch,
                (candidate.last_sequence + 1) % 2**31,
            )
