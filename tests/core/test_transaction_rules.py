"""Responses of a transaction coordinator, as tables.   Source: KIP-98, KIP-360, KIP-588, KIP-890;
TransactionCoordinator, TransactionMetadata.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftsim.core.decision import Refusal
from kraftsim.transactions.rules_coordinator import (
    FENCING_EPOCH,
    LAST_GIVEN_EPOCH,
    MUST_ABORT,
    NEEDS_PRODUCER_ID,
    Already,
    EndTxnInput,
    MustAbort,
    NeedsProducerId,
    TransactionRules,
    TransactionRulesSince40,
    TransactionRulesSince41,
    TransactionRulesSince43,
)
from kraftsim.transactions.rules_state import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ENTERED_FROM,
    NO_TIME,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TransactionEntry,
    TransactionFacts,
    TransactionShard,
    TransactionState,
    facts_record,
    read_facts,
    tombstone,
)
from protocol.coordinator.registry import CoordinatorTopic, parse_record
from protocol.coordinator.transactions import TransactionLogValue
from protocol.errors import ErrorCode
from protocol.records.batches import NO_PRODUCER_ID, RecordBatch, build_batch
from protocol.records.record import Record

NOW = 1_700_000_000_000
PID, OTHER, FRESH = 1000, 7, 2000
RULES = TransactionRules()
T0, T1 = ("t", 0), ("t", 1)


def entry(state: TransactionState = EMPTY, epoch: int = 5, **changes: object) -> TransactionEntry:
    """An id in a state, with partitions and a start time if the state has them."""
    facts = TransactionFacts(
        producer_id=PID,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=state,
        last_update_ms=NOW - 1000,
    )
    if state is not EMPTY:
        facts = replace(facts, start_ms=NOW - 5000)
    if state in (ONGOING, *PREPARED):
        facts = replace(facts, partitions=(T0,))
    # arg-type: keyword arguments of several types
    return TransactionEntry("x", replace(facts, **changes))  # type: ignore[arg-type]


def spelt(outcome: object) -> object:
    """The table notation of an outcome: the error of a rejection, (state, id, epoch) of a
    transition.
    """
    if isinstance(outcome, Refusal):
        return outcome.error
    if isinstance(outcome, TransactionFacts):
        return outcome.state, outcome.producer_id, outcome.producer_epoch
    return outcome


BUSY, FENCED, OTHERS = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
INVALID = ErrorCode.INVALID_TXN_STATE
LAST = LAST_GIVEN_EPOCH


@pytest.mark.parametrize(
    ("known", "expected", "fresh", "outcome"),
    [
        (entry(EMPTY, epoch=-1), None, None, (EMPTY, PID, 0)),
        (entry(EMPTY, epoch=-1), (OTHER, 3), None, (EMPTY, PID, 0)),
        (entry(EMPTY), None, None, (EMPTY, PID, 6)),
        (entry(COMPLETE_COMMIT), None, None, (EMPTY, PID, 6)),
        (entry(COMPLETE_ABORT), None, None, (EMPTY, PID, 6)),
        (entry(EMPTY), (PID, 5), None, (EMPTY, PID, 6)),
        (entry(EMPTY, last_producer_epoch=4), (PID, 4), None, (EMPTY, PID, 5)),
        (entry(EMPTY, last_producer_epoch=-1), (PID, 4), None, FENCED),
        (entry(EMPTY), (PID, 6), None, FENCED),
        (entry(EMPTY), (OTHER, 5), None, FENCED),
        (entry(PREPARE_COMMIT), None, None, BUSY),
        (entry(PREPARE_ABORT), (OTHER, 5), None, BUSY),
        (entry(ONGOING), None, None, MUST_ABORT),
        (entry(ONGOING), (PID, 9), None, MUST_ABORT),
        (entry(ONGOING), (OTHER, 5), None, FENCED),
        (entry(EMPTY, epoch=LAST), None, None, NEEDS_PRODUCER_ID),
        (entry(EMPTY, epoch=LAST), None, FRESH, (EMPTY, FRESH, 0)),
        (entry(COMPLETE_ABORT, epoch=FENCING_EPOCH), None, FRESH, (EMPTY, FRESH, 0)),
        (entry(EMPTY, epoch=LAST), (PID, LAST), FRESH, (EMPTY, FRESH, 0)),
        (entry(EMPTY, epoch=LAST), (PID, 3), None, ErrorCode.UNKNOWN_SERVER_ERROR),
        (
            entry(EMPTY, epoch=LAST, last_producer_epoch=LAST - 1),
            (PID, LAST - 1),
            None,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        (
            entry(EMPTY, epoch=0, previous_producer_id=OTHER, last_producer_epoch=LAST),
            (OTHER, LAST),
            None,
            (EMPTY, PID, 0),
        ),
        (
            entry(EMPTY, epoch=0, previous_producer_id=OTHER, last_producer_epoch=3),
            (OTHER, 3),
            None,
            FENCED,
        ),
    ],
)
def test_init_producer_id_returns_the_next_epoch_or_an_error(
    known: TransactionEntry,
    expected: tuple[int, int] | None,
    fresh: int | None,
    outcome: tuple[TransactionState, int, int] | ErrorCode | MustAbort | NeedsProducerId,
) -> None:
    before = known.facts
    assert spelt(RULES.decide_init(known, expected, 30_000, NOW, fresh)) == outcome
    assert known.facts is before, "a decision changes nothing"


@pytest.mark.parametrize("expected", [None, (PID, 5)])
def test_initialised_id_has_nothing_of_its_last_transaction(
    expected: tuple[int, int] | None,
) -> None:
    facts = RULES.decide_init(entry(COMPLETE_COMMIT), expected, 30_000, NOW)
    assert isinstance(facts, TransactionFacts)
    assert (facts.partitions, facts.start_ms, facts.timeout_ms, facts.last_update_ms) == (
        (),
        NO_TIME,
        30_000,
        NOW,
    )
    assert facts.last_producer_epoch == (-1 if expected is None else 5), (
        "only a producer that sent its epoch may retry with the previous one"
    )


def test_requests_during_a_pending_change_are_rejected() -> None:
    busy = entry(EMPTY)
    busy.begin(replace(busy.facts, state=EMPTY))
    asked = EndTxnInput(producer_id=PID, producer_epoch=5, is_commit=True, transaction_version=0)
    assert spelt(RULES.decide_init(busy, None, 1, NOW)) is BUSY
    assert spelt(RULES.decide_add(busy, (PID, 5), [T0], 0, NOW)) is BUSY
    assert spelt(RULES.decide_end(busy, asked, NOW)) is BUSY
    assert spelt(RULES.decide_end(busy, replace(asked, transaction_version=2), NOW)) is BUSY
    assert RULES.verify(busy, (PID, 5), T0, absent=INVALID) is INVALID, "verification does not wait"


@pytest.mark.parametrize(
    ("state", "producer", "partitions", "outcome"),
    [
        *((state, (PID, 5), [T0, T1, T1], (ONGOING, PID, 5)) for state in (*AT_REST, ONGOING)),
        (ONGOING, (PID, 5), [T0], Already(PID, 5)),
        (ONGOING, (PID, 5), [], Already(PID, 5)),
        (EMPTY, (PID, 5), [], (ONGOING, PID, 5)),
        *((state, (PID, 5), [T0], BUSY) for state in PREPARED),
        (EMPTY, (PID, 4), [T0], FENCED),
        (EMPTY, (PID, 6), [T0], FENCED),
        (ONGOING, (OTHER, 5), [T0], OTHERS),
        (PREPARE_COMMIT, (OTHER, 5), [T0], OTHERS),
        (PREPARE_COMMIT, (PID, 4), [T0], FENCED),
    ],
)
def test_current_producer_adds_partitions_to_its_transaction(
    state: TransactionState,
    producer: tuple[int, int],
    partitions: list[tuple[str, int]],
    outcome: tuple[TransactionState, int, int] | Already | ErrorCode,
) -> None:
    known = entry(state)
    found = RULES.decide_add(known, producer, partitions, 0, NOW)
    assert spelt(found) == outcome
    if isinstance(found, TransactionFacts) and partitions:
        assert found.partitions == (T0, T1), "each once, in the order of their addition"
        assert found.start_ms == (NOW - 5000 if state is ONGOING else NOW)


@pytest.mark.parametrize("producer", [(PID, 4), (PID, 6), (OTHER, 5)])
def test_since_4_0_pending_completion_is_reported_before_epoch_errors(
    producer: tuple[int, int],
) -> None:
    """KAFKA-18575: the producer may know its next epoch while the completion that returned it is
    pending.
    """
    assert (
        spelt(TransactionRulesSince40().decide_add(entry(PREPARE_COMMIT), producer, [T0], 2, NOW))
        is BUSY
    )
    assert spelt(RULES.decide_add(entry(PREPARE_COMMIT), producer, [T0], 2, NOW)) in (
        FENCED,
        OTHERS,
    )


def test_since_4_0_an_exhausted_id_is_fenced_once_the_next_transaction_begins() -> None:
    """Verified with Apache Kafka 4.4.0, after 32,766 epochs."""
    known = entry(COMPLETE_COMMIT, epoch=0, previous_producer_id=OTHER, last_producer_epoch=LAST)
    begun = TransactionRulesSince40().decide_add(known, (PID, 0), [T0], 2, NOW)
    assert isinstance(begun, TransactionFacts)
    known.take(begun)
    assert spelt(TransactionRulesSince40().decide_init(known, (OTHER, LAST), 1, NOW)) is FENCED


def test_since_4_0_initialisation_clears_the_start_of_the_last_transaction() -> None:
    before = entry(COMPLETE_COMMIT)
    facts = RULES.decide_init(before, None, 1, NOW)
    assert isinstance(facts, TransactionFacts) and facts.start_ms == NO_TIME, "as in the record"
    held = [
        rules.held(before.facts, facts).start_ms
        for rules in (RULES, TransactionRulesSince40(), TransactionRulesSince41())
    ]
    assert held == [NOW - 5000, NOW - 5000, NO_TIME]


ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(
    ("state", "producer", "partition", "error"),
    [
        (ONGOING, (PID, 5), T0, ErrorCode.NONE),
        (ONGOING, (PID, 5), T1, ABORTABLE),
        (EMPTY, (PID, 5), T0, ABORTABLE),
        (COMPLETE_COMMIT, (PID, 5), T0, ABORTABLE),
        (PREPARE_COMMIT, (PID, 5), T0, BUSY),
        (PREPARE_ABORT, (PID, 5), T0, BUSY),
        (ONGOING, (PID, 4), T0, FENCED),
        (ONGOING, (PID, 6), T0, FENCED),
        (ONGOING, (OTHER, 5), T0, OTHERS),
    ],
)
def test_partition_is_verified_against_the_transaction(
    state: TransactionState, producer: tuple[int, int], partition: tuple[str, int], error: ErrorCode
) -> None:
    assert RULES.verify(entry(state), producer, partition, absent=ABORTABLE) is error


def ended(
    state: TransactionState,
    epoch_asked: int,
    *,
    commits: bool,
    version: int,
    producer_id: int = PID,
) -> object:
    """The outcome of an EndTxn."""
    asked = EndTxnInput(
        producer_id=producer_id,
        producer_epoch=epoch_asked,
        is_commit=commits,
        transaction_version=version,
    )
    return spelt(RULES.decide_end(entry(state), asked, NOW))


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (ONGOING, (PREPARE_COMMIT, PID, 5), (PREPARE_ABORT, PID, 5)),
        (PREPARE_COMMIT, BUSY, BUSY),
        (PREPARE_ABORT, BUSY, BUSY),
        (COMPLETE_COMMIT, Already(PID, 5), INVALID),
        (COMPLETE_ABORT, INVALID, Already(PID, 5)),
        (EMPTY, INVALID, INVALID),
    ],
)
def test_end_txn_by_state(
    state: TransactionState,
    commit: tuple[TransactionState, int, int] | ErrorCode | Already,
    abort: tuple[TransactionState, int, int] | ErrorCode | Already,
) -> None:
    """Up to transaction.version 1; CONCURRENT_TRANSACTIONS in prepared states, whichever result is
    requested, was verified with Apache Kafka 3.9.1.
    """
    assert ended(state, 5, commits=True, version=0) == commit
    assert ended(state, 5, commits=False, version=0) == abort
    for other in (4, 6):
        assert ended(state, other, commits=True, version=0) is FENCED
    assert ended(state, 5, commits=True, version=0, producer_id=OTHER) is OTHERS


@pytest.mark.parametrize(
    ("state", "repeated_commit", "commit", "repeated_abort", "abort"),
    [
        (ONGOING, FENCED, (PREPARE_COMMIT, PID, 6), FENCED, (PREPARE_ABORT, PID, 6)),
        (PREPARE_COMMIT, BUSY, BUSY, BUSY, BUSY),
        (PREPARE_ABORT, BUSY, BUSY, BUSY, BUSY),
        (COMPLETE_COMMIT, Already(PID, 5), INVALID, INVALID, (PREPARE_ABORT, PID, 6)),
        (COMPLETE_ABORT, INVALID, INVALID, Already(PID, 5), (PREPARE_ABORT, PID, 6)),
        (EMPTY, FENCED, INVALID, FENCED, (PREPARE_ABORT, PID, 6)),
    ],
)
def test_end_txn_with_epoch_bump_by_state(
    state: TransactionState,
    repeated_commit: ErrorCode | Already,
    commit: tuple[TransactionState, int, int] | ErrorCode,
    repeated_abort: ErrorCode | Already,
    abort: tuple[TransactionState, int, int] | ErrorCode,
) -> None:
    """With transaction.version 2: the previous epoch is a retry, the current one a new request."""
    assert ended(state, 4, commits=True, version=2) == repeated_commit
    assert ended(state, 5, commits=True, version=2) == commit
    assert ended(state, 4, commits=False, version=2) == repeated_abort
    assert ended(state, 5, commits=False, version=2) == abort
    for other in (3, 6):
        assert ended(state, other, commits=True, version=2) is (
            BUSY if state in PREPARED else FENCED
        )


def test_producer_gets_a_new_id_after_the_last_epoch() -> None:
    known = entry(ONGOING, epoch=LAST)
    asked = EndTxnInput(producer_id=PID, producer_epoch=LAST, is_commit=True, transaction_version=2)
    assert RULES.decide_end(known, asked, NOW) is NEEDS_PRODUCER_ID
    decided = RULES.decide_end(known, asked, NOW, FRESH)
    assert isinstance(decided, TransactionFacts)
    assert (decided.producer_id, decided.producer_epoch, decided.next_producer_id) == (
        PID,
        FENCING_EPOCH,
        FRESH,
    )
    known.take(decided)
    over = RULES.completed(known, NOW)
    assert (
        over.producer_id,
        over.producer_epoch,
        over.previous_producer_id,
        over.next_producer_id,
    ) == (FRESH, 0, PID, -1)
    known.take(over)
    assert RULES.decide_end(known, asked, NOW) == Already(FRESH, 0), "a retry returns the new id"


@pytest.mark.parametrize(("version", "again"), [(0, 6), (1, 6), (2, 6)])
def test_forced_abort_fences_by_one_epoch(version: int, again: int) -> None:
    known = entry(ONGOING)
    facts = RULES.decide_forced_abort(known, version, NOW)
    assert spelt(facts) == (PREPARE_ABORT, PID, 6)
    assert isinstance(facts, TransactionFacts)
    known.begin(facts)
    known.give_up()
    RULES.on_forced_abort_failed(known)
    assert spelt(RULES.decide_forced_abort(known, version, NOW)) == (PREPARE_ABORT, PID, again), (
        "a failed write consumes no epoch (KAFKA-9666)"
    )


@pytest.mark.parametrize(("version", "error"), [(0, FENCED), (1, FENCED), (2, INVALID)])
def test_commit_after_a_forced_abort(version: int, error: ErrorCode) -> None:
    """With version 2 the epoch is one behind, as that of a retry, whose result is the other one."""
    known = entry(ONGOING)
    prepared = RULES.decide_forced_abort(known, version, NOW)
    assert isinstance(prepared, TransactionFacts)
    asked = EndTxnInput(
        producer_id=PID, producer_epoch=5, is_commit=True, transaction_version=version
    )
    known.take(prepared)
    known.marked([T0])
    known.take(RULES.completed(known, NOW))
    assert known.facts.state is COMPLETE_ABORT
    assert spelt(RULES.decide_end(known, asked, NOW)) is error


def test_exhausted_epoch_can_still_be_fenced() -> None:
    assert spelt(RULES.decide_forced_abort(entry(ONGOING, epoch=LAST), 0, NOW)) == (
        PREPARE_ABORT,
        PID,
        FENCING_EPOCH,
    )
    assert RULES.decide_forced_abort(entry(ONGOING, epoch=LAST), 2, NOW) is NEEDS_PRODUCER_ID
    facts = RULES.decide_forced_abort(entry(ONGOING, epoch=LAST), 2, NOW, FRESH)
    assert isinstance(facts, TransactionFacts) and facts.next_producer_id == FRESH


def test_timeout_in_the_last_epoch_leaves_the_reserved_one_before_4_3() -> None:
    """KAFKA-20090: the producer's own abort is a retry then, and returns that epoch, whose
    transactions cannot end. Verified with 4.1.2, 4.2.2 and 4.3.1.
    """
    known = entry(ONGOING, epoch=LAST)
    facts = TransactionRulesSince41().decide_forced_abort(known, 2, NOW)
    assert spelt(facts) == (PREPARE_ABORT, PID, FENCING_EPOCH)
    assert isinstance(facts, TransactionFacts) and facts.next_producer_id == NO_PRODUCER_ID
    assert TransactionRulesSince43().decide_forced_abort(known, 2, NOW) is NEEDS_PRODUCER_ID


@pytest.mark.parametrize(
    ("rules", "version", "fresh", "outcome"),
    [
        (RULES, 0, None, ErrorCode.UNKNOWN_SERVER_ERROR),
        (TransactionRulesSince40(), 0, None, (PREPARE_ABORT, PID, FENCING_EPOCH)),
        (TransactionRulesSince41(), 2, None, ErrorCode.UNKNOWN_SERVER_ERROR),
        (TransactionRulesSince43(), 2, None, NEEDS_PRODUCER_ID),
        (TransactionRulesSince43(), 2, FRESH, (PREPARE_ABORT, PID, FENCING_EPOCH)),
    ],
)
def test_fencing_epoch_cannot_be_bumped_again(
    rules: TransactionRules | TransactionRulesSince40,
    version: int,
    fresh: int | None,
    outcome: ErrorCode | tuple[TransactionState, int, int] | NeedsProducerId,
) -> None:
    """Only a record written by another implementation has it: 3.9.1 rejects, 4.4.0 aborts in the
    same epoch (both verified). From 4.0 to 4.2 a timeout produces it, too (KAFKA-20090; verified
    with 4.1.2 and 4.2.2).
    """
    known = entry(ONGOING, epoch=FENCING_EPOCH)
    assert spelt(rules.decide_forced_abort(known, version, NOW, fresh)) == outcome


@pytest.mark.parametrize(
    ("is_commit", "fresh", "outcome"),
    [
        (True, FRESH, ErrorCode.UNKNOWN_SERVER_ERROR),
        (False, None, NEEDS_PRODUCER_ID),
        (False, FRESH, (PREPARE_ABORT, PID, FENCING_EPOCH)),
    ],
)
def test_only_an_abort_is_possible_in_the_fencing_epoch(
    is_commit: bool,
    fresh: int | None,
    outcome: ErrorCode | NeedsProducerId | tuple[TransactionState, int, int],
) -> None:
    """With transaction.version 2; verified with 4.4.0."""
    asked = EndTxnInput(
        producer_id=PID, producer_epoch=FENCING_EPOCH, is_commit=is_commit, transaction_version=2
    )
    assert (
        spelt(RULES.decide_end(entry(ONGOING, epoch=FENCING_EPOCH), asked, NOW, fresh)) == outcome
    )


@pytest.mark.parametrize(
    ("state", "over"), [(PREPARE_COMMIT, COMPLETE_COMMIT), (PREPARE_ABORT, COMPLETE_ABORT)]
)
def test_completed_transaction_has_no_partitions_and_keeps_its_epoch(
    state: TransactionState, over: TransactionState
) -> None:
    facts = RULES.completed(entry(state), NOW)
    assert (spelt(facts), facts.partitions, facts.start_ms) == ((over, PID, 5), (), NOW - 5000)


def test_only_the_transitions_of_the_table_are_possible() -> None:
    for state in TransactionState:
        for current in TransactionState:
            known = TransactionEntry("x", replace(entry().facts, state=current))
            if current in ENTERED_FROM[state]:
                known.begin(replace(known.facts, state=state))
            else:
                with pytest.raises(AssertionError):
                    known.begin(replace(known.facts, state=state))


# Records
# --------------------------------------------------------------------------------------------------

PARTITIONS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "ü"]), st.integers(0, 9)), unique=True, max_size=6
).map(lambda found: tuple(sorted(found)))
FACTS = st.builds(
    TransactionFacts,
    producer_id=st.integers(0, 2**40),
    producer_epoch=st.integers(0, FENCING_EPOCH),
    timeout_ms=st.integers(1, 900_000),
    state=st.sampled_from(
        [ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]
    ),
    partitions=PARTITIONS,
    start_ms=st.integers(-1, 2**45),
    last_update_ms=st.integers(0, 2**45),
)


@given(facts=FACTS, version=st.sampled_from([0, 1]))
def test_state_round_trips_through_its_record(facts: TransactionFacts, version: int) -> None:
    key, value = facts_record("x", facts, version)
    parsed = parse_record(CoordinatorTopic.TRANSACTION_STATE, key, value)
    assert parsed is not None and isinstance(parsed[1], TransactionLogValue)
    assert read_facts(parsed[1]) == facts


def test_record_of_version_0_is_byte_identical_to_kafkas() -> None:
    """Dumped from Apache Kafka 3.9.1: 37 bytes without partitions, which are null in Empty."""
    facts = replace(entry(EMPTY).facts, producer_epoch=0)
    key, value = facts_record("x", facts, 0)
    assert value is not None
    assert (key.hex(), len(value), value[:2].hex(), value[17:21].hex()) == (
        "0000000178",
        37,
        "0000",
        "ffffffff",
    )


def test_last_record_of_an_id_wins_and_a_tombstone_removes_it() -> None:
    shard = TransactionShard()
    rows = [
        facts_record("x", entry(ONGOING).facts, 0),
        facts_record("y", entry(EMPTY).facts, 1),
        facts_record("x", entry(PREPARE_COMMIT).facts, 1),
        tombstone("y"),
        (b"\x00\x63", b"of an unknown type"),
    ]
    shard.replay(
        RecordBatch(
            build_batch([Record(timestamp=NOW, key=key, value=value) for key, value in rows])
        )
    )
    assert {name: known.facts.state for name, known in shard.entries.items()} == {
        "x": PREPARE_COMMIT
    }
    assert [known.transactional_id for known in shard.prepared()] == ["x"]


def test_timed_out_transactions_and_expired_ids_are_due() -> None:
    shard = TransactionShard()
    for name, facts in (
        ("late", replace(entry(ONGOING).facts, timeout_ms=4999)),
        ("in time", replace(entry(ONGOING).facts, timeout_ms=5000)),
        ("old", entry(COMPLETE_ABORT).facts),
        ("decided", entry(PREPARE_ABORT).facts),
    ):
        shard.learn(name, facts)
    assert [known.transactional_id for known in shard.timed_out(NOW)] == ["late"]
    assert [[known.transactional_id for known in group] for group in shard.expired(NOW, 1000)] == [
        ["old"]
    ]
    assert shard.expired(NOW, 1001) == []
    shard.entries["late"].begin(replace(entry(ONGOING).facts, state=PREPARE_ABORT))
    assert shard.timed_out(NOW) == [], "a change is already pending"


def test_ids_expire_in_bounded_batches() -> None:
    shard = TransactionShard()
    for index in range(1000):
        shard.learn(f"{index:0100}", entry(EMPTY).facts)
    groups = shard.expired(NOW, 0)
    assert sum(map(len, groups)) == 1000 and len(groups) > 5
    rows = [tombstone(known.transactional_id) for known in max(groups, key=len)]
    batch = build_batch([Record(timestamp=NOW, key=key, value=value) for key, value in rows])
    assert 10_000 < len(batch) < 20_000


def test_another_coordinator_returns_the_announced_new_id() -> None:
    """The record of the decision contains the next id (KIP-890): a coordinator that loads it can
    complete the transaction with it.
    """
    known = entry(ONGOING, epoch=LAST)
    asked = EndTxnInput(
        producer_id=PID, producer_epoch=LAST, is_commit=False, transaction_version=2
    )
    decided = RULES.decide_end(known, asked, NOW, FRESH)
    assert isinstance(decided, TransactionFacts)
    key, value = facts_record("x", decided, 1)
    shard = TransactionShard()
    shard.replay(RecordBatch(build_batch([Record(timestamp=NOW, key=key, value=value)])))
    over = RULES.completed(shard.entries["x"], NOW)
    assert (over.state, over.producer_id, over.producer_epoch, over.previous_producer_id) == (
        COMPLETE_ABORT,
        FRESH,
        0,
        PID,
    )
