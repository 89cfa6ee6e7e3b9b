"""What an empty producer snapshot makes a replica forget, as rules without a cluster: the
proposal's statements one by one (KAFKA-15195).
"""

from itertools import product
from random import Random

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.partitions.rules_append import ALL_REPLICAS, AppendDecision
from kraftsim.producer_state.rules_entries import (
    APPEND,
    CheckResult,
    Duplicate,
    ProducerStatePolicy,
    snapshot_file,
    state_entries,
)
from kraftsim.producer_state.rules_manager import ProducerStateManager
from protocol.records.batches import RecordBatch
from protocol.storage.producer_snapshot import parse_producer_rows
from tests.core.batches import make_batch
from tests.core.replication_harness import SETTLE_STEPS, Broker, ReplicationHarness
from tools.claims.recording import Figures

HISTORIES = 200
PRODUCERS, BATCHES = 6, 40
GIGABYTE, MEGABYTE = 1 << 30, 1 << 20


def state_of(*batches: RecordBatch, first_offset: int = 0) -> ProducerStateManager:
    """Return the state after these batches of one record each."""
    state = ProducerStateManager(ProducerStatePolicy(verifies_transactions=False))
    for offset, batch in enumerate(batches, first_offset):
        state.apply(batch, offset)
    return state


def test_retry_is_recognised_by_its_id_and_by_no_other(figures: Figures) -> None:
    """TS-10: two of three retries have the id of the first attempt."""
    state = state_of(make_batch(0), make_batch(1))
    results: list[CheckResult] = [
        state.check(batch) for batch in (make_batch(1), make_batch(0), make_batch(0, producer_id=8))
    ]
    assert [type(each) for each in results] == [Duplicate, Duplicate, type(APPEND)]
    figures(retries=len(results), known=sum(isinstance(each, Duplicate) for each in results))


def assert_known_are_those_of_the_active_segment(seed: int) -> None:
    """Run one history of a few producers, with an empty snapshot at some point."""
    draw = Random(seed)
    last = dict.fromkeys(range(PRODUCERS), -1)
    batches: list[RecordBatch] = []
    for _ in range(BATCHES):
        producer_id = draw.randrange(PRODUCERS)
        last[producer_id] += 1
        batches.append(make_batch(last[producer_id], producer_id=producer_id))
    base = draw.randrange(1, BATCHES)
    full, restored = state_of(*batches), state_of(*batches[base:], first_offset=base)
    wrote_since = {batch.producer_id for batch in batches[base:]}
    assert set(restored.entries) == wrote_since
    for producer_id in wrote_since:
        whole, behind = full.entries[producer_id], restored.entries[producer_id]
        assert (behind.last_sequence, behind.last_offset, behind.producer_epoch) == (
            whole.last_sequence,
            whole.last_offset,
            whole.producer_epoch,
        )
        known = [each.last_offset for each in whole.retained if each.last_offset >= base]
        assert [each.last_offset for each in behind.retained] == known


def test_empty_snapshot_and_active_segment_know_all_producers_of_that_segment(
    figures: Figures,
) -> None:
    """TS-11: producers that are idle since the segment's start are treated as expired; of the
    others only the batches of that segment are known.
    """
    for seed in range(HISTORIES):
        assert_known_are_those_of_the_active_segment(seed)
    figures(histories=HISTORIES, producers=PRODUCERS, batches=BATCHES)


@pytest.mark.parametrize("seed", range(HISTORIES, HISTORIES + 4))
def test_empty_snapshot_knows_all_later_producers_in_any_history(seed: int) -> None:
    """The same, one history per run, for `make more-seeds`."""
    assert_known_are_those_of_the_active_segment(seed)


CONDITIONS = tuple(product((False, True), repeat=4))
"""A follower started from the empty snapshot; the leader is lost; the producer was idle since; that
follower becomes leader.
"""
LEADER, FOLLOWER, SPARE = 1, 2, 3
SILENT, OTHER = 7, 9
"""Producer ids: the one whose last record is retried, and one that keeps writing."""


