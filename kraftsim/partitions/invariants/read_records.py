"""What a consumer has read stays: each record that it returned is in the final log.

A leader serves records below its high watermark, which are on every in-sync replica. A consumer
that acts on a record which a failover removes has acted on something that never happened. It holds
for records without an acknowledgement, too: of other producers, of acks=1, and of transactions with
an unknown outcome. What retention, compaction or an unclean election removed was there.
Source: KIP-101, KIP-207; Jepsen's "lost write", seen from the reader.
"""

from kraftsim.clients.events import RecordRead
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.permitted_losses import (
    CLEANED_UNTIL,
    CLEANED_WATCHES,
    DELETED_WATCHES,
    UNCLEAN,
    UNCLEAN_WATCHES,
    CleanedLogs,
    DeletedTopics,
    UncleanElections,
    not_deleted,
    not_lost,
)
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import FinalLog, FinalRecord

NAME = "read-records-in-final-log"
Record = tuple[str, int, str, int]
"""Topic, partition, key, offset."""


class ReadsStay:
    """Collects what was read and the records of the final logs; compares them at the end."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._read: dict[Record, str] = {}
        self._offsets: dict[tuple[str, int, str], list[int]] = {}
        self._log_start_offset: dict[tuple[str, int], int] = {}
        self._unclean = UncleanElections()
        self._cleaned = CleanedLogs()
        self._deleted = DeletedTopics()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a record that was read, a final log or one of its records."""
        if isinstance(event, RecordRead):
            self._findings.examined += 1
            self._read.setdefault(
                (event.topic, event.partition, event.record_key, event.offset), envelope.event_id
            )
        elif isinstance(event, FinalRecord):
            self._offsets.setdefault((event.topic, event.partition, event.record_key), []).append(
                event.offset
            )
        elif isinstance(event, FinalLog) and event.record_count >= 0:
            log = (event.topic, event.partition)
            self._log_start_offset[log] = min(
                event.log_start_offset, self._log_start_offset.get(log, event.log_start_offset)
            )
        else:
            self._unclean.learn(event)
            self._cleaned.learn(event)
            self._deleted.learn(event)
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict; partitions whose final log was not read are skipped."""
        for (topic, partition, record_key, offset), event_id in self._read.items():
            log = (topic, partition)
            log_start_offset = self._log_start_offset.get(log)
            if log_start_offset is None or offset < log_start_offset or self._deleted.has(topic):
                continue
            offsets = self._offsets.get((topic, partition, record_key), [])
            if (
                offset in offsets
                or self._cleaned.may_have_dropped(log, offset, offsets)
                or self._unclean.may_have_lost(log, offset)
            ):
                continue
            self._findings.violation(
                f"{topic}/{partition}/{record_key}/{offset}",
                f"{topic}-{partition}: record {record_key} was read at offset {offset} and is not "
                "there in the final log",
                event_id,
            )
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    decides_without_nodes=True,
    rule="Every record that a consumer returned is in the final log of its partition, at its "
    "offset and under its key, unless retention, compaction or an unclean election removed it.",
    source="KIP-101, KIP-207",
    watches=(
        RecordRead,
        FinalLog,
        FinalRecord,
        *UNCLEAN_WATCHES,
        *CLEANED_WATCHES,
        *DELETED_WATCHES,
    ),
    check=ReadsStay,
    examined="SELECT run, count(*) FROM record_read GROUP BY run",
    violations=f"""
        WITH {UNCLEAN}, {CLEANED_UNTIL}, log AS (
            SELECT run, topic, partition, min(log_start_offset) AS log_start_offset
            FROM final_log WHERE record_count >= 0 GROUP BY run, topic, partition
        ), seen AS (
            SELECT run, topic, partition, record_key, r.offset AS read_offset,
                min(position) AS position
            FROM record_read AS r GROUP BY run, topic, partition, record_key, r.offset
        )
        SELECT
            a.run,
            concat(a.topic, '/', a.partition, '/', a.record_key, '/', a.read_offset) AS key,
            concat(a.topic, '-', a.partition, ': record ', a.record_key, ' was read at offset ',
                a.read_offset, ' and is not there in the final log') AS message,
            a.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM seen AS a JOIN log ON a.run = log.run AND a.topic = log.topic
            AND a.partition = log.partition
        LEFT JOIN cleaned_until AS c ON a.run = c.run AND a.topic = c.topic
            AND a.partition = c.partition
        WHERE a.read_offset >= log.log_start_offset AND NOT EXISTS (
            SELECT 1 FROM final_record AS f
            WHERE f.run = a.run AND f.topic = a.topic AND f.partition = a.partition
                AND f.record_key = a.record_key
                AND (f.offset = a.read_offset
                    OR (f.offset > a.read_offset AND c.cleaned_offset > a.read_offset))
        ) AND {not_lost("a", "a.read_offset")} AND {not_deleted("a")}
    """,
)
