"""One seeded workload, put to one kind of producer state: producers that send in order, and a network that loses, repeats and delays.

A producer keeps several batches under way, and sends again what it was not answered. What it makes of an answer is what Apache Kafka's does: what is
out of order is sent again as long as earlier batches have no answer, and the producer takes a new epoch where there are none. What is drawn does not
depend on the answers, as far as two kinds of state give the same ones. Nobody but this judge knows which record is which.

Source: KIP-98, KIP-360, KIP-758; org.apache.kafka.clients.producer.internals.TransactionManager.canRetry.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from struct import Struct

from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.core.producer_state.policy import ProducerStatePolicy
from kraftsim.core.producer_state.sequence import increment_sequence
from kraftsim.core.producer_state.snapshot import snapshot_rows, state_entries
from kraftsim.core.producer_state.verdict import Append, Duplicate
from protocol.batches import RecordBatch, build_batch
from protocol.errors import ErrorCode
from protocol.records import Record

PRODUCER_AT = 43
"""Where a batch says whose it is: producer id, epoch, base sequence."""
PRODUCER = Struct(">qhi")
RECORDS_MAX = 4
LAST_SEQUENCE = 2**31 - 1
NOWHERE = -1
ROUNDS_MAX = 10_000
NEW, REPEATED = "0, new", "0, a duplicate with its offset"
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What happens to producers. Shares are of one in a hundred: of transmissions, rounds or producers."""

    name: str
    in_flight: int = 5
    broken_percent: int = 20
    """Transmissions in which the connection breaks: some of what was sent has arrived, and some of that is answered."""
    late_percent: int = 0
    """Batches of which a copy arrives once more, up to thirty batches later."""
    restart_percent: int = 0
    """Rounds behind which the broker starts again from its snapshot."""
    first_sequence: int = 0
    forgets_percent: int = 0
    """Producers that once begin at sequence 0 again, in the same epoch."""
    astray_percent: int = 0
    """Producers that once go on with numbers they never used, from shortly before 2^31-1, in the same epoch."""


STORIES = (
    Story(name="nothing is lost", broken_percent=0),
    Story(name="answers are lost"),
    Story(name="late copies arrive", late_percent=20),
    Story(name="across the end of the numbers", first_sequence=LAST_SEQUENCE - 40),
    Story(name="the broker starts again", restart_percent=30),
    Story(name="20 in flight", in_flight=20),
    Story(name="20 in flight, the broker starts again", in_flight=20, restart_percent=30),
    Story(name="a producer forgets its sequence", forgets_percent=100),
    Story(name="a producer goes astray", astray_percent=100),
)


@dataclass(slots=True)
class Sent:
    """A batch of one producer: which one it is, how many records it has, and under which numbers it was sent."""

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
    """What came of it. Counts are of batches."""

    answers: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    doubled: int = 0
    """In the log twice, or more often."""
    lost: int = 0
    """Acknowledged, and not in the log."""
    false_duplicates: int = 0
    """Called a duplicate when they were in no log yet."""
    misplaced: int = 0
    """Acknowledged at an offset where something else is."""
    without_offset: int = 0
    """Acknowledged without being told where."""
    new_epochs: int = 0

    @property
    def harm(self) -> tuple[int, int, int, int]:
        """What a promise was broken by: doubled, lost, false duplicates, misplaced."""
        return self.doubled, self.lost, self.false_duplicates, self.misplaced


class Partition:
    """The log and the producer state of one partition, of one kind. The log remembers which batch is where."""

    def __init__(self, kind: type[ProducerStateManager]) -> None:
        self._kind = kind
        self.state = kind(ProducerStatePolicy())
        self.log: dict[int, tuple[int, int]] = {}
        self.copies: Counter[tuple[int, int]] = Counter()
        self._end_offset = 0
        self._frames = {count: bytearray(_frame(count)) for count in range(1, RECORDS_MAX + 1)}

    def take(self, producer_id: int, sent: Sent) -> tuple[ErrorCode, int, str]:
        """Judge a batch as a leader does; return the error, the offset, and which answer that is."""
        frame = self._frames[sent.count]
        PRODUCER.pack_into(frame, PRODUCER_AT, producer_id, sent.epoch, sent.first)
        batch = RecordBatch(frame)
        verdict = self.state.check(batch)
        if isinstance(verdict, Append):
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
        """Forget what no snapshot holds."""
        rows = list(snapshot_rows(self.state.entries.values()))
        self.state = self._kind(ProducerStatePolicy())
        self.state.load(state_entries(rows, self._kind.entry_class), NOW_MS)


