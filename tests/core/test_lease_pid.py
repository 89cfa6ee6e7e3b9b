"""Leases, and how a partition validates messages: every result of the draft, in both readings where
it contradicts itself.

Source: the lease_pid draft.
"""

from random import Random
from typing import Any

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.lease_pid.rules_broker import (
    NEEDS_IDS,
    NEXT,
    AnswerToRepeat,
    AnswerToUnknown,
    AskedExpiry,
    CountsFrom,
    IdReserve,
    Lease,
    LeasedPartition,
    LeasedProducerEntry,
    LeaseRows,
    LiteralList,
    Lookup,
    Next,
    NextGeneration,
    NumberBlock,
    Readings,
    RepairedList,
    Repeated,
    decide_lease,
    generation_after,
    id_of,
    restore,
    snapshot_of,
)
from kraftsim.producer_state.rules_entries import LAST_SEQUENCE
from protocol.errors import ErrorCode
from protocol.lease_pid.messages import ASKS_FOR_ONE, NOT_IDEMPOTENT, LeasedMessage
from protocol.lease_pid.stored import build_stored, parse_snapshot
from tools.claims.recording import Figures

DUPLICATE, ORDER, EPOCH, UNKNOWN = (
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)


def message(producer_id: int, generation: int, sequence: int) -> LeasedMessage:
    return LeasedMessage(producer_id=producer_id, generation=generation, sequence_number=sequence)


def partition(*written: tuple[int, int, int], readings: Readings | None = None) -> LeasedPartition:
    """A partition in which producers have written: (id, generation, sequence)."""
    made = LeasedPartition(readings or Readings())
    for each in written:
        made.apply(message(*each), now_ms=0)
    return made


def lease(
    made: LeasedPartition,
    producer_id: int = ASKS_FOR_ONE,
    *,
    is_check: bool = False,
    expire_ms: int = 0,
) -> Any:
    reserve = IdReserve()
    reserve.take(NumberBlock(first_number=100, next_number=200))
    return decide_lease(
        made,
        reserve,
        producer_id=producer_id,
        expire_ms=expire_ms,
        is_check=is_check,
        drawn_generation=lambda: 77,
    )


@pytest.mark.parametrize(
    "producer_id, generation, sequence, verdict",
    [
        (5, 3, 10, NEXT),
        (5, 4, 10, NEXT),
        (5, 3, 9, Repeated(DUPLICATE)),
        (5, 3, 0, Repeated(DUPLICATE)),
        (5, 3, 11, Refusal(ORDER)),
        (5, 4, 9, Refusal(ORDER)),
        (5, 4, 0, Refusal(ORDER)),
        (5, 2, 10, Refusal(EPOCH)),
        (5, 5, 10, Refusal(EPOCH)),
        (5, LAST_SEQUENCE, 10, Refusal(EPOCH)),
        (6, 3, 0, NEXT),
        (6, 3, 1, Refusal(UNKNOWN)),
        (NOT_IDEMPOTENT, 9, 4, NEXT),
        (5, 3, LAST_SEQUENCE, Repeated(DUPLICATE)),
        (5, 3, 2**30 + 100, Repeated(DUPLICATE)),
    ],
)
def test_message_is_next_repeated_or_rejected(
    producer_id: int,
    generation: int,
    sequence: int,
    verdict: Next | Repeated | Refusal,
    figures: Figures,
) -> None:
    """One above the mark, in the known generation or the next; id 0 is never checked."""
    assert partition((5, 3, 9)).check(message(producer_id, generation, sequence)) == verdict
    if producer_id == 5 and sequence == 10:
        figures(**{f"generation_{generation}": type(verdict).__name__})


def test_sequences_and_generations_wrap_around() -> None:
    made = partition((5, LAST_SEQUENCE, LAST_SEQUENCE))
    assert made.check(message(5, LAST_SEQUENCE, 0)) == NEXT
    assert made.check(message(5, generation_after(LAST_SEQUENCE), 0)) == NEXT
    assert made.check(message(5, LAST_SEQUENCE, LAST_SEQUENCE - 3)) == Repeated(DUPLICATE)


def test_first_message_of_a_successor_fences_the_zombie(figures: Figures) -> None:
    """The zombie can write between the successor's renewal and its first message; after that it is
    rejected.
    """
    made = partition((5, 3, 9))
    renewed = lease(made, 5)
    assert renewed == Lease(producer_id=5, generation=4, sequence_number=10, expire_ms=86_400_000)
    assert made.check(message(5, 3, 10)) == NEXT
    made.apply(message(5, 3, 10), 0)
    assert made.check(message(5, 4, 10)) == Refusal(ORDER), (
        "sequence 10 was already written: the successor must renew again"
    )
    again = lease(made, 5)
    assert isinstance(again, Lease) and again.sequence_number == 11
    made.apply(message(5, 4, 11), 0)
    zombie = made.check(message(5, 3, 12))
    assert isinstance(zombie, Refusal) and zombie == Refusal(EPOCH)
    figures(zombie_error=int(zombie.error))