class BoundaryHarness(ReplicationHarness):
    """Three replicas of a partition; a restarted follower has its own producer snapshot beside the
    log: the true one of its boundary, or the empty one of the proposal.
    """

    heir = LEADER
    snapshot: bytes | None = None
    boundary = 0

    def _produce(self, broker: Broker) -> None:
        """Only the test writes."""

    def _elect(self, preferred: int | None = None) -> None:
        super()._elect(self.heir if preferred is None else preferred)

    def _state_of(self, broker: Broker) -> ProducerStateManager:
        """Load the snapshot and replay the later batches, as a starting broker does."""
        state = super()._state_of(broker)
        if self.snapshot is not None:
            state.load(state_entries(parse_producer_rows(self.snapshot)), self.now_ms)
        for batch in broker.log:
            if batch.base_offset >= self.boundary:
                state.replay(batch)
        return state

    def write(self, batch: RecordBatch) -> AppendDecision | Duplicate | Refusal:
        """Let the current leader validate a client's batch and append it if it is new."""
        leader = self.brokers[self.metadata.leader]
        replica = self._replica(leader)
        decision = replica.decide_append(batch, ALL_REPLICAS, self.now_ms)
        if isinstance(decision, AppendDecision):
            leader.log.append(RecordBatch(b"".join(decision.chunks)))
            replica.apply_append(decision)
        return decision

    def settle(self) -> None:
        """Give every live replica the same log, the full ISR, and the current leader."""
        alive = [broker for broker in self.brokers.values() if broker.is_alive]
        for _ in range(SETTLE_STEPS):
            self.step(0.0)
            ends = {self._replica(each).log_end_offset for each in alive}
            is_led = self._replica(self.brokers[self.metadata.leader]).is_leader
            if is_led and len(ends) == 1 and len(self.metadata.isr) == len(alive):
                return
        raise AssertionError(f"not settled: {self.metadata}")

    def restart_follower(self, *, is_empty: bool) -> None:
        """Crash the follower at the boundary, and restart it with a snapshot of it."""
        leader = self._replica(self.brokers[LEADER])
        known = [] if is_empty else leader.producer_state.entries.values()
        self.boundary = leader.log_end_offset
        self.snapshot = snapshot_file(known)
        self._die(self.brokers[FOLLOWER])
        self._restart(self.brokers[FOLLOWER])

    def lose_leader(self) -> None:
        """Crash the leader: the controller elects the successor."""
        self._die(self.brokers[LEADER])

    def move_leadership(self) -> None:
        """Let the controller move leadership to the successor cleanly."""
        if self.heir != self.metadata.leader:
            self._elect()

    def times_in_log(self, batch: RecordBatch) -> int:
        """Count how often the current leader's log has the records of a batch."""
        wanted = batch.producer_id, batch.base_sequence
        log = self.brokers[self.metadata.leader].log
        return sum((each.producer_id, each.base_sequence) == wanted for each in log)


@pytest.mark.parametrize(("rebuilt", "lost", "silent", "elected"), CONDITIONS)
def test_duplicate_needs_three_of_four_conditions(
    rebuilt: bool, lost: bool, silent: bool, elected: bool, figures: Figures
) -> None:
    """TS-18: losing the leader is not required, because leadership also moves cleanly; the other
    three are needed together.
    """
    harness = BoundaryHarness(1)
    harness.settle()
    last = make_batch(1, producer_id=SILENT)
    for batch in (make_batch(0, producer_id=SILENT), last):
        assert isinstance(harness.write(batch), AppendDecision)
    harness.settle()
    harness.restart_follower(is_empty=rebuilt)
    harness.settle()
    assert isinstance(harness.write(make_batch(0, producer_id=OTHER)), AppendDecision)
    if not silent:
        last = make_batch(2, producer_id=SILENT)
        assert isinstance(harness.write(last), AppendDecision)
    harness.settle()
    harness.heir = FOLLOWER if elected else SPARE if lost else LEADER
    if lost:
        harness.lose_leader()
    else:
        harness.move_leadership()
    harness.settle()
    assert harness.metadata.leader == harness.heir and harness.brokers[LEADER].is_alive is not lost
    repeated = harness.write(last)
    harness.settle()
    is_doubled = harness.times_in_log(last) == 2
    assert is_doubled is isinstance(repeated, AppendDecision)
    assert is_doubled or isinstance(repeated, Duplicate), "never an error that a client would see"
    assert is_doubled is (rebuilt and silent and elected)
    if is_doubled:
        figures(**{"doubled_leader_lost" if lost else "doubled_leader_moved": is_doubled})


def test_five_megabytes_per_second_make_422_segments_per_day(figures: Figures) -> None:
    """TS-14: what a follower would fetch where only the last day matters."""
    assert round(86_400 * 5 * MEGABYTE / GIGABYTE) == 422
    figures(
        segments_a_day=round(86_400 * 5 * MEGABYTE / GIGABYTE),
        gigabytes_a_day=round(86_400 * 5 * MEGABYTE / GIGABYTE),
    )
