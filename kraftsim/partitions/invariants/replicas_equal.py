"""The final logs of in-sync replicas have the same batches, with the same offsets and bytes,
wherever both have records.

A log may start later or end earlier than another one. A checksum represents the bytes that it
covers: all but the offset and the leader epoch. Cleaned parts of compacted logs are not compared,
because each replica cleans its log independently.
Source: KIP-101; kafka.tools.ReplicaVerificationTool.
"""

from collections.abc import Iterator

from kraftsim.events.event import Event
from kraftsim.invariants.cleaned_logs import CLEANED_WATCHES, CleanedLogs, cleaned
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import FinalBatch, FinalLog, ReplicaInSync
from kraftsim.server.events import SegmentsCleaned

NAME = "replicas-equal"
Log = tuple[str, int]
Difference = tuple[int, str, str, str]
"""(index of the batch among all final batches, key, message, event id)."""


class SameBatches:
    """Collects the final logs of the in-sync replicas; compares them at the end of the run."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._in_sync: dict[Log, list[str]] = {}
        self._extent: dict[tuple[Log, str], tuple[int, int]] = {}
        self._cleaned = CleanedLogs()
        self._batches: dict[tuple[Log, str], dict[tuple[int, int, int], tuple[int, str]]] = {}
        """(log, broker) -> (first offset, last offset, checksum) -> (index, event id) of the first
        such batch.
        """
        self._batch_count = 0

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an in-sync replica, its final log or one of its batches."""
        assert isinstance(event, ReplicaInSync | FinalLog | FinalBatch | SegmentsCleaned)
        self._cleaned.learn(event)
        log = (event.topic, event.partition)
        if isinstance(event, ReplicaInSync):
            known = self._in_sync.setdefault(log, [])
            if event.broker not in known:
                known.append(event.broker)
        elif isinstance(event, FinalLog):
            self._extent[log, event.broker] = event.log_start_offset, event.next_offset
        elif isinstance(event, FinalBatch):
            batches = self._batches.setdefault((log, event.broker), {})
            self._batch_count += 1
            batches.setdefault(
                (event.first_offset, event.last_offset, event.crc),
                (self._batch_count, envelope.event_id),
            )
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict.

        Like the SQL, it keeps the violations whose batches were emitted first.
        """
        breaches: list[Difference] = []
        for log, brokers in self._in_sync.items():
            for broker in brokers:
                for other in brokers:
                    if other != broker and (log, other) in self._extent:
                        breaches += self._compare(log, broker, other)
        for _, key, message, event_id in sorted(breaches):
            self._findings.violation(key, message, event_id)
        return self._findings.verdict()

    def _compare(self, log: Log, broker: str, other: str) -> Iterator[Difference]:
        begins_at, ends_at = self._extent[log, other]
        others = self._batches.get((log, other), {})
        for (first_offset, last_offset, crc), (place, event_id) in self._batches.get(
            (log, broker), {}
        ).items():
            if (
                first_offset < begins_at
                or last_offset >= ends_at
                or self._cleaned.has_passed(log, first_offset)
            ):
                continue
            self._findings.examined += 1
            if (first_offset, last_offset, crc) not in others:
                message = (
                    f"{log[0]}-{log[1]}: the batch of {broker} at offset {first_offset} is not "
                    f"in the log of {other}"
                )
                yield place, f"{log[0]}/{log[1]}/{broker}/{other}/{first_offset}", message, event_id


_PAIR = f"""
    batch AS (
        SELECT run, topic, partition, broker, first_offset, last_offset, crc,
            min(position) AS position
        FROM final_batch GROUP BY run, topic, partition, broker, first_offset, last_offset, crc
    ), replica AS (
        SELECT DISTINCT run, topic, partition, broker FROM replica_in_sync
    ), pair AS (
        SELECT a.run, a.topic, a.partition, a.broker, other.broker AS other, a.first_offset,
            a.last_offset, a.crc, a.position
        FROM batch AS a
        JOIN replica AS own ON a.run = own.run AND a.topic = own.topic
            AND a.partition = own.partition AND a.broker = own.broker
        JOIN replica AS other ON a.run = other.run AND a.topic = other.topic
            AND a.partition = other.partition AND a.broker <> other.broker
        JOIN final_log AS log
            ON log.run = other.run AND log.topic = other.topic AND log.partition = other.partition
                AND log.broker = other.broker
        WHERE a.first_offset >= log.log_start_offset AND a.last_offset < log.next_offset
            AND NOT {cleaned("a", "a.first_offset")}
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="The final logs of in-sync replicas have the same batches wherever both have records.",
    source="KIP-101",
    watches=(ReplicaInSync, FinalLog, FinalBatch, *CLEANED_WATCHES),
    check=SameBatches,
    examined=f"WITH {_PAIR} SELECT run, count(*) FROM pair GROUP BY run",
    violations=f"""
        WITH {_PAIR}
        SELECT
            a.run,
            concat(a.topic, '/', a.partition, '/', a.broker, '/', a.other, '/',
                a.first_offset) AS key,
            concat(
                a.topic, '-', a.partition, ': the batch of ', a.broker, ' at offset ',
                    a.first_offset, ' is not in the log of ', a.other
            ) AS message,
            min(a.position) AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM pair AS a
        WHERE NOT EXISTS (
            SELECT 1 FROM batch AS b
            WHERE b.run = a.run AND b.topic = a.topic AND b.partition = a.partition
                AND b.broker = a.other
                AND b.first_offset = a.first_offset AND b.last_offset = a.last_offset
                    AND b.crc = a.crc
        )
        GROUP BY a.run, a.topic, a.partition, a.broker, a.other, a.first_offset
    """,
)
