"""One transactional id, two partitions on two brokers, and coordinator failovers: decisions,
markers, late and lost responses.

The log of the coordinator is a list; its appends are committed later, or lost or kept at a
failover. A marker that is in flight when its coordinator fails may still arrive. Partitions reject
markers of earlier coordinator epochs, as their producer state does.
Source: KIP-98; KAFKA-10080, KAFKA-16352.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftsim.transactions.rules_coordinator import EndTxnInput, TransactionRules
from kraftsim.transactions.rules_markers import (
    Complete,
    Marker,
    MarkerEffect,
    MarkerQueue,
    NoLeader,
    PreparedTransaction,
    RetryLater,
    SendMarkers,
)
from kraftsim.transactions.rules_state import (
    AT_REST,
    COMPLETE_COMMIT,
    COMPLETED,
    EMPTY,
    ONGOING,
    PREPARED,
    TopicPartition,
    TransactionEntry,
    TransactionFacts,
    may_enter,
)
from protocol.errors import ErrorCode

PARTITIONS: Final = (("a", 0), ("b", 0))
PRODUCER_ID: Final = 1
Written = tuple[int, int, bool]
"""A marker in a partition: number of the transaction, coordinator epoch, whether it commits."""


@dataclass(slots=True)
class Coordinator:
    """One coordinator epoch.

    `appended` are states being written to the log; `due` is what the queue wants written.
    """

    epoch: int
    entry: TransactionEntry
    queue: MarkerQueue
    appended: TransactionFacts | None = None
    asked: dict[int, tuple[Marker, ...]] = field(default_factory=dict)
    due: PreparedTransaction | None = None
    retries: bool = False


class Endings:
    """The possible events; each kind of failure occurs a limited number of times.

    `version` is the producer's transaction.version.
    """

    def __init__(
        self,
        *,
        version: int = 0,
        transactions: int = 2,
        troubles: int = 2,
        rules: type[TransactionRules] = TransactionRules,
        queue: type[MarkerQueue] = MarkerQueue,
    ) -> None:
        self._version, self._transactions, self._troubles = version, transactions, troubles
        self._rules = rules()
        self._queue = queue
        first = TransactionFacts(
            producer_id=PRODUCER_ID, producer_epoch=0, timeout_ms=1, state=EMPTY, last_update_ms=0
        )
        self.log: list[tuple[TransactionFacts, int]] = [(first, 0)]
        """Committed states, with the number of the transaction that they belong to."""
        self._begun = 0
        self._leaders: dict[TopicPartition, int] = {PARTITIONS[0]: 1, PARTITIONS[1]: 2}
        self.markers: dict[TopicPartition, list[Written]] = {each: [] for each in PARTITIONS}
        self._late: list[tuple[Marker, int]] = []
        """Requests of failed coordinators, with the transaction that they end."""
        self._spent = {"fail over": 0, "lose": 0, "move": 0, "refuse": 0}
        self._coordinator = self._new_coordinator(0)

    def moves(self) -> list[str]:
        """See search.World."""
        now, found = self._coordinator, []
        is_free = now.appended is None and now.entry.pending is None
        if is_free and now.entry.facts.state in AT_REST and self._begun < self._transactions:
            found.append("begin")
        if is_free and now.entry.facts.state is ONGOING:
            found += ["commit", "abort"]
        if now.appended is not None:
            found.append("store")
            found += ["refuse"] * self._may("refuse")
        for broker_id in sorted(now.asked):
            found.append(f"answer {broker_id}")
            found += (
                [f"lose {broker_id} written", f"lose {broker_id} unwritten"]
                if self._may("lose")
                else []
            )
        if now.retries:
            found.append("retry")
        found += [f"late {index}" for index in range(len(self._late))]
        found += ["fail over keeps", "fail over forgets"] if self._may("fail over") else []
        found += ["move"] * self._may("move")
        return found

    def make(self, move: str) -> None:
        """See search.World."""
        now = self._coordinator
        match move.split(" "):
            case ["begin"]:
                self._begun += 1
                added = self._rules.decide_add(
                    now.entry, self._producer(now), PARTITIONS, self._version, 0
                )
                assert isinstance(added, TransactionFacts), f"the producer may not begin: {added}"
                self._append(now, added)
            case ["commit" | "abort" as verb]:
                self._end(now, is_commit=verb == "commit")
            case ["store"]:
                self._store(now)
            case ["refuse"]:
                self._spent["refuse"] += 1
                self._refuse(now)
            case ["answer", broker_id]:
                self._answer(now, int(broker_id))
            case ["lose", broker_id, how]:
                self._spent["lose"] += 1
                self._lose(now, int(broker_id), is_written=how == "written")
            case ["retry"]:
                now.retries = False
                self._carry_out(now, now.queue.retry())
            case ["late", index]:
                marker, number = self._late.pop(int(index))
                self._write(marker, number)
            case ["move"]:
                self._spent["move"] += 1
                first, second = PARTITIONS
                self._leaders[first], self._leaders[second] = (
                    self._leaders[second],
                    self._leaders[first],
                )
            case _:
                self._spent["fail over"] += 1
                self._fail_over(now, keeps=move.endswith("keeps"))
        self._check()

    def state(self) -> Hashable:
        """See search.World."""
        now = self._coordinator
        return (
            tuple((facts.state, facts.producer_epoch, number) for facts, number in self.log),
            now.epoch,
            (
                now.entry.facts.state,
                now.entry.facts.producer_epoch,
                now.entry.facts.partitions,
                now.entry.pending,
            ),
            None if now.appended is None else (now.appended.state, now.appended.producer_epoch),
            tuple(
                (broker, tuple(marker.partitions for marker in now.asked[broker]))
                for broker in sorted(now.asked)
            ),
            (
                now.due is None,
                now.retries,
                tuple(now.queue.pending),
                tuple(sorted(self._leaders.items())),
            ),
            tuple(
                (marker.partitions, marker.ended.coordinator_epoch, number)
                for marker, number in self._late
            ),
            tuple(tuple(written) for written in self.markers.values()),
            tuple(self._spent.values()),
            self._begun,
        )

    # Moves
    # ----------------------------------------------------------------------------------------------

    def _may(self, trouble: str) -> int:
        return int(self._spent[trouble] < self._troubles)

    def _producer(self, now: Coordinator) -> tuple[int, int]:
        return now.entry.facts.producer_id, now.entry.facts.producer_epoch

    def _end(self, now: Coordinator, *, is_commit: bool) -> None:
        producer_id, producer_epoch = self._producer(now)
        asked = EndTxnInput(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_commit=is_commit,
            transaction_version=self._version,
        )
        decided = self._rules.decide_end(now.entry, asked, 0)
        assert isinstance(decided, TransactionFacts), f"the producer may not end: {decided}"
        self._append(now, decided)

    def _append(self, now: Coordinator, facts: TransactionFacts) -> None:
        now.entry.begin(facts)
        now.appended = facts

    def _store(self, now: Coordinator) -> None:
        facts, now.appended = now.appended, None
        assert facts is not None, "a request or a write is pending"
        self.log.append((facts, self._begun))
        now.entry.finish(facts)
        now.due = None
        if facts.state in PREPARED:
            self._decided(now)

    def _refuse(self, now: Coordinator) -> None:
        now.appended, ended, now.due = None, now.due, None
        now.entry.give_up()
        if ended is not None:
            self._carry_out(now, now.queue.on_not_completed(ended))

    def _decided(self, now: Coordinator) -> None:
        ended = PreparedTransaction(now.entry, self._rules.completed(now.entry, 0), 0, now.epoch)
        self._carry_out(now, now.queue.add(ended))

    def _carry_out(self, now: Coordinator, effects: Sequence[MarkerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendMarkers():
                    now.asked[effect.broker_id] = effect.markers
                case Complete():
                    now.due = effect.ended
                    self._append(now, effect.ended.completion)
                case RetryLater():
                    now.retries = True

    def _answer(self, now: Coordinator, broker_id: int) -> None:
        errors: dict[TopicPartition, ErrorCode] = {}
        for marker in now.asked.pop(broker_id):
            errors.update(self._write(marker, self._begun, broker_id))
        self._carry_out(now, now.queue.on_answer(broker_id, {PRODUCER_ID: errors}))

    def _lose(self, now: Coordinator, broker_id: int, *, is_written: bool) -> None:
        for marker in now.asked.pop(broker_id):
            if is_written:
                self._write(marker, self._begun, broker_id)
        self._carry_out(now, now.queue.on_lost(broker_id))

    def _write(
        self, marker: Marker, number: int, broker_id: int | None = None
    ) -> dict[TopicPartition, ErrorCode]:
        """Append markers at their leader as partitions do: reject a coordinator epoch below the
        highest one seen.
        """
        errors = {}
        for partition in marker.partitions:
            seen = max((epoch for _, epoch, _ in self.markers[partition]), default=0)
            if broker_id is not None and self._leaders[partition] != broker_id:
                errors[partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif marker.ended.coordinator_epoch < seen:
                errors[partition] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
            else:
                errors[partition] = ErrorCode.NONE
                self.markers[partition].append(
                    (number, marker.ended.coordinator_epoch, marker.ended.is_commit)
                )
        return errors

    def _fail_over(self, now: Coordinator, *, keeps: bool) -> None:
        if keeps and now.appended is not None:
            self.log.append((now.appended, self._begun))
        self._late += [
            (marker, self._begun) for markers in now.asked.values() for marker in markers
        ]
        self._coordinator = self._new_coordinator(now.epoch + 1)
        if self._coordinator.entry.facts.state in PREPARED:
            self._decided(self._coordinator)

    def _new_coordinator(self, epoch: int) -> Coordinator:
        facts = self.log[-1][0]
        return Coordinator(
            epoch,
            TransactionEntry("x", facts),
            self._queue(lambda each: self._leaders.get(each, NoLeader.GONE)),
        )

    # Invariants
    # ----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        for (before, _), (after, number) in zip(self.log, self.log[1:], strict=False):
            assert may_enter(after.state, before.state), (
                f"{after.state.label} after {before.state.label}"
            )
            assert after.producer_epoch >= before.producer_epoch, "an epoch decreased"
            if before.state in PREPARED:
                assert after.state is COMPLETED[before.state], (
                    f"{before.state.label} became {after.state.label}"
                )
                self._check_markers(number, is_commit=after.state is COMPLETE_COMMIT)
        self._check_progress()

    def _check_markers(self, number: int, *, is_commit: bool) -> None:
        """A completed transaction has the marker of its decision in every partition, and no other
        marker.
        """
        for partition, written in self.markers.items():
            verdicts = [verdict for each, _, verdict in written if each == number]
            assert is_commit in verdicts, (
                f"{partition} has no marker of transaction {number}, which is over"
            )
            assert (not is_commit) not in verdicts, (
                f"{partition} has both markers of transaction {number}"
            )

    def _check_progress(self) -> None:
        """A decided transaction makes progress: a marker request is in flight, waits for a retry,
        or its completion is being written.
        """
        now = self._coordinator
        if (
            now.entry.facts.state in PREPARED
            and now.appended is None
            and not now.asked
            and not now.retries
        ):
            overtaken = any(
                epoch > now.epoch for written in self.markers.values() for _, epoch, _ in written
            )
            assert overtaken, f"{now.entry.facts.state.label} and no work is pending"