class Producer:
    """One producer of one partition."""

    def __init__(self, producer_id: int, story: Story, batches: int, random: Random) -> None:
        self.producer_id = producer_id
        self._story = story
        self._random = random
        self._batches = batches
        self._given = 0
        self._window: list[Sent] = []
        self._epoch = 0
        self._next = self._last_acknowledged_end = story.first_sequence
        self._late: list[tuple[int, Sent]] = []
        self._round = 0
        self._strays_in = self._moment(story.astray_percent, batches)
        self._forgets_in = self._moment(story.forgets_percent, batches)
        self.is_done = False

    def transmit(self, partition: Partition, findings: Findings) -> None:
        """Fill the window, send it, and take the answers that come."""
        self._round += 1
        story, random = self._story, self._random
        while len(self._window) < story.in_flight and self._given < self._batches:
            self._window.append(self._numbered(Sent(self._given, random.randint(1, RECORDS_MAX))))
            self._given += 1
        arriving = answered = len(self._window)
        if random.randrange(100) < story.broken_percent:
            arriving = random.randint(0, story.in_flight)
            answered = random.randint(0, arriving)
        answers = []
        for position, sent in enumerate(self._window[:arriving]):
            answer = self._deliver(partition, sent, findings)
            if random.randrange(100) < story.late_percent:
                self._late.append((self._round + random.randint(1, 30) // story.in_flight, Sent(sent.number, sent.count, sent.epoch, sent.first)))
            if position < answered:
                answers.append((sent, *answer))
        for sent, error, offset in answers:
            if not self._heard(partition, sent, error, offset, findings):
                break
        for due, sent in [each for each in self._late if each[0] <= self._round]:
            self._late.remove((due, sent))
            self._deliver(partition, sent, findings)  # whoever sent it has its answer, or has a new epoch
        self.is_done = not self._window and not self._late and self._given == self._batches

    def _deliver(self, partition: Partition, sent: Sent, findings: Findings) -> tuple[ErrorCode, int]:
        was_there = partition.copies[self.producer_id, sent.number] > 0
        error, offset, kind = partition.take(self.producer_id, sent)
        findings.answers[kind] += 1
        if (kind == REPEATED or error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER) and not was_there:
            findings.false_duplicates += 1
        return error, offset

    def _heard(self, partition: Partition, sent: Sent, error: ErrorCode, offset: int, findings: Findings) -> bool:
        """Act by an answer; tell whether those behind it still count."""
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._window.remove(sent)
            self._last_acknowledged_end = increment_sequence(sent.last, 1)
            findings.without_offset += offset == NOWHERE
            findings.misplaced += offset != NOWHERE and partition.log.get(offset) != (self.producer_id, sent.number)
            findings.lost += partition.copies[self.producer_id, sent.number] == 0
            return True
        if sent is not self._window[0]:
            return True  # an earlier one has no answer yet: both are sent again
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
        return self._random.randrange(1, max(batches, 2)) if self._random.randrange(100) < percent else None


def play(kind: type[ProducerStateManager], story: Story, producers: int, batches_each: int, seed: int) -> tuple[Findings, Partition]:
    """Let so many producers send so many batches each, and say what came of it."""
    findings, partition = Findings(batches=producers * batches_each), Partition(kind)
    network = Random(f"{seed}/network")
    waiting = [Producer(number, story, batches_each, Random(f"{seed}/{number}")) for number in range(producers)]
    for _ in range(ROUNDS_MAX):
        for each in waiting:
            each.transmit(partition, findings)
        waiting = [each for each in waiting if not each.is_done]
        if not waiting:
            break
        if network.randrange(100) < story.restart_percent:
            partition.restart()
    assert not waiting, "every batch gets its answer some time"
    findings.doubled = sum(count > 1 for count in partition.copies.values())
    return findings, partition


def remembered(kind: type[ProducerStateManager], producers: int, batches_each: int) -> ProducerStateManager:
    """Return the state of so many producers that wrote so many batches each, and nothing else."""
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
