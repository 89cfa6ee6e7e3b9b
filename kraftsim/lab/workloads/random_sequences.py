"""Random sequences of Produce requests: next, repeated, with a gap, of an older or a newer epoch,
in transactions or not.

Each answer is compared with that of Apache Kafka, and in the end the log with what was
acknowledged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kraftsim.cluster.exact_client import BUMPS_SINCE, ExactBatch, ExactClient, ExactTransactionalId
from kraftsim.cluster.scenario import ScenarioEnvironment, ScenarioFailed
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the scenario environment)


# --------------------------------------------------------------------------------------------------
# A reference model of how a partition answers batches of idempotent producers, written from Apache
# Kafka's documents for scenarios alone
#
# It shares no code with kraftsim's brokers. One producer writes at a time, and its request
# completes before the next one, so that each answer and its offset are known beforehand.
# Source: KIP-98, KIP-360, KIP-890, KAFKA-14920; ProducerAppendInfo,
# UnifiedLog.analyzeAndValidateProducerState.

SEQUENCES: Final = 2**31
"""Sequences wrap to 0 after the last one."""
BATCHES_KEPT: Final = 5
NOWHERE: Final = -1
ADDS_SINCE: Final = 12
"""The version of Produce since which the leader adds the partition to the transaction."""
Answer = tuple[ErrorCode, int]
"""An error, and the offset of the first record."""
OUT_OF_ORDER: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, NOWHERE)
OLD_EPOCH: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, NOWHERE)


@dataclass(frozen=True, slots=True)
class WrittenSequence:
    """A batch in the log."""

    base_sequence: int
    record_count: int
    first_offset: int

    @property
    def next_sequence(self) -> int:
        """The sequence that its producer continues with."""
        return (self.base_sequence + self.record_count) % SEQUENCES


@dataclass(slots=True)
class Known:
    """The state of a producer: the batches of its epoch, the newest last."""

    producer_epoch: int
    batches: list[WrittenSequence] = field(default_factory=list)

    @property
    def next_sequence(self) -> int:
        """The next sequence of its epoch."""
        return self.batches[-1].next_sequence if self.batches else 0


@dataclass(slots=True)
class PartitionRules:
    """One partition: the values in its log, and its producer state. A marker is a value of None."""

    values: list[bytes | None] = field(default_factory=list)
    may_forget: bool = False
    """Brokers were restarted: a producer snapshot has only the last batch of each producer."""
    known: dict[int, Known] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    """Producers with records of a transaction that has not ended."""
    lowest: dict[int, int] = field(default_factory=dict)
    """By producer, the lowest sequence of a batch with which its transaction could begin: that
    batch must be the first.
    """

    def answers(self, batch: ExactBatch) -> tuple[Answer, ...]:
        """Return the possible answers to a batch: mostly one.

        A transactional batch belongs to a transaction that the coordinator knows.
        """
        known = self.known.get(batch.producer_id)
        if known is not None and batch.producer_epoch == known.producer_epoch:
            for age, each in enumerate(reversed(known.batches[-BATCHES_KEPT:])):
                if (each.base_sequence, each.record_count) == (
                    batch.base_sequence,
                    len(batch.values),
                ):
                    duplicate = (ErrorCode.NONE, each.first_offset)
                    return (duplicate, OUT_OF_ORDER) if age and self.may_forget else (duplicate,)
        return (self._judged(batch, known),)

    def _judged(self, batch: ExactBatch, known: Known | None) -> Answer:
        if known is not None and batch.producer_epoch < known.producer_epoch:
            return OLD_EPOCH
        if batch.transactional_id is not None and batch.producer_id not in self.open:
            if batch.base_sequence > self.lowest.get(batch.producer_id, batch.base_sequence):
                return OUT_OF_ORDER
            if (
                batch.version >= ADDS_SINCE
                and batch.base_sequence
                and (known is None or not known.batches)
            ):
                return OUT_OF_ORDER
        if known is None:
            return self._end()
        expected = known.next_sequence if batch.producer_epoch == known.producer_epoch else 0
        return self._end() if batch.base_sequence == expected else OUT_OF_ORDER

    def _end(self) -> Answer:
        return ErrorCode.NONE, len(self.values)

    def ask(self, batch: ExactBatch) -> None:
        """Record a batch of a transaction before it is verified with the coordinator."""
        if batch.producer_id not in self.open:
            self.lowest[batch.producer_id] = min(
                batch.base_sequence, self.lowest.get(batch.producer_id, batch.base_sequence)
            )

    def take(self, batch: ExactBatch, answer: Answer) -> None:
        """Record the answer."""
        if answer != self._end():
            return
        known = self.known.get(batch.producer_id)
        if known is None or known.producer_epoch != batch.producer_epoch:
            known = self.known[batch.producer_id] = Known(batch.producer_epoch)
        known.batches.append(
            WrittenSequence(batch.base_sequence, len(batch.values), len(self.values))
        )
        self.values.extend(batch.values)
        if batch.transactional_id is not None:
            self.open.add(batch.producer_id)
            self.lowest.pop(batch.producer_id, None)

    def end(self, producer_id: int, producer_epoch: int) -> None:
        """Record the marker that ends a transaction, whose epoch may be higher than that of the
        batches.
        """
        known = self.known.get(producer_id)
        if known is None or known.producer_epoch != producer_epoch:
            self.known[producer_id] = Known(producer_epoch)
        self.open.discard(producer_id)
        self.lowest.pop(producer_id, None)
        self.values.append(None)


LAST_EPOCH: Final = 2**15 - 1
FIRST_SEQUENCES: Final = (0, 0, 0, 1, 7, SEQUENCES - 9, SEQUENCES - 3)
"""First sequences of an unknown producer: any is accepted (KIP-360). Some are about to wrap."""
FIRST_EPOCHS: Final = (0, 0, 5, LAST_EPOCH - 1)
RECORDS_MAX: Final = 3
REPEAT_MAX: Final = 7
"""The maximum age of a repeated batch: the partition keeps five batches, and no older ones."""
OLD_STYLE, NEW_STYLE = (11, 4), (ADDS_SINCE, BUMPS_SINCE)
"""Versions of Produce and EndTxn that clients use with transaction.version 1, and with 2."""
LATEST: Final = -1
LOOK_SECONDS: Final = 0.1


@dataclass(kw_only=True, slots=True)
class RandomSequence:
    """One partition, its producers, and the answers that are expected of it."""

    stage: ScenarioEnvironment
    client: ExactClient
    random: "Random"
    topic: str
    rules: PartitionRules = field(default_factory=PartitionRules)
    _said: int = 0

    async def run_steps(
        self, producer_ids: Sequence[int], steps: int, pause_seconds: float
    ) -> None:
        """Send random batches of random producers.

        Raises ScenarioFailed at an unexpected answer.
        """
        for _ in range(steps):
            producer_id = self.random.choice(producer_ids)
            await self._say(self._drawn(producer_id, self.rules.known.get(producer_id)))
            await self.stage.sleep(pause_seconds)

    async def transact(
        self, transactional_id: ExactTransactionalId, transactions: int, batches: int
    ) -> None:
        """Run transactions of a producer, each as old clients do or as new ones do.

        Raises ScenarioFailed.
        """
        producer = await transactional_id.take()
        for _ in range(transactions):
            versions = self.random.choice((OLD_STYLE, NEW_STYLE))
            if versions is OLD_STYLE:
                await transactional_id.add(producer)
            for _ in range(self.random.randint(1, batches)):
                await self._say_in_transaction(transactional_id.name, producer, versions[0])
            former, commits = producer, self.random.random() < 0.6
            producer = await transactional_id.end(former, commits=commits, version=versions[1])
            self.rules.end(*producer)
            await self._until_ended()

    async def audit(self) -> None:
        """Read everything.

        Raises ScenarioFailed unless it equals the acknowledged records, in order.
        """
        read, written = (
            await self.client.read_values(),
            [value for value in self.rules.values if value is not None],
        )
        if read != written:
            raise ScenarioFailed(
                f"{len(written)} records were acknowledged, but the {len(read)} records in the "
                "log differ"
            )

    async def _say_in_transaction(self, name: str, producer: tuple[int, int], version: int) -> None:
        known = self.rules.known.get(producer[0])
        sequence, count = self._sequences(
            known if known is not None and known.producer_epoch == producer[1] else None
        )
        await self._say(
            self._batch(*producer, sequence, count, transactional_id=name, version=version)
        )

    async def _say(self, batch: ExactBatch) -> None:
        if batch.transactional_id is not None:
            self.rules.ask(batch)
        expected = self.rules.answers(batch)
        answer = await self.client.write(batch)
        if answer not in expected:
            raise ScenarioFailed(
                f"producer {batch.producer_id}, epoch {batch.producer_epoch}, sequence "
                f"{batch.base_sequence}, {len(batch.values)} records: answered "
                f"{_in_words(answer)} instead of {' or '.join(map(_in_words, expected))}; known: "
                f"{self.rules.known.get(batch.producer_id)}"
            )
        self.rules.take(batch, answer)

    async def _until_ended(self) -> None:
        """Return when the marker is written.

        Raises ScenarioFailed if more than the marker was written.
        """
        wanted = len(self.rules.values)
        while (end := await self.client.offset_of(LATEST)) < wanted:
            await self.stage.sleep(LOOK_SECONDS)
        if end > wanted:
            raise ScenarioFailed(f"with its marker the log ends at {end} instead of {wanted}")

    # Draws
    # ----------------------------------------------------------------------------------------------

    def _drawn(self, producer_id: int, known: Known | None) -> ExactBatch:
        if known is None:
            return self._batch(
                producer_id, self.random.choice(FIRST_EPOCHS), *self._sequences(None)
            )
        epochs_ahead = self.random.choice((0, 0, 0, 0, 0, 0, 0, -1, 1, 1, 2))
        epoch = min(max(known.producer_epoch + epochs_ahead, 0), LAST_EPOCH)
        sequence, count = self._sequences(known)
        if epoch > known.producer_epoch and self.random.random() < 0.6:
            sequence = 0
        return self._batch(producer_id, epoch, sequence, count)

    def _sequences(self, known: Known | None) -> tuple[int, int]:
        """Draw the base sequence and the record count of a batch."""
        count = self.random.randint(1, RECORDS_MAX)
        if known is None:
            return self.random.choice(FIRST_SEQUENCES), count
        former = [*known.batches[-REPEAT_MAX:]] or [WrittenSequence(0, 1, 0)]
        match self.random.choice(
            ("next", "next", "next", "next", "again", "again", "last", "gap", "overlap", "anywhere")
        ):
            case "again":
                each = self.random.choice(former)
                return each.base_sequence, each.record_count
            case "last":
                return former[-1].base_sequence, former[-1].record_count
            case "gap":
                return (known.next_sequence + self.random.randint(1, 3)) % SEQUENCES, count
            case "overlap":
                return (known.next_sequence - 1) % SEQUENCES, self.random.randint(
                    1, RECORDS_MAX + 1
                )
            case "anywhere":
                return self.random.choice(
                    (0, 1, SEQUENCES - 1, self.random.randrange(SEQUENCES))
                ), count
            case _:
                return known.next_sequence, count

    def _batch(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        count: int,
        *,
        transactional_id: str | None = None,
        version: int = 9,
    ) -> ExactBatch:
        self._said += 1
        values = tuple(b"%d.%d" % (self._said, index) for index in range(count))
        return ExactBatch(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            values=values,
            transactional_id=transactional_id,
            version=version,
        )


def _in_words(answer: Answer) -> str:
    error, offset = answer
    return f"offset {offset}" if error is ErrorCode.NONE else error.name
