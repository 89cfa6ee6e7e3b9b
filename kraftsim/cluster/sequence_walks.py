"""Walks through the sequences of producers, drawn step by step: in turn, again, with a gap, of an old epoch or a new one, in transactions or not.

Each answer is compared with what Apache Kafka answers, and in the end the log with what was acknowledged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kraftsim.cluster.exact_client import ExactBatch, ExactClient
from kraftsim.cluster.exact_transactions import BUMPS_SINCE, ExactTransactionalId
from kraftsim.cluster.scenario import Stage, StoryFailed
from kraftsim.cluster.sequence_rules import ADDS_SINCE, SEQUENCES, Answer, Known, PartitionRules, Written
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

LAST_EPOCH: Final = 2**15 - 1
FIRST_SEQUENCES: Final = (0, 0, 0, 1, 7, SEQUENCES - 9, SEQUENCES - 3)
"""Of a producer that the partition does not know: any will do (KIP-360). Some are about to wrap."""
FIRST_EPOCHS: Final = (0, 0, 5, LAST_EPOCH - 1)
RECORDS_MAX: Final = 3
AGAIN_MAX: Final = 7
"""How far back a repetition goes: five batches are known, what is older is not."""
OLD_STYLE, NEW_STYLE = (11, 4), (ADDS_SINCE, BUMPS_SINCE)
"""Versions of Produce and EndTxn by which clients speak that know version 1 of transactions, or version 2."""
LATEST: Final = -1
LOOK_SECONDS: Final = 0.1


@dataclass(kw_only=True, slots=True)
class Walk:
    """One partition, whoever writes to it, and what it must answer."""

    stage: Stage
    client: ExactClient
    random: "Random"
    topic: str
    rules: PartitionRules = field(default_factory=PartitionRules)
    _said: int = 0

    async def walk(self, producer_ids: Sequence[int], steps: int, pause_seconds: float) -> None:
        """Let producers speak, whichever is drawn. Raises StoryFailed at an answer that is not the right one."""
        for _ in range(steps):
            producer_id = self.random.choice(producer_ids)
            await self._say(self._drawn(producer_id, self.rules.known.get(producer_id)))
            await self.stage.sleep(pause_seconds)

    async def transact(self, transactional_id: ExactTransactionalId, transactions: int, batches: int) -> None:
        """Let a producer speak in transactions, as old clients do and as new ones do, one after the other. Raises StoryFailed."""
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
        """Read everything. Raises StoryFailed unless it is what was acknowledged, in its order."""
        read, written = await self.client.read_values(), [value for value in self.rules.values if value is not None]
        if read != written:
            raise StoryFailed(f"{len(written)} records were acknowledged, and {len(read)} are there, or others, or elsewhere")

    async def _say_in_transaction(self, name: str, producer: tuple[int, int], version: int) -> None:
        known = self.rules.known.get(producer[0])
        sequence, count = self._sequences(known if known is not None and known.producer_epoch == producer[1] else None)
        await self._say(self._batch(*producer, sequence, count, transactional_id=name, version=version))

    async def _say(self, said: ExactBatch) -> None:
        if said.transactional_id is not None:
            self.rules.ask(said)
        expected = self.rules.answers(said)
        told = await self.client.write(said)
        if told not in expected:
            raise StoryFailed(
                f"producer {said.producer_id}, epoch {said.producer_epoch}, sequence {said.base_sequence}, {len(said.values)} records: "
                f"answered {_in_words(told)} instead of {' or '.join(map(_in_words, expected))}; known are {self.rules.known.get(said.producer_id)}"
            )
        self.rules.take(said, told)

    async def _until_ended(self) -> None:
        """Return when the marker is written. Raises StoryFailed if more than that has come."""
        wanted = len(self.rules.values)
        while (end := await self.client.offset_of(LATEST)) < wanted:
            await self.stage.sleep(LOOK_SECONDS)
        if end > wanted:
            raise StoryFailed(f"with its marker the log ends at {end} instead of {wanted}")

    # Draws ---------------------------------------------------------------------------------------------------------------------------------

    def _drawn(self, producer_id: int, known: Known | None) -> ExactBatch:
        if known is None:
            return self._batch(producer_id, self.random.choice(FIRST_EPOCHS), *self._sequences(None))
        epochs_ahead = self.random.choice((0, 0, 0, 0, 0, 0, 0, -1, 1, 1, 2))
        epoch = min(max(known.producer_epoch + epochs_ahead, 0), LAST_EPOCH)
        sequence, count = self._sequences(known)
        if epoch > known.producer_epoch and self.random.random() < 0.6:
            sequence = 0
        return self._batch(producer_id, epoch, sequence, count)

    def _sequences(self, known: Known | None) -> tuple[int, int]:
        """Draw where a batch begins, and how many records it has."""
        count = self.random.randint(1, RECORDS_MAX)
        if known is None:
            return self.random.choice(FIRST_SEQUENCES), count
        former = [*known.batches[-AGAIN_MAX:]] or [Written(0, 1, 0)]
        match self.random.choice(("next", "next", "next", "next", "again", "again", "last", "gap", "overlap", "anywhere")):
            case "again":
                each = self.random.choice(former)
                return each.base_sequence, each.record_count
            case "last":
                return former[-1].base_sequence, former[-1].record_count
            case "gap":
                return (known.next_sequence + self.random.randint(1, 3)) % SEQUENCES, count
            case "overlap":
                return (known.next_sequence - 1) % SEQUENCES, self.random.randint(1, RECORDS_MAX + 1)
            case "anywhere":
                return self.random.choice((0, 1, SEQUENCES - 1, self.random.randrange(SEQUENCES))), count
            case _:
                return known.next_sequence, count

    def _batch(self, producer_id: int, epoch: int, sequence: int, count: int, *, transactional_id: str | None = None, version: int = 9) -> ExactBatch:
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