def test_two_renewals_before_a_write_share_a_generation(figures: Figures) -> None:
    """A lease leaves no trace in the log, so neither fences the other, and the second producer
    loses its message.
    """
    made = partition((5, 3, 9))
    one, other = lease(made, 5), lease(made, 5)
    assert one == other and isinstance(one, Lease)
    made.apply(message(5, one.generation, one.sequence_number), 0)
    assert made.check(message(5, one.generation, one.sequence_number)) == Repeated(DUPLICATE)
    figures(
        generations=[one.generation, other.generation],
        second_error=type(made.check(message(5, one.generation, one.sequence_number))).__name__,
    )


def test_check_changes_nothing_and_returns_the_position(figures: Figures) -> None:
    made = partition((5, 3, 9))
    answer = lease(made, 5, is_check=True)
    assert answer == Lease(producer_id=5, generation=3, sequence_number=10, expire_ms=86_400_000)
    assert isinstance(answer, Lease)
    assert lease(made, 6, is_check=True) == Refusal(UNKNOWN)
    known = made.entries()
    figures(
        generation_returned=answer.generation,
        next_number=answer.sequence_number,
        entries_after_the_check=[each.sequence_high_watermark for each in known],
    )


def test_new_lease_has_a_random_generation_and_sequence_zero(figures: Figures) -> None:
    assert lease(partition()) == Lease(
        producer_id=101, generation=77, sequence_number=0, expire_ms=86_400_000
    )
    assert lease(partition(), NOT_IDEMPOTENT) == Refusal(ErrorCode.INVALID_REQUEST)
    assert lease(partition(), 9) == Refusal(UNKNOWN)
    empty = decide_lease(
        partition(),
        IdReserve(),
        producer_id=ASKS_FOR_ONE,
        expire_ms=0,
        is_check=False,
        drawn_generation=lambda: 1,
    )
    assert empty is NEEDS_IDS
    figures(first_sequence=lease(partition()).sequence_number)


@pytest.mark.parametrize(
    "reading, verdict",
    [
        (AnswerToRepeat.DUPLICATE, DUPLICATE),
        (AnswerToRepeat.SUCCESS, ErrorCode.NONE),
        (AnswerToRepeat.OUT_OF_ORDER, ORDER),
    ],
)
def test_answer_to_a_repeated_message_depends_on_the_reading(
    reading: AnswerToRepeat, verdict: ErrorCode, figures: Figures
) -> None:
    assert partition((5, 3, 9), readings=Readings(repeat=reading)).check(
        message(5, 3, 4)
    ) == Repeated(verdict)
    figures(**{f"repeat_{reading.name.lower()}": int(verdict)})


@pytest.mark.parametrize(
    "reading, verdict",
    [
        (AnswerToUnknown.UNKNOWN, Refusal(UNKNOWN)),
        (AnswerToUnknown.OUT_OF_ORDER, Refusal(ORDER)),
        (AnswerToUnknown.TAKEN, NEXT),
    ],
)
def test_answer_to_an_unknown_producer_depends_on_the_reading(
    reading: AnswerToUnknown, verdict: Refusal | Next, figures: Figures
) -> None:
    assert partition(readings=Readings(unknown=reading)).check(message(5, 3, 4)) == verdict
    figures(
        **{
            f"unknown_{reading.name.lower()}": int(verdict.error)
            if isinstance(verdict, Refusal)
            else 0,
        },
    )


def test_next_generation_may_begin_at_zero() -> None:
    made = partition((5, 3, 9), readings=Readings(next_generation=NextGeneration.BEGINS_AT_ZERO))
    renewed = lease(made, 5)
    assert isinstance(renewed, Lease) and (renewed.generation, renewed.sequence_number) == (4, 0)
    assert made.check(message(5, 4, 0)) == NEXT and made.check(message(5, 4, 10)) == Refusal(ORDER)


@pytest.mark.parametrize(
    "reading, asked, granted",
    [
        (AskedExpiry.IGNORED, 5, 1000),
        (AskedExpiry.CAPPED, 5, 5),
        (AskedExpiry.CAPPED, 5000, 1000),
        (AskedExpiry.CAPPED, 0, 1000),
        (AskedExpiry.HONOURED, 5000, 5000),
        (AskedExpiry.HONOURED, -1, 1000),
    ],
)
def test_granted_expiry_depends_on_the_reading(
    reading: AskedExpiry, asked: int, granted: int, figures: Figures
) -> None:
    found = lease(
        partition(readings=Readings(asked_expiry=reading, expire_ms=1000)), expire_ms=asked
    )
    assert isinstance(found, Lease) and found.expire_ms == granted
    figures(**{f"{reading.name.lower()}_{asked}".replace("-", "minus_"): found.expire_ms})


