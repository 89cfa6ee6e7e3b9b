"""A transaction that is kept for the next producer: both identities, in all its states, and after a
failover at every record.   Source: KIP-939.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.transactions.rules_coordinator import (
    FENCED,
    FENCING_EPOCH,
    KEEPS_NOTHING,
    LAST_GIVEN_EPOCH,
    MUST_ABORT,
    NEEDS_PRODUCER_ID,
    OTHER_PRODUCER,
    Already,
    EndTxnInput,
    Expected,
    TransactionRulesSince43,
)
from kraftsim.transactions.rules_state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ENDLESS_MS,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionEntry,
    TransactionFacts,
    TransactionShard,
    TransactionShardSince41,
    facts_record,
    read_facts,
)
from kraftsim.transactions.rules_two_phase_commit import (
    ONLY_ENDS,
    TransactionRulesOfTwoPhaseCommit,
    producer_of,
)
from protocol.coordinator.registry import CoordinatorTopic, parse_record
from protocol.coordinator.transactions import TransactionLogValue
from protocol.errors import ErrorCode

RULES = TransactionRulesOfTwoPhaseCommit()
NOW, PID, FRESH, OTHER_FRESH = 1_700_000_000_000, 1000, 2000, 3000
T0 = ("t", 0)


def ongoing(epoch: int = 7, **changes: object) -> TransactionEntry:
    """An id with an open transaction."""
    facts = TransactionFacts(
        producer_id=PID,
        producer_epoch=epoch,
        timeout_ms=ENDLESS_MS,
        state=ONGOING,
        partitions=(T0,),
        start_ms=NOW,
        last_update_ms=NOW,
        transaction_version=2,
    )
    # arg-type: the fields of the table have several types
    return TransactionEntry("id", replace(facts, **changes))  # type: ignore[arg-type]


def stored(entry: TransactionEntry, facts: object) -> TransactionEntry:
    """Store facts, and load the id again: what the next coordinator has."""
    assert isinstance(facts, TransactionFacts), facts
    entry.begin(facts)
    entry.finish(facts)
    key, value = facts_record(entry.transactional_id, facts, 1)
    parsed = parse_record(CoordinatorTopic.TRANSACTION_STATE, key, value)
    assert parsed is not None and isinstance(parsed[1], TransactionLogValue)
    loaded = read_facts(parsed[1])
    assert replace(facts, last_producer_epoch=-1) == loaded, "the record has both identities"
    return TransactionEntry(entry.transactional_id, loaded)


def kept(entry: TransactionEntry, fresh: int | None = None) -> TransactionEntry:
    return stored(entry, RULES.decide_keeping(entry, None, ENDLESS_MS, NOW, fresh))


def end(producer: Expected, *, is_commit: bool = True, version: int = 2) -> EndTxnInput:
    return EndTxnInput(
        producer_id=producer[0],
        producer_epoch=producer[1],
        is_commit=is_commit,
        transaction_version=version,
    )


def pair(entry: TransactionEntry) -> Expected:
    return entry.facts.producer_id, entry.facts.producer_epoch


def test_each_producer_gets_an_epoch_and_the_transaction_keeps_its_own(
    figures: Callable[..., None],
) -> None:
    entry = ongoing()
    for count in range(1, 4):
        entry = kept(entry)
        assert (pair(entry), producer_of(entry.facts)) == ((PID, 7), (PID, 7 + count))
        assert entry.facts.state is ONGOING
    figures(
        epoch_of_the_transaction=entry.facts.producer_epoch,
        epoch_of_the_third_producer=producer_of(entry.facts)[1],
    )


@pytest.mark.parametrize("is_commit", [True, False])
def test_kept_transaction_ends_with_its_own_markers(is_commit: bool) -> None:
    """The markers have the epoch after that of the records. The producer gets the one after its
    own, as the request may have a late copy.
    """
    entry = kept(kept(ongoing()))
    asked = end((PID, 9), is_commit=is_commit)
    entry = stored(entry, RULES.decide_end(entry, asked, NOW))
    assert (entry.facts.state, pair(entry)) == (
        PREPARE_COMMIT if is_commit else PREPARE_ABORT,
        (PID, 8),
    )
    assert RULES.identity_after(entry.facts) == (PID, 10)
    entry = stored(entry, RULES.completed(entry, NOW))
    assert (entry.facts.state, pair(entry)) == (
        COMPLETE_COMMIT if is_commit else COMPLETE_ABORT,
        (PID, 10),
    )
    assert RULES.decide_end(entry, asked, NOW) == Already(PID, 10), "a retry"
    again = RULES.decide_add(entry, (PID, 10), [T0], 2, NOW)
    entry = stored(entry, again)
    assert RULES.decide_end(entry, asked, NOW) == FENCED, "a late copy"


@pytest.mark.parametrize("producer", [(PID, 7), (PID, 8)])
def test_producers_before_are_fenced(producer: Expected) -> None:
    """Neither that of the transaction nor one that found it may do anything."""
    entry = kept(kept(ongoing()))
    assert RULES.decide_end(entry, end(producer), NOW) == FENCED
    assert RULES.decide_add(entry, producer, [("t", 1)], 2, NOW) == FENCED
    assert RULES.verify(entry, producer, T0, absent=ErrorCode.NONE) is ErrorCode.PRODUCER_FENCED
    assert RULES.decide_init(entry, producer, 1000, NOW) == FENCED
    assert RULES.decide_keeping(entry, producer, 1000, NOW) == FENCED


def test_kept_transaction_can_only_be_ended() -> None:
    """Its producer adds no partition, whose marker would have another epoch than the records, and
    ends it with a request that bumps the epoch.
    """
    entry = kept(ongoing())
    assert RULES.decide_add(entry, (PID, 8), [("t", 1)], 2, NOW) == ONLY_ENDS
    assert RULES.verify(entry, (PID, 8), T0, absent=ErrorCode.NONE) is ErrorCode.INVALID_TXN_STATE
    assert RULES.decide_end(entry, end((PID, 8), version=0), NOW) == ONLY_ENDS
    assert RULES.decide_end(entry, end((FRESH, 8)), NOW) == OTHER_PRODUCER


def test_producer_that_does_not_keep_aborts_it() -> None:
    """And gets the epoch after the abort, which is above those of all who found it."""
    entry = kept(kept(ongoing()))
    assert RULES.decide_init(entry, None, 1000, NOW) == MUST_ABORT
    entry = stored(entry, RULES.decide_forced_abort(entry, 2, NOW))
    assert (entry.facts.state, pair(entry)) == (PREPARE_ABORT, (PID, 8))
    entry = stored(entry, RULES.completed(entry, NOW))
    given = RULES.decide_init(entry, None, 1000, NOW)
    assert isinstance(given, TransactionFacts)
    assert (given.producer_id, given.producer_epoch, given.state) == (PID, 11, EMPTY)


def test_last_epoch_is_followed_by_another_producer_id(figures: Callable[..., None]) -> None:
    """Of the transaction, and of the producer that found it."""
    entry = ongoing(LAST_GIVEN_EPOCH)
    assert RULES.decide_keeping(entry, None, ENDLESS_MS, NOW) == NEEDS_PRODUCER_ID
    entry = kept(entry, FRESH)
    assert (pair(entry), producer_of(entry.facts)) == ((PID, LAST_GIVEN_EPOCH), (FRESH, 0))
    worn = stored(entry, replace(entry.facts, next_producer_epoch=LAST_GIVEN_EPOCH))
    asked = end((FRESH, LAST_GIVEN_EPOCH))
    assert RULES.decide_end(worn, asked, NOW) == NEEDS_PRODUCER_ID
    worn = stored(worn, RULES.decide_end(worn, asked, NOW, OTHER_FRESH))
    assert (pair(worn), producer_of(worn.facts)) == ((PID, FENCING_EPOCH), (OTHER_FRESH, 0))
    figures(epoch_of_the_markers=worn.facts.producer_epoch)
    worn = stored(worn, RULES.completed(worn, NOW))
    assert pair(worn) == (OTHER_FRESH, 0)
    assert RULES.decide_end(worn, asked, NOW) == Already(OTHER_FRESH, 0), "a retry"


def test_nothing_is_kept_where_nothing_is_open() -> None:
    entry = ongoing(state=COMPLETE_COMMIT, partitions=())
    given = RULES.decide_keeping(entry, None, 1000, NOW)
    assert isinstance(given, TransactionFacts)
    assert (given.state, given.producer_epoch, given.next_producer_epoch) == (EMPTY, 8, -1)


def test_transaction_keeps_its_own_time_out() -> None:
    """A successor that asks for a time-out does not bring one to what is prepared."""
    entry = ongoing()
    facts = RULES.decide_keeping(entry, None, 1000, NOW)
    assert isinstance(facts, TransactionFacts) and facts.timeout_ms == ENDLESS_MS


def test_releases_keep_nothing() -> None:
    refused = TransactionRulesSince43().decide_keeping(ongoing(), None, 1000, NOW)
    assert refused == KEEPS_NOTHING
    assert isinstance(refused, Refusal) and refused.error is ErrorCode.UNSUPPORTED_VERSION


def test_identity_names_one_transaction_since_each_end_bumps_the_epoch(
    figures: Callable[..., None],
) -> None:
    """Before transaction.version 2 a database that has decided one transaction of a producer would
    decide the next one, too.
    """
    names: dict[int, set[Expected]] = {}
    for version in (0, 2):
        entry = ongoing()
        for _ in range(3):
            names.setdefault(version, set()).add(pair(entry))
            asked = end(producer_of(entry.facts), version=version)
            entry = stored(entry, RULES.decide_end(entry, asked, NOW))
            entry = stored(entry, RULES.completed(entry, NOW))
            added = RULES.decide_add(entry, producer_of(entry.facts), [T0], version, NOW)
            entry = stored(entry, added)
    figures(names_of_version_0=len(names[0]), names_of_version_2=len(names[2]))
    assert (len(names[0]), len(names[2])) == (1, 3)


def test_transactions_of_participants_have_no_time_out_since_4_1() -> None:
    """Before, they have one of 2^31-1 milliseconds, as any other."""
    later = NOW + 2 * ENDLESS_MS
    for shard, count in ((TransactionShard(), 1), (TransactionShardSince41(), 0)):
        shard.entries["id"] = ongoing()
        assert len(shard.timed_out(later)) == count
        shard.entries["id"] = ongoing(timeout_ms=ENDLESS_MS - 1)
        assert len(shard.timed_out(later)) == 1
