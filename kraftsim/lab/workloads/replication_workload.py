"""The replication workload: idempotent writers with acks=all fill a replicated topic, and a reader
must find every record exactly once.

A scenario adds faults and administrative actions. Every writer fills every partition, record by
record, with several batches in flight.
Source: KIP-98.
"""

from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass

from kraftsim.cluster.scenario import (
    LivenessLost,
    ProducerDriver,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.lab.workloads.phases import CALLS_SECONDS, replicas_settle, under_faults
from kraftsim.lab.workloads.worn_sequences import producer_of
from protocol.errors import ErrorCode

TOPIC = "ledger"
WORKLOAD = {"writers": 3, "records_per_writer": 120, "pause_ms": 40}
"""The workload parameters of a scenario with this workload."""
KEEPS_ANY_DATE = {"log.message.timestamp.after.max.ms": str(2**63 - 1)}
"""Since 4.0 a broker rejects by default what is dated more than an hour ahead of its own clock
(KIP-1030), and clocks may jump back by more.
"""
UNDER_ANY_CLOCK = {
    "log.retention.ms": "-1",
    "producer.id.expiration.ms": str(2**31 - 1),
    **KEEPS_ANY_DATE,
}
"""Clocks may jump by days: that must expire no record and no producer, and reject no record."""
SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    **UNDER_ANY_CLOCK,
}
"""With two of three replicas in sync, any one may be down."""

UNCLEAN = "unclean.leader.election.enable"
"""With this setting records may be lost; the invariants check which."""

MUST_EXERCISE = (
    "acknowledged-records-on-replicas",
    "records-in-final-log-once",
    "replicas-equal",
    "one-append-per-sequence",
    "one-partition-leader-per-epoch",
    "partition-log-matching",
    "partition-high-watermark-monotonic",
    "partition-high-watermark-replicated",
    "recovers-after-heal",
)
"""Invariants that every scenario with this workload must exercise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicationWorkload:
    """A topic with three replicas and the writers that write to it."""

    partitions: int
    replicas: int = 3

    async def open(self, stage: ScenarioEnvironment) -> None:
        """Create the topic."""
        await stage.create_topic(TOPIC, self.partitions, self.replicas)

    async def run(self, stage: ScenarioEnvironment, *beside: Awaitable[object]) -> None:
        """Create the topic, write to it under faults, beside other work, heal, and audit it."""
        await self.open(stage)
        writers = (self.write(stage, number) for number in self.writers(stage))
        await under_faults(stage, *writers, *beside, seconds=stage.workload("work_ms") / 1000)
        await self.audit(stage)

    async def write(self, stage: ScenarioEnvironment, number: int) -> None:
        """Run one writer: send every record, and wait until each is acknowledged or failed."""
        writer = producer_of(stage, f"writer-{number}")
        await writer.start()
        await self.fill(stage, writer, number)

    async def fill(self, stage: ScenarioEnvironment, writer: ProducerDriver, number: int) -> None:
        """Send every record of a writer that has its producer id, and wait until each is
        acknowledged or failed.
        """
        for index in range(stage.workload("records_per_writer")):
            await writer.send(
                TOPIC,
                index % self.partitions,
                f"{number}.{index}",
                f"line {index} of writer {number}".encode(),
            )
            await stage.sleep(stage.workload("pause_ms") / 1000)
        left = await writer.flush(CALLS_SECONDS)
        await writer.close()
        if left:
            raise LivenessLost(
                f"writer-{number} has {left} unacknowledged records {CALLS_SECONDS:g} s after it "
                "sent the last one"
            )

    async def audit(self, stage: ScenarioEnvironment) -> None:
        """Wait until all replicas are in sync, read everything, and compare.

        Raises ScenarioFailed unless every record is there exactly once.

        With unclean leader election, losses are left to the invariants.
        """
        await replicas_settle(stage, TOPIC, self.partitions)
        reader = stage.reader("reader-1")
        read = Counter(
            record.key for record in await reader.read_all(TOPIC, range(self.partitions))
        )
        await reader.close()
        sent = [
            f"{number}.{index}"
            for number in self.writers(stage)
            for index in range(stage.workload("records_per_writer"))
        ]
        lost, doubled = sum(not read[key] for key in sent), sum(read[key] > 1 for key in sent)
        if (lost and stage.spec.settings.get(UNCLEAN) != "true") or doubled:
            raise ScenarioFailed(
                f"of {len(sent)} records {lost} are missing and {doubled} are duplicated"
            )

    async def refuse_old_readers(self, stage: ScenarioEnvironment) -> None:
        """Fetch with leader epochs of the past, as consumers with stale metadata do.

        Raises ScenarioFailed unless each gets FENCED_LEADER_EPOCH.
        """
        reader = stage.exact_client("reader-of-the-past", TOPIC)
        for leader_epoch in range(await reader.leader_epoch()):
            error = await reader.fetch_with_epoch(leader_epoch)
            if error is not ErrorCode.FENCED_LEADER_EPOCH:
                raise ScenarioFailed(
                    f"a consumer with leader epoch {leader_epoch} was answered {error.name}"
                )
        await reader.close()

    def writers(self, stage: ScenarioEnvironment) -> range:
        """Return the numbers of the writers."""
        return range(1, stage.workload("writers") + 1)