@pytest.mark.parametrize(
    "counts_from, is_kept", [(CountsFrom.LAST_SEEN, True), (CountsFrom.FIRST_SEEN, False)]
)
def test_busy_producer_outlives_its_lease_only_if_the_last_message_counts(
    counts_from: CountsFrom, is_kept: bool, figures: Figures
) -> None:
    made = LeasedPartition(Readings(expire_ms=1000, counts_from=counts_from))
    for number in range(5):
        made.apply(message(5, 3, number), now_ms=300 * number)
    assert made.expire(999) == []
    assert (made.expire(1300) == []) is is_kept
    assert made.expire(2200) == ([5] if is_kept else [])
    figures(**{f"kept_{counts_from.name.lower()}": is_kept})


# Lists
# --------------------------------------------------------------------------------------------------


def entry(producer_id: int, seen_ms: int = 0) -> LeasedProducerEntry:
    return LeasedProducerEntry(producer_id, 1, 0, seen_ms, seen_ms)


def test_literal_expiry_list_loses_out_of_order_producers(figures: Figures) -> None:
    """A server allocates 101 to 105, and 105 writes first; a new leader continues with smaller
    ids.
    """
    literal, repaired = LiteralList(), RepairedList()
    for producer_id in (105, 101, 103):
        literal.add(entry(producer_id))
        repaired.add(entry(producer_id))
    assert [producer_id for producer_id in (101, 103, 105) if literal.get(producer_id) is None] == [
        101,
        105,
    ]
    assert [
        producer_id for producer_id in (101, 103, 105) if repaired.get(producer_id) is None
    ] == []
    figures(
        lost_literal=[each for each in (101, 103, 105) if literal.get(each) is None],
        lost_repaired=[each for each in (101, 103, 105) if repaired.get(each) is None],
    )


def test_literal_expiry_direction_removes_the_youngest(figures: Figures) -> None:
    literal, repaired = LiteralList(), RepairedList()
    for producer_id, seen_ms in ((101, 0), (102, 500), (103, 900)):
        literal.add(entry(producer_id, seen_ms))
        repaired.add(entry(producer_id, seen_ms))
    assert literal.expire(lambda each: each.last_seen_ms == 0) == [101, 102, 103]
    assert repaired.expire(lambda each: each.last_seen_ms == 0) == [101]
    figures(left_literal=len(list(literal.entries())), left_repaired=len(list(repaired.entries())))


@pytest.mark.parametrize("seed", range(50))
def test_corrected_list_keeps_no_producer_shorter_than_a_table(seed: int) -> None:
    """A history of producers in any order: whatever the list has removed is expired, and the list
    contains every producer of the table.
    """
    random = Random(seed)
    repaired, table, now_ms = RepairedList(), LeaseRows(), 0
    for _ in range(200):
        now_ms += random.randint(0, 50)
        producer_id = random.randint(1, 60)
        for each in (repaired, table):
            known = each.get(producer_id)
            if known is None:
                each.add(entry(producer_id, now_ms))
            else:
                known.last_seen_ms = now_ms
        # misc: mypy infers no type for a lambda with a default
        gone = repaired.expire(lambda each, now_ms=now_ms: now_ms - each.last_seen_ms >= 400)  # type: ignore[misc]
        table.expire(lambda each, now_ms=now_ms: now_ms - each.last_seen_ms >= 400)  # type: ignore[misc]
        assert gone == sorted(gone)
        assert all(table.get(each) is None for each in gone)
    assert {each.producer_id for each in table.entries()} <= {
        each.producer_id for each in repaired.entries()
    }


# Ids
# --------------------------------------------------------------------------------------------------


def test_ids_repeat_only_after_all_others_and_are_never_zero_or_all_ones(figures: Figures) -> None:
    ids = [id_of(number, 8) for number in range(600)]
    assert set(ids) == set(range(1, 255)) and ids[:254] == ids[254:508]
    ids_of_32_bits = next(
        count
        for count in (2**32 - 3, 2**32 - 2, 2**32 - 1, 2**32)
        if id_of(count, 32) == id_of(0, 32)
    )
    assert id_of(ids_of_32_bits - 1, 32) == ids_of_32_bits == 2**32 - 2
    figures(
        ids_of_8_bits=len(set(ids)),
        least=min(ids),
        greatest=max(ids),
        ids_of_32_bits=ids_of_32_bits,
        out_of_8_bits_never_given=sorted(set(range(2**8)) - set(ids)),
    )


