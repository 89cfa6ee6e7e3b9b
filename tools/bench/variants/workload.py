"""One seeded workload for one kind of producer state: producers that send in order, and a network
that loses, duplicates and delays.

A producer keeps several batches in flight, and retries those without a response. It handles
responses like Apache Kafka's producer: an out-of-order batch is retried while earlier batches are
in flight, and otherwise the producer bumps its epoch. Random choices do not depend on the
responses, as far as two kinds of state return the same ones. Only the checks know the identity of
each record.

Source: KIP-98, KIP-360, KIP-758;
org.apache.kafka.clients.producer.internals.TransactionManager.canRetry.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from struct import Struct

from kraftsim.producer_state.rules_entries import (
    Duplicate,
    ProducerAppend,
    ProducerStatePolicy,
    increment_sequence,
    snapshot_rows,
    state_entries,
)
from kraftsim.producer_state.rules_manager import ProducerStateManager
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record

PRODUCER_AT = 43
"""The position of producer id, epoch and base sequence in a batch."""
PRODUCER = Struct(">qhi")
RECORDS_MAX = 4
LAST_SEQUENCE = 2**31 - 1
NOWHERE = -1
ROUNDS_MAX = 10_000
NEW, REPEATED = "0, new", "0, a duplicate with its offset"
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload. Shares are percentages of transmissions, rounds or producers."""

    name: str
    in_flight: int = 5
    broken_percent: int = 20
    """Transmissions in which the connection breaks: some batches have arrived, and some of those
    have responses.
    """
    late_percent: int = 0
    """Batches that arrive a second time, up to thirty batches later."""
    restart_percent: int = 0
    """Rounds after which the broker restarts from its snapshot."""
    first_sequence: int = 0
    forgets_percent: int = 0
    """Producers that restart at sequence 0 once, in the same epoch."""
    astray_percent: int = 0
    """Producers that jump once to unused sequences shortly before 2^31-1, in the same epoch."""


WORKLOADS = (
    Workload(name="nothing is lost", broken_percent=0),
    Workload(name="answers are lost"),
    Workload(name="late copies arrive", late_percent=20),
    Workload(name="across the end of the numbers", first_sequence=LAST_SEQUENCE - 40),
    Workload(name="the broker starts again", restart_percent=30),
    Workload(name="20 in flight", in_flight=20),
    Workload(name="20 in flight, the broker starts again", in_flight=20, restart_percent=30),
    Workload(name="a producer forgets its sequence", forgets_percent=100),
    Workload(name="a producer goes astray", astray_percent=100),
)


@dataclass(slots=True)
class Sent:
    """A batch of one producer: its identity, its record count, and the epoch and sequence with
    which it was sent.
    """

    number: int
    count: int
    epoch: int = 0
    first: int = NOWHERE

    @property
    def last(self) -> int:
        """The last sequence."""
        return increment_sequence(self.first, self.count - 1)


@dataclass(slots=True)
class Findings:
    """The results. Counts are of batches."""

    answers: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    doubled: int = 0
    """In the log more than once."""
    lost: int = 0
    """Acknowledged, but not in the log."""
    false_duplicates: int = 0
    """Reported as a duplicate, but not in the log yet."""
    misplaced: int = 0
    """Acknowledged at an offset that has another batch."""
    without_offset: int = 0
    """Acknowledged without an offset."""
    new_epochs: int = 0

    @property
    def harm(self) -> tuple[int, int, int, int]:
        """The violated guarantees: duplicated, lost, false duplicates, misplaced."""
        return self.doubled, self.lost, self.false_duplicates, self.misplaced


class Partition:
    """The log and the producer state of one partition, of one kind.

    The log records the identity of each batch.
    """

    def __init__(self, kind: type[ProducerStateManager]) -> None:
        self._kind = kind
        self.state = kind(ProducerStatePolicy())
        self.log: dict[int, tuple[int, int]] = {}
        self.copies: Counter[tuple[int, int]] = Counter()
        self._end_offset = 0
        self._frames = {count: bytearray(_frame(count)) for count in range(1, RECORDS_MAX + 1)}

    def take(self, producer_id: int, sent: Sent) -> tuple[ErrorCode, int, str]:
        """Process a batch as a leader does; return the error, the offset, and the kind of
        response.
        """
        frame = self._frames[sent.count]
        PRODUCER.pack_into(frame, PRODUCER_AT, producer_id, sent.epoch, sent.first)
        batch = RecordBatch(frame)
        verdict = self.state.check(batch)
        if isinstance(verdict, ProducerAppend):
            offset = self._end_offset
            self.state.apply(batch, offset)
            self.log[offset] = (producer_id, sent.number)
            self.copies[producer_id, sent.number] += 1
            self._end_offset += sent.count
            return ErrorCode.NONE, offset, NEW
        if isinstance(verdict, Duplicate):
            return ErrorCode.NONE, verdict.first_offset, REPEATED
        return verdict.error, NOWHERE, f"{int(verdict.error)} {verdict.error.name}"

    def restart(self) -> None:
        """Restart: drop the state that is in no snapshot."""
        rows = list(snapshot_rows(self.state.entries.values()))
        self.state = self._kind(ProducerStatePolicy())
        self.state.load(state_entries(rows, self._kind.entry_class), NOW_MS)


