"""Transactions in a replicated partition without a node: producers, a coordinator that adds,
verifies and completes, and read_committed consumers.

On top of `ReplicationHarness`: batches and verifications are late, leaders crash between a marker
and its replication, and a consumer at any replica fetches committed records. The coordinator is a
few lines: it knows which epoch of a producer has an open transaction, and writes each marker until
it is on all in-sync replicas. With transaction version 1 a producer keeps its epoch until an error,
with 2 every marker has a new one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from kraftsim.core.decision import Refusal
from kraftsim.partitions.rules_append import AppendDecision
from kraftsim.partitions.rules_replica import PartitionReplica
from kraftsim.producer_state.rules_entries import ProducerStatePolicy
from kraftsim.producer_state.rules_manager import EndMarker, ProducerStateManager, end_marker_of
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch
from protocol.storage.indexes import AbortedTransaction
from tests.core.batches import make_batch
from tests.core.replication_harness import Broker, ReplicationHarness

PRODUCERS = (11, 12, 13)
PATIENCE_MS, LATE_MS = 250, 600
STEPS_TO_END = 1000
QUIET_STEPS = 80
"""All messages in flight arrive, including late batches, and every replica learns the high
watermark.
"""


@dataclass(slots=True)
class Producer:
    """One producer, and its coordinator's state.

    `epoch`: of its current transactions, `ends_with`: that of the marker in flight.
    """

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    is_ongoing: bool = False
    is_ending: bool = False
    commits: bool = True
    waits_since_ms: int | None = None
    """When the unanswered batch was sent."""
    marker_is_out: bool = False
    must_bump: bool = False


@dataclass(slots=True)
class Outcome:
    """The transactions of a log up to some offset."""

    open: dict[int, int] = field(default_factory=dict)
    ended: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """(producer id, first offset, marker, aborted) of those that have records."""


@lru_cache(maxsize=10_000)
def _marker_in(content: bytes) -> EndMarker | None:
    return end_marker_of(RecordBatch(content))


def marker_in(batch: RecordBatch) -> EndMarker | None:
    """Return the marker of a control batch, decoded once: every step reads every log again."""
    end = batch.position + batch.size_bytes
    return _marker_in(bytes(batch.buffer[batch.position : end]))


def outcome_of(log: list[RecordBatch]) -> Outcome:
    """Fold a log, the plain way."""
    found = Outcome()
    for batch in log:
        if batch.is_control:
            marker = marker_in(batch)
            assert marker is not None
            first = found.open.pop(batch.producer_id, None)
            if first is not None:
                found.ended.append(
                    (batch.producer_id, first, batch.base_offset, not marker.is_commit)
                )
        elif batch.is_transactional:
            found.open.setdefault(batch.producer_id, batch.base_offset)
    return found


class TransactionsHarness(ReplicationHarness):
    """`check` verifies that what read_committed consumers received once remains valid for ever."""

    def __init__(
        self,
        seed: int,
        *,
        version: int,
        brokers: int = 3,
        min_in_sync: int = 1,
        state_class: type[ProducerStateManager] = ProducerStateManager,
        replica_class: type[PartitionReplica] = PartitionReplica,
    ) -> None:
        self.version = version
        self._state_class = state_class
        self.producers = [Producer(each) for each in PRODUCERS]
        self.indexes: dict[int, list[AbortedTransaction]] = {}
        self._is_closing, self._steps_to_end = False, STEPS_TO_END
        self.reads: dict[int, tuple[int, bool]] = {}
        """Offset of a batch that some read_committed consumer has passed -> (its checksum, whether
        it was skipped).
        """
        self.committed = self.aborted = self.unverified = self.fenced = 0
        self._marking: list[tuple[int, int, int, Callable[[ErrorCode], None]]] = []
        self._stable: dict[tuple[int, int], int] = {}
        super().__init__(
            seed, brokers=brokers, min_in_sync=min_in_sync, replica_class=replica_class
        )

    # Producers
    # ----------------------------------------------------------------------------------------------

    def _produce(self, broker: Broker) -> None:
        producer = self.random.choice(self.producers)
        roll = self.random.random()
        if self._is_closing:
            for each in self.producers:
                if each.is_ongoing and not each.is_ending:
                    self._end(each, commits=False)
                if each.is_ending:
                    self._send_marker(each)
        elif roll < 0.2:
            super()._produce(broker)
        elif producer.is_ending:
            self._send_marker(producer)
        elif producer.waits_since_ms is not None:
            if self.now_ms - producer.waits_since_ms > PATIENCE_MS:
                self._end(producer, commits=False)
        elif producer.is_ongoing and roll < 0.4:
            self._end(producer, commits=self.random.random() < 0.6)
        else:
            self._send(producer)

    def _send(self, producer: Producer) -> None:
        if self.version == 1:
            producer.is_ongoing = True  # AddPartitionsToTxn
        count = self.random.randint(1, 3)
        self._value += 1
        batch = make_batch(
            producer.sequence,
            producer.sequence + count - 1,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            timestamp=self._value,
            transactional=True,
        )
        producer.waits_since_ms = self.now_ms
        leader = self.brokers.get(self.metadata.leader)
        if leader is not None:
            for delay_ms in self.random.choice(
                ((0,), (0,), (0, 300), (300,), (0, LATE_MS), (LATE_MS,))
            ):  # its client may have given up by then
                self._sent += 1
                self._mail.append(
                    (
                        self.now_ms + delay_ms + 5,
                        self._sent,
                        lambda: self._arrive(leader, producer, batch),
                    )
                )

    def _arrive(self, broker: Broker, producer: Producer, batch: RecordBatch) -> None:
        replica = self._replica(broker)
        if not broker.is_alive or not replica.is_leader:
            return
        adds = self.version > 1
        guard = replica.begin_verification(
            batch.producer_id, batch.producer_epoch, batch.base_sequence, self.now_ms, adds=adds
        )
        if isinstance(guard, Refusal):
            self.fenced += 1
        elif guard is None:
            self._append(broker, producer, batch, None)
        else:
            self._post(lambda: self._verify(broker, broker.epoch, producer, batch, guard))

    def _verify(
        self, broker: Broker, epoch: int, producer: Producer, batch: RecordBatch, guard: int
    ) -> None:
        if (
            producer.is_ending
            or producer.epoch != batch.producer_epoch
            or not (producer.is_ongoing or self.version > 1)
        ):
            self.unverified += 1
            return
        producer.is_ongoing = True
        self._post(
            lambda: self._append(broker, producer, batch, guard) if broker.epoch == epoch else None
        )

    def _append(
        self, broker: Broker, producer: Producer, batch: RecordBatch, guard: int | None
    ) -> None:
        replica = self._replica(broker)
        if not broker.is_alive or not replica.is_leader:
            return
        decision = replica.decide_append(batch, 1, self.now_ms, guard)
        if isinstance(decision, AppendDecision):
            self._write(broker, decision)
            if (
                batch.producer_epoch == producer.epoch
                and batch.base_sequence == producer.sequence
                and not producer.is_ending
            ):
                producer.sequence, producer.waits_since_ms = batch.last_sequence + 1, None

    def _write(self, broker: Broker, decision: AppendDecision) -> None:
        replica = self._replica(broker)
        broker.log.append(RecordBatch(b"".join(decision.chunks)))
        self._index(broker, replica.apply_append(decision))
        replica.advance_alone(self.now_ms)
        self._answer_clients()

    # The coordinator
    # ----------------------------------------------------------------------------------------------

    def _end(self, producer: Producer, *, commits: bool) -> None:
        producer.commits, producer.is_ending, producer.must_bump = commits, True, not commits
        if self.version > 1:
            producer.epoch, producer.sequence = producer.epoch + 1, 0

    def _send_marker(self, producer: Producer) -> None:
        leader = self.brokers.get(self.metadata.leader)
        if leader is None or (producer.marker_is_out and self.version == 1):
            return
        producer.marker_is_out = True
        marker = EndMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=1,
            is_commit=producer.commits,
            transaction_version=self.version,
        )
        self._post(lambda: self._mark(leader, producer, marker), may_be_lost=self.version > 1)

    def _mark(self, broker: Broker, producer: Producer, marker: EndMarker) -> None:
        replica = self._replica(broker)

        def answered(error: ErrorCode) -> None:
            self._post(
                lambda: self._on_marked(producer, marker, error), may_be_lost=self.version > 1
            )

        decision = (
            replica.decide_marker(marker, self.now_ms)
            if broker.is_alive
            else Refusal(ErrorCode.NETWORK_EXCEPTION)
        )
        if isinstance(decision, Refusal):
            answered(decision.error)
            return
        self._write(broker, decision)
        self._marking.append(
            (broker.number, replica.leader_epoch, replica.log_end_offset, answered)
        )
        self._answer_clients()

    def _on_marked(self, producer: Producer, marker: EndMarker, error: ErrorCode) -> None:
        if not producer.is_ending or marker.producer_epoch != producer.epoch:
            return  # of a completed transaction
        producer.marker_is_out = False
        if error is not ErrorCode.NONE:
            assert error is not ErrorCode.INVALID_PRODUCER_EPOCH, (
                f"the marker of {producer} was fenced"
            )
            return
        self.committed += producer.commits
        self.aborted += not producer.commits
        producer.is_ending = producer.is_ongoing = False
        producer.waits_since_ms = None
        if self.version == 1 and producer.must_bump:
            producer.epoch, producer.sequence = producer.epoch + 1, 0  # InitProducerId

    def _answer_clients(self) -> None:
        super()._answer_clients()
        still = []
        for each in self._marking:
            number, leader_epoch, required, answered = each
            broker = self.brokers[number]
            replica = self._replica(broker)
            gone = not broker.is_alive or replica.leader_epoch != leader_epoch
            outcome = ErrorCode.NOT_LEADER_OR_FOLLOWER if gone else replica.replicated(required)
            if outcome is None:
                still.append(each)
            else:
                answered(outcome)
        self._marking = still

    def settle_transactions(self) -> None:
        """Complete all transactions, and check that none hangs: read_committed consumers reach the
        end of every log.

        A request that the coordinator answered late may add its partition again: the transaction it
        begins is completed once more.
        """
        self._is_closing = True
        quiet = 0
        while quiet < QUIET_STEPS:
            self.step(0.0)
            quiet = (
                0
                if any(each.is_ongoing or each.is_ending for each in self.producers)
                else quiet + 1
            )
            self._steps_to_end -= 1
            assert self._steps_to_end, "transactions do not end"
        for broker in self.brokers.values():
            replica = self._replica(broker)
            hanging = outcome_of(broker.log).open
            assert not hanging, f"broker {broker.number} has hanging transactions: {hanging}"
            assert replica.last_stable_offset == replica.high_watermark
        first, *others = (self.indexes[number] for number in self.brokers)
        assert all(each == first for each in others), "replicas list different aborted transactions"

    # Replicas
    # ----------------------------------------------------------------------------------------------

    def _index(self, broker: Broker, aborted: AbortedTransaction | None) -> None:
        if aborted is not None:
            self.indexes[broker.number].append(aborted)

    def _replicated(self, broker: Broker, batch: RecordBatch) -> None:
        self._index(broker, self._replica(broker).append_replicated(batch))

    def _state_of(self, broker: Broker) -> ProducerStateManager:
        """Replay the log."""
        state = self._state_class(ProducerStatePolicy(transactions_have_epochs=self.version > 1))
        self.indexes[broker.number] = [
            aborted for batch in broker.log if (aborted := state.replay(batch)) is not None
        ]
        return state

    def _rebuilt(self, broker: Broker) -> None:
        state = self._state_of(broker)
        replica = self._replica(broker)
        replica.producer_state = state
        state.on_high_watermark(replica.high_watermark)

    # Checks
    # ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """In addition to the guarantees of every log: check the committed reads."""
        super().check()
        for broker in self.brokers.values():
            if broker.is_alive:
                self._check_stable(broker, self._replica(broker))

    def _check_stable(self, broker: Broker, replica: PartitionReplica) -> None:
        stable, high_watermark = replica.last_stable_offset, replica.high_watermark
        outcome = outcome_of(broker.log)
        latest = min([high_watermark, *outcome.open.values()])
        earliest = min(
            [latest, *(first for _, first, marker, _ in outcome.ended if marker >= high_watermark)]
        )
        assert earliest <= stable <= latest, (
            f"broker {broker.number}: {stable} is not from {earliest} to {latest}"
        )
        if replica.is_leader:
            known = self._stable.get((broker.number, replica.leader_epoch), 0)
            assert stable >= known, (
                f"the last stable offset of leader epoch {replica.leader_epoch} went back from "
                f"{known} to {stable}"
            )
            self._stable[broker.number, replica.leader_epoch] = stable
        self._read(broker, stable, outcome)

    def _read(self, broker: Broker, stable: int, outcome: Outcome) -> None:
        """Read a range as a consumer does, with its list of aborted transactions."""
        first = self.random.randint(0, stable)
        end = self.random.randint(first, stable)
        named = [
            each
            for each in self.indexes[broker.number]
            if each.last_offset >= first and each.first_offset < end
        ]
        waiting = sorted(named, key=lambda each: each.first_offset)
        skipping: set[int] = set()
        for batch in broker.log:
            if batch.last_offset < first or batch.base_offset >= end:
                continue
            while waiting and waiting[0].first_offset <= batch.last_offset:
                skipping.add(waiting.pop(0).producer_id)
            if batch.is_control:
                marker = marker_in(batch)
                if marker is not None and not marker.is_commit:
                    skipping.discard(batch.producer_id)
                continue
            is_skipped = batch.is_transactional and batch.producer_id in skipping
            truth = any(
                aborted
                and batch.is_transactional
                and producer_id == batch.producer_id
                and start <= batch.base_offset < marker_offset
                for producer_id, start, marker_offset, aborted in outcome.ended
            )
            assert is_skipped == truth, (
                f"broker {broker.number}, offset {batch.base_offset}: skipped {is_skipped}, "
                f"aborted {truth}"
            )
            stored = self.reads.setdefault(batch.base_offset, (batch.crc, is_skipped))
            assert stored == (batch.crc, is_skipped), (
                f"offset {batch.base_offset} was different before: {stored}"
            )