def test_reserved_block_allocates_each_id_once_and_wastes_the_rest(figures: Figures) -> None:
    reserve = IdReserve()
    assert reserve.claim() is None
    reserve.take(NumberBlock(first_number=0, next_number=2))
    assert [reserve.claim(), reserve.claim(), reserve.claim()] == [1, 2, None]
    reserve.take(NumberBlock(first_number=500, next_number=600))
    assert (reserve.claim(), reserve.left, reserve.given_count) == (501, 99, 3)
    with pytest.raises(AssertionError):
        reserve.take(NumberBlock(first_number=500, next_number=600))
    figures(given_of_reserve=reserve.given_count, left=reserve.left)


# Random histories
# --------------------------------------------------------------------------------------------------


class NaivePartition:
    """Keeps every message, and derives from them alone what may come next."""

    def __init__(self, expire_ms: int) -> None:
        self.messages: list[tuple[int, int, int, int]] = []
        self.expire_ms = expire_ms

    def verdict(self, producer_id: int, generation: int, sequence: int, now_ms: int) -> str:
        own = [(g, s) for p, g, s, at in self.messages if p == producer_id]
        last_ms = max((at for p, _, _, at in self.messages if p == producer_id), default=None)
        if last_ms is None or now_ms - last_ms >= self.expire_ms:
            return "next" if sequence == 0 else "unknown"
        last_generation, last_sequence = own[-1]
        if generation not in (last_generation, last_generation + 1):
            return "fenced"
        if sequence == last_sequence + 1:
            return "next"
        return (
            "repeated" if generation == last_generation and sequence <= last_sequence else "order"
        )

    def forget(self, now_ms: int) -> None:
        last = {p: at for p, _, _, at in self.messages}
        self.messages = [each for each in self.messages if now_ms - last[each[0]] < self.expire_ms]


NAMES = {UNKNOWN: "unknown", EPOCH: "fenced", ORDER: "order"}


def name_of(verdict: object) -> str:
    if isinstance(verdict, Refusal):
        return NAMES[verdict.error]
    return "repeated" if isinstance(verdict, Repeated) else "next"


MESSAGES = 600


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_match_a_model_with_full_history(seed: int, figures: Figures) -> None:
    """Producers continue, repeat, skip, use past and future generations, and outlive their leases;
    at times the server restarts.
    """
    random = Random(seed)
    readings = Readings(expire_ms=1000, lookup=Lookup.TABLE)
    made, naive, now_ms = LeasedPartition(readings), NaivePartition(1000), 0
    position = {producer_id: (random.randint(0, 5), -1) for producer_id in range(1, 6)}
    seen: set[str] = set()
    for _ in range(MESSAGES):
        now_ms += random.choice((0, 1, 20, 200))
        producer_id = random.randint(1, 5)
        generation, sequence = position[producer_id]
        generation = max(generation + random.choice((0, 0, 0, 0, 1, -1, 2)), 0)
        sequence = (
            max(sequence + random.choice((1, 1, 1, 1, 0, -2, 2)), 0)
            if random.random() < 0.95
            else 0
        )
        made.expire(now_ms)
        naive.forget(now_ms)
        result = name_of(made.check(message(producer_id, generation, sequence)))
        assert result == naive.verdict(producer_id, generation, sequence, now_ms), (
            producer_id,
            generation,
            sequence,
            now_ms,
        )
        seen.add(result)
        if result == "next":
            made.apply(message(producer_id, generation, sequence), now_ms)
            naive.messages.append((producer_id, generation, sequence, now_ms))
            position[producer_id] = (generation, sequence)
        if random.random() < 0.05:
            stored = parse_snapshot(build_stored(snapshot_of({("t", 0): (made, 7)})))
            made = LeasedPartition(readings)
            assert restore(stored, ("t", 0), made, end_offset=7) == 7
    assert {"next", "repeated", "fenced", "order"} <= seen
    figures(messages_a_history=MESSAGES)


def test_log_truncated_below_the_snapshot_is_replayed_from_its_start() -> None:
    stored = snapshot_of(
        {("t", 0): (partition((5, 3, 9)), 10), ("t", 1): (partition((6, 1, 0)), 1)}
    )
    made = partition((9, 9, 9))
    assert restore(stored, ("t", 0), made, end_offset=9) == 0 and made.entries() == []
    assert restore(stored, ("t", 1), made, end_offset=1) == 1 and [
        each.producer_id for each in made.entries()
    ] == [6]
    assert restore(None, ("t", 1), made, end_offset=1) == 0 and len(made) == 0