class Producer:
    """One producer of one partition."""

    def __init__(self, producer_id: int, scenario: Workload, batches: int, random: Random) -> None:
        self.producer_id = producer_id
        self._scenario = scenario
        self._random = random
        self._batches = batches
        self._given = 0
        self._window: list[Sent] = []
        self._epoch = 0
        self._next = self._last_acknowledged_end = scenario.first_sequence
        self._late: list[tuple[int, Sent]] = []
        self._round = 0
        self._strays_in = self._moment(scenario.astray_percent, batches)
        self._forgets_in = self._moment(scenario.forgets_percent, batches)
        self.is_done = False

    def transmit(self, partition: Partition, findings: Findings) -> None:
        """Fill the window, send it, and process the responses."""
        self._round += 1
        scenario, random = self._scenario, self._random
        while len(self._window) < scenario.in_flight and self._given < self._batches:
            self._window.append(self._numbered(Sent(self._given, random.randint(1, RECORDS_MAX))))
            self._given += 1
        arriving = answered = len(self._window)
        if random.randrange(100) < scenario.broken_percent:
            arriving = random.randint(0, scenario.in_flight)
            answered = random.randint(0, arriving)
        answers = []
        for position, sent in enumerate(self._window[:arriving]):
            answer = self._deliver(partition, sent, findings)
            if random.randrange(100) < scenario.late_percent:
                self._late.append(
                    (
                        self._round + random.randint(1, 30) // scenario.in_flight,
                        Sent(sent.number, sent.count, sent.epoch, sent.first),
                    )
                )
            if position < answered:
                answers.append((sent, *answer))
        for sent, error, offset in answers:
            if not self._on_response(partition, sent, error, offset, findings):
                break
        for due, sent in [each for each in self._late if each[0] <= self._round]:
            self._late.remove((due, sent))
            self._deliver(
                partition, sent, findings
            )  # its producer already has the response, or a new epoch
        self.is_done = not self._window and not self._late and self._given == self._batches

    def _deliver(
        self, partition: Partition, sent: Sent, findings: Findings
    ) -> tuple[ErrorCode, int]:
        was_there = partition.copies[self.producer_id, sent.number] > 0
        error, offset, kind = partition.take(self.producer_id, sent)
        findings.answers[kind] += 1
        if (kind == REPEATED or error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER) and not was_there:
            findings.false_duplicates += 1
        return error, offset

    def _on_response(
        self, partition: Partition, sent: Sent, error: ErrorCode, offset: int, findings: Findings
    ) -> bool:
        """Process a response; return whether the responses after it still count."""
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._window.remove(sent)
            self._last_acknowledged_end = increment_sequence(sent.last, 1)
            findings.without_offset += offset == NOWHERE
            findings.misplaced += offset != NOWHERE and partition.log.get(offset) != (
                self.producer_id,
                sent.number,
            )
            findings.lost += partition.copies[self.producer_id, sent.number] == 0
            return True
        if sent is not self._window[0]:
            return True  # an earlier batch has no response yet: both are retried
        self._epoch += 1
        self._next = 0
        findings.new_epochs += 1
        for each in self._window:
            self._numbered(each)
        return False

    def _numbered(self, sent: Sent) -> Sent:
        if self._strays_in == sent.number and self._epoch == 0:
            self._next = LAST_SEQUENCE - 8 * RECORDS_MAX
        if self._forgets_in == sent.number and self._epoch == 0:
            self._next = 0
        sent.epoch, sent.first = self._epoch, self._next
        self._next = increment_sequence(sent.last, 1)
        return sent

    def _moment(self, percent: int, batches: int) -> int | None:
        return (
            self._random.randrange(1, max(batches, 2))
            if self._random.randrange(100) < percent
            else None
        )


def run_workload(
    kind: type[ProducerStateManager],
    scenario: Workload,
    producers: int,
    batches_each: int,
    seed: int,
) -> tuple[Findings, Partition]:
    """Run the workload with `producers` producers of `batches_each` batches; return the results."""
    findings, partition = Findings(batches=producers * batches_each), Partition(kind)
    network = Random(f"{seed}/network")
    waiting = [
        Producer(number, scenario, batches_each, Random(f"{seed}/{number}"))
        for number in range(producers)
    ]
    for _ in range(ROUNDS_MAX):
        for each in waiting:
            each.transmit(partition, findings)
        waiting = [each for each in waiting if not each.is_done]
        if not waiting:
            break
        if network.randrange(100) < scenario.restart_percent:
            partition.restart()
    assert not waiting, "every batch gets a response in the end"
    findings.doubled = sum(count > 1 for count in partition.copies.values())
    return findings, partition


def state_of(
    kind: type[ProducerStateManager], producers: int, batches_each: int
) -> ProducerStateManager:
    """Return the producer state after `producers` producers wrote `batches_each` batches each."""
    state = kind(ProducerStatePolicy())
    frame = bytearray(_frame(1))
    offset = 1000
    for sequence in range(batches_each):
        for producer_id in range(100_000, 100_000 + producers):
            PRODUCER.pack_into(frame, PRODUCER_AT, producer_id, 0, sequence)
            state.apply(RecordBatch(frame), offset)
            offset += 1
    return state


def _frame(count: int) -> bytes:
    records = [Record(timestamp=NOW_MS, value=b"v") for _ in range(count)]
    return build_batch(records, producer_id=0, producer_epoch=0, base_sequence=0)
