"""The work of stories about replicas: writers with idempotence and acks=all fill a replicated topic, and a reader finds every record exactly once.

What a story adds is what happens meanwhile. Every writer fills every partition, record by record, with several batches under way.
Source: KIP-98.
"""

from collections import Counter
from dataclasses import dataclass

from kraftsim.cluster.phases import CALLS_SECONDS, replicas_settle
from kraftsim.cluster.scenario import LivenessLost, Stage, StoryFailed
from kraftsim.cluster.workload import ProducerDriver
from protocol.errors import ErrorCode

TOPIC = "ledger"
WORKLOAD = {"writers": 3, "records_per_writer": 120, "pause_ms": 40}
"""The knobs that a story with a ledger has."""
SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.retention.ms": "-1",
    "producer.id.expiration.ms": str(2**31 - 1),
}
"""With two of three replicas any one may be away. Clocks may jump by days: no record and no producer may be forgotten for that."""

UNCLEAN = "unclean.leader.election.enable"
"""Where this is set, records may be lost; the invariants say which."""

MUST_EXERCISE = (
    "acknowledged-records-on-replicas",
    "records-in-final-log-once",
    "replicas-equal",
    "one-append-per-sequence",
    "one-partition-leader-per-epoch",
    "partition-log-matching",
    "partition-high-watermark-grows",
    "partition-high-watermark-replicated",
    "settles-after-heal",
)
"""What every story with a ledger puts to the test."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """A topic with three replicas and those who write to it."""

    partitions: int
    replicas: int = 3

    async def open(self, stage: Stage) -> None:
        """Create the topic."""
        await stage.create_topic(TOPIC, self.partitions, self.replicas)

    async def write(self, stage: Stage, number: int) -> None:
        """Be one writer: send every record, and wait until the fate of all is known."""
        writer = stage.producer(f"writer-{number}")
        await writer.start()
        await self.fill(stage, writer, number)

    async def fill(self, stage: Stage, writer: ProducerDriver, number: int) -> None:
        """Send every record of a writer that has its producer id, and wait until the fate of all is known."""
        for index in range(stage.workload("records_per_writer")):
            await writer.send(TOPIC, index % self.partitions, f"{number}.{index}", f"line {index} of writer {number}".encode())
            await stage.sleep(stage.workload("pause_ms") / 1000)
        left = await writer.flush(CALLS_SECONDS)
        await writer.close()
        if left:
            raise LivenessLost(f"writer-{number} still waits for {left} records {CALLS_SECONDS:g} s after it sent the last one")

    async def audit(self, stage: Stage) -> None:
        """Wait until all replicas are in sync, read everything, and compare. Raises StoryFailed unless every record is there exactly once.

        Where leaders may be elected uncleanly, what is lost is left to the invariants.
        """
        await replicas_settle(stage, TOPIC, self.partitions)
        reader = stage.reader("reader-1")
        read = Counter(record.key for record in await reader.read_all(TOPIC, range(self.partitions)))
        await reader.close()
        sent = [f"{number}.{index}" for number in self.writers(stage) for index in range(stage.workload("records_per_writer"))]
        lost, doubled = sum(not read[key] for key in sent), sum(read[key] > 1 for key in sent)
        if (lost and stage.spec.settings.get(UNCLEAN) != "true") or doubled:
            raise StoryFailed(f"of {len(sent)} records {lost} are not there and {doubled} were read more than once")

    async def refuse_old_readers(self, stage: Stage) -> None:
        """Read as those do that have not heard of the present leader. Raises StoryFailed unless each is told that its leader is of the past."""
        reader = stage.exact_client("reader-of-the-past", TOPIC)
        for leader_epoch in range(await reader.leader_epoch()):
            told = await reader.read_in_reign(leader_epoch)
            if told is not ErrorCode.FENCED_LEADER_EPOCH:
                raise StoryFailed(f"a reader that knows the leader of epoch {leader_epoch} was answered {told.name}")
        await reader.close()

    def writers(self, stage: Stage) -> range:
        """Return the numbers of the writers."""
        return range(1, stage.workload("writers") + 1)
