"""What an empty producer snapshot makes a replica forget, as rules without a cluster: the proposal's statements one by one (KAFKA-15195)."""

from itertools import product
from random import Random

import pytest

from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.core.producer_state.policy import ProducerStatePolicy
from kraftsim.core.producer_state.verdict import APPEND, Duplicate, Verdict
from protocol.batches import RecordBatch
from tests.core.batches import make_batch

HISTORIES = 200
GIGABYTE, MEGABYTE = 1 << 30, 1 << 20


def state_of(*batches: RecordBatch, first_offset: int = 0) -> ProducerStateManager:
    """Return what is known behind these batches of one record each."""
    state = ProducerStateManager(ProducerStatePolicy(verifies_transactions=False))
    for offset, batch in enumerate(batches, first_offset):
        state.apply(batch, offset)
    return state


def test_a_retry_is_known_under_its_id_and_another_record_under_any_other():
    """TS-10: of three retries two are under the id of the first attempt."""
    state = state_of(make_batch(0), make_batch(1))
    told: list[Verdict] = [state.check(batch) for batch in (make_batch(1), make_batch(0), make_batch(0, producer_id=8))]
    assert [type(each) for each in told] == [Duplicate, Duplicate, type(APPEND)]


def test_an_empty_snapshot_and_the_active_segment_know_all_who_wrote_in_it():
    """TS-11: it is as if whoever is silent since its beginning had expired; of the others only the batches of that segment are known."""
    for seed in range(HISTORIES):
        draw = Random(seed)
        last = dict.fromkeys(range(6), -1)
        batches: list[RecordBatch] = []
        for _ in range(40):
            producer_id = draw.randrange(6)
            last[producer_id] += 1
            batches.append(make_batch(last[producer_id], producer_id=producer_id))
        base = draw.randrange(1, 40)
        full, restored = state_of(*batches), state_of(*batches[base:], first_offset=base)
        wrote_since = {batch.producer_id for batch in batches[base:]}
        assert set(restored.entries) == wrote_since
        for producer_id in wrote_since:
            whole, behind = full.entries[producer_id], restored.entries[producer_id]
            assert (behind.last_sequence, behind.last_offset, behind.producer_epoch) == (whole.last_sequence, whole.last_offset, whole.producer_epoch)
            known = [each.last_offset for each in whole.retained if each.last_offset >= base]
            assert [each.last_offset for each in behind.retained] == known


CONDITIONS = tuple(product((False, True), repeat=4))
"""A follower began with the empty snapshot; the leader is lost; the producer was silent since; that follower leads afterwards."""


@pytest.mark.parametrize(("rebuilt", "lost", "silent", "elected"), CONDITIONS)
def test_a_duplicate_needs_three_of_four_things(rebuilt: bool, lost: bool, silent: bool, elected: bool):
    """TS-18: the leader need not be lost, for leadership moves in good order as well; the other three are needed together."""
    before = (make_batch(0), make_batch(1))
    behind = (make_batch(0, producer_id=9), *(() if silent else (make_batch(2),)))
    retried = make_batch(1) if silent else make_batch(2)
    leader, other = state_of(*before, *behind), state_of(*before, *behind)
    follower = state_of(*behind, first_offset=2) if rebuilt else state_of(*before, *behind)
    judge = follower if elected else other if lost else leader
    assert (judge.check(retried) is APPEND) is (rebuilt and silent and elected)


def test_a_day_of_five_megabytes_a_second_is_422_segments():
    """TS-14: what a follower would fetch where nothing but the last day matters."""
    assert round(86_400 * 5 * MEGABYTE / GIGABYTE) == 422
