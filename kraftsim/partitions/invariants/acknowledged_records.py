"""What a producer was promised: each acknowledged record is in the log, on all replicas, and once.

The checks compare what clients received with the logs that are read from the disks at the end of a
run. What retention, compaction or an unclean election removed is not lost.
"""

from itertools import islice

from kraftsim.clients.events import RecordAcknowledged, RecordSent
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.permitted_losses import (
    CLEANED_UNTIL,
    CLEANED_WATCHES,
    DELETED_WATCHES,
    OVERTAKEN,
    OVERTAKEN_WATCHES,
    UNCLEAN,
    UNCLEAN_WATCHES,
    CleanedLogs,
    DeletedTopics,
    OvertakenBeginnings,
    UncleanElections,
    not_deleted,
    not_lost,
    not_overtaken,
)
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import FinalLog, FinalRecord, ReplicaInSync

NO_OFFSET = -1
"""The broker returned no offset: the key may then be anywhere in the log."""
UNREAD = "the final log of a partition with acknowledged records was not read"


class FinalRecords:
    """Every acknowledged record is in the final log of its partition, at its acknowledged offset
    and under its key.

    The key matters because after a loss another record may occupy the offset. The final log is read
    from the segments on disk, never from a broker's in-memory state. A record below the log start
    offset was deleted by retention and is not lost. Neither are records discarded by an unclean
    election, records that compaction removed because the log contains a later record of the key,
    and records that the range check of KIP-758 reported as duplicates because the producer's first
    appended batch had a later sequence. Topics that were deleted are not checked.

    Collects acknowledgements and the records of the final logs; compares them at the end of the
    run.

    Source: KIP-98 and the semantics of acks=all; Jepsen's "lost write" (jepsen.tests.kafka).
    """

    def __init__(self) -> None:
        self._findings = Findings("acknowledged-records-in-final-log")
        self._acknowledged: dict[tuple[str, int, str, int], str] = {}
        self._offsets: dict[tuple[str, int, str], list[int]] = {}
        self._log_start_offset: dict[tuple[str, int], int] = {}
        self._unclean = UncleanElections()
        self._cleaned = CleanedLogs()
        self._overtaken = OvertakenBeginnings()
        self._deleted = DeletedTopics()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an acknowledgement, a final log or one of its records."""
        if isinstance(event, RecordAcknowledged):
            self._findings.examined += 1
            self._acknowledged.setdefault(
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
            self._overtaken.learn(event)
            self._deleted.learn(event)
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict; it is unknown if a partition's final log was not
        read.
        """
        undecidable = ""
        for (topic, partition, record_key, offset), event_id in self._acknowledged.items():
            log_start_offset = self._log_start_offset.get((topic, partition))
            if self._deleted.has(topic):
                continue
            if log_start_offset is None:
                undecidable = UNREAD
            elif self._is_in_log(topic, partition, record_key, offset) or self._is_given_up(
                (topic, partition), record_key, offset
            ):
                continue
            elif max(offset, 0) >= log_start_offset:
                message = (
                    f"{topic}-{partition}: record {record_key} was acknowledged at offset "
                    f"{offset} and is not there in the final log"
                )
                self._findings.violation(
                    f"{topic}/{partition}/{record_key}/{offset}", message, event_id
                )
        return self._findings.verdict(undecidable)

    def _is_given_up(self, log: tuple[str, int], record_key: str, offset: int) -> bool:
        return self._unclean.may_have_lost(log, offset) or self._overtaken.may_have_lost(
            log, record_key, offset
        )

    def _is_in_log(self, topic: str, partition: int, record_key: str, offset: int) -> bool:
        offsets = self._offsets.get((topic, partition, record_key), [])
        if offset == NO_OFFSET or offset in offsets:
            return bool(offsets)
        return self._cleaned.may_have_dropped((topic, partition), offset, offsets)


ACKNOWLEDGED_RECORDS_IN_FINAL_LOG = Invariant(
    name="acknowledged-records-in-final-log",
    decides_without_nodes=True,
    rule="Every acknowledged record is in the final log of its partition, at its acknowledged "
    "offset and under its key.",
    source="KIP-98",
    watches=(
        RecordAcknowledged,
        FinalLog,
        FinalRecord,
        *UNCLEAN_WATCHES,
        *CLEANED_WATCHES,
        *OVERTAKEN_WATCHES,
        *DELETED_WATCHES,
    ),
    check=FinalRecords,
    examined="SELECT run, count(*) FROM record_acknowledged GROUP BY run",
    violations=f"""
        WITH {UNCLEAN}, {CLEANED_UNTIL}, {OVERTAKEN}, log AS (
            SELECT run, topic, partition, min(log_start_offset) AS log_start_offset
            FROM final_log WHERE record_count >= 0 GROUP BY run, topic, partition
        ), lost AS (
            SELECT a.run, a.topic, a.partition, a.record_key, a.offset AS reported_offset,
                a.position
            FROM record_acknowledged AS a JOIN log ON a.run = log.run AND a.topic = log.topic
                AND a.partition = log.partition
            LEFT JOIN cleaned_until AS c ON a.run = c.run AND a.topic = c.topic
                AND a.partition = c.partition
            WHERE greatest(a.offset, 0) >= log.log_start_offset AND NOT EXISTS (
                SELECT 1 FROM final_record AS f
                WHERE f.run = a.run AND f.topic = a.topic AND f.partition = a.partition
                    AND f.record_key = a.record_key
                    AND (a.offset = -1 OR f.offset = a.offset OR (f.offset > a.offset
                        AND c.cleaned_offset > a.offset))
            ) AND {not_lost("a", "a.offset")} AND {not_overtaken("a", "a.offset")}
                AND {not_deleted("a")}
        )
        SELECT
            run,
            concat(topic, '/', partition, '/', record_key, '/', reported_offset) AS key,
            concat(
                topic, '-', partition, ': record ', record_key, ' was acknowledged at offset ',
                    reported_offset, ' and is not there in the final log'
            ) AS message,
            min(position) AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM lost GROUP BY run, topic, partition, record_key, reported_offset
    """,
    undecidable=f"""
        SELECT DISTINCT a.run, '{UNREAD}' AS reason
        FROM record_acknowledged AS a
        WHERE NOT EXISTS (
            SELECT 1 FROM final_log AS log WHERE log.record_count >= 0 AND log.run = a.run
                AND log.topic = a.topic AND log.partition = a.partition
        ) AND {not_deleted("a")}
    """,
)


"""The broker returned no offset: the key may then be anywhere in the log."""
UNREAD_REPLICA = "the final log of a replica that is in sync was not read"


class OnEveryReplica:
    """Every acknowledged record is in the final log of each in-sync replica.

    The invariant acknowledged-records-in-final-log accepts the log of any broker, but any in-sync
    replica may become the next leader. A replica is in sync if all brokers reported it so to the
    harness. What was acknowledged before the last such report is compared: a replica that left the
    ISR after it need not have the records that were acknowledged later, as when a run ends in the
    middle of an upgrade. The key must match as well. A record below the log
    start offset was deleted by retention and is not lost. Neither are records discarded by an
    unclean election, records that compaction removed because the log contains a later record of the
    key, and records that the range check of KIP-758 reported as duplicates because the producer's
    first appended batch had a later sequence. Topics that were deleted are not checked.

    Collects acknowledgements, in-sync replicas and the records of their logs; compares them at the
    end of the run.

    Source: KIP-98 and the semantics of acks=all;
    org.apache.kafka.common.errors.NotEnoughReplicasException.
    """

    def __init__(self) -> None:
        self._findings = Findings("acknowledged-records-on-replicas")
        self._acknowledged: dict[tuple[str, int], dict[tuple[str, int], str]] = {}
        self._in_sync: dict[tuple[str, int], dict[str, int]] = {}
        """Partition -> replica -> how many of its acknowledged records it must have, in order."""
        self._offsets: dict[tuple[str, str, int, str], list[int]] = {}
        self._log_start_offset: dict[tuple[str, str, int], int] = {}
        self._unclean = UncleanElections()
        self._cleaned = CleanedLogs()
        self._overtaken = OvertakenBeginnings()
        self._deleted = DeletedTopics()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an acknowledgement, a replica, its final log or one of its records."""
        if isinstance(event, RecordAcknowledged):
            acknowledged = self._acknowledged.setdefault((event.topic, event.partition), {})
            acknowledged.setdefault((event.record_key, event.offset), envelope.event_id)
        elif isinstance(event, ReplicaInSync):
            log = (event.topic, event.partition)
            self._in_sync.setdefault(log, {})[event.broker] = len(self._acknowledged.get(log, {}))
        elif isinstance(event, FinalRecord):
            self._offsets.setdefault(
                (event.broker, event.topic, event.partition, event.record_key), []
            ).append(event.offset)
        elif isinstance(event, FinalLog) and event.record_count >= 0:
            self._log_start_offset[event.broker, event.topic, event.partition] = (
                event.log_start_offset
            )
        else:
            self._unclean.learn(event)
            self._cleaned.learn(event)
            self._overtaken.learn(event)
            self._deleted.learn(event)
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict; it is unknown if the log of a replica was not read."""
        undecidable = ""
        for (topic, partition), acknowledged in self._acknowledged.items():
            in_sync = {} if self._deleted.has(topic) else self._in_sync.get((topic, partition), {})
            for broker, count in in_sync.items():
                self._findings.examined += count
                log_start_offset = self._log_start_offset.get((broker, topic, partition))
                if log_start_offset is None:
                    undecidable = UNREAD_REPLICA if count else undecidable
                    continue
                for (record_key, offset), event_id in islice(acknowledged.items(), count):
                    offsets = self._offsets.get((broker, topic, partition, record_key), [])
                    if (
                        (offset in offsets)
                        or (offset == NO_OFFSET and offsets)
                        or max(offset, 0) < log_start_offset
                    ):
                        continue
                    if self._unclean.may_have_lost(
                        (topic, partition), offset
                    ) or self._cleaned.may_have_dropped((topic, partition), offset, offsets):
                        continue
                    if self._overtaken.may_have_lost((topic, partition), record_key, offset):
                        continue
                    message = (
                        f"{topic}-{partition}: record {record_key} was acknowledged at offset "
                        f"{offset} and is not there on {broker}"
                    )
                    self._findings.violation(
                        f"{broker}/{topic}/{partition}/{record_key}/{offset}", message, event_id
                    )
        return self._findings.verdict(undecidable)


_REPORTED = """reported AS (
            SELECT run, topic, partition, record_key, r.offset AS reported_offset,
                min(position) AS position
            FROM record_acknowledged AS r GROUP BY run, topic, partition, record_key, r.offset
        )"""
_LAST_IN_SYNC = """last_in_sync AS (
            SELECT run, topic, partition, broker, max(position) AS position
            FROM replica_in_sync GROUP BY run, topic, partition, broker
        )"""

ACKNOWLEDGED_RECORDS_ON_REPLICAS = Invariant(
    name="acknowledged-records-on-replicas",
    decides_without_nodes=True,
    rule="Every acknowledged record is in the final log of each replica that was in sync after it.",
    source="KIP-98",
    watches=(
        RecordAcknowledged,
        ReplicaInSync,
        FinalLog,
        FinalRecord,
        *UNCLEAN_WATCHES,
        *CLEANED_WATCHES,
        *OVERTAKEN_WATCHES,
        *DELETED_WATCHES,
    ),
    check=OnEveryReplica,
    examined=f"""
        WITH {_REPORTED}, {_LAST_IN_SYNC}
        SELECT a.run, count(*)
        FROM reported AS a JOIN last_in_sync AS r
            ON a.run = r.run AND a.topic = r.topic AND a.partition = r.partition
                AND a.position < r.position
        WHERE {not_deleted("a")} GROUP BY a.run
    """,
    violations=f"""
        WITH {UNCLEAN}, {CLEANED_UNTIL}, {OVERTAKEN}, {_REPORTED}, {_LAST_IN_SYNC}, replica AS (
            SELECT DISTINCT r.run, r.topic, r.partition, r.broker, r.position,
                log.log_start_offset
            FROM last_in_sync AS r JOIN final_log AS log
                ON r.run = log.run AND r.topic = log.topic AND r.partition = log.partition
                    AND r.broker = log.broker
            WHERE log.record_count >= 0
        )
        SELECT
            a.run,
            concat(r.broker, '/', a.topic, '/', a.partition, '/', a.record_key, '/',
                a.reported_offset) AS key,
            concat(
                a.topic, '-', a.partition, ': record ', a.record_key,
                    ' was acknowledged at offset ',
                    a.reported_offset, ' and is not there on ', r.broker
            ) AS message,
            a.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM reported AS a JOIN replica AS r ON a.run = r.run AND a.topic = r.topic
            AND a.partition = r.partition AND a.position < r.position
        LEFT JOIN cleaned_until AS c ON a.run = c.run AND a.topic = c.topic
            AND a.partition = c.partition
        WHERE greatest(a.reported_offset, 0) >= r.log_start_offset AND NOT EXISTS (
            SELECT 1 FROM final_record AS f
            WHERE f.run = a.run AND f.broker = r.broker AND f.topic = a.topic
                AND f.partition = a.partition AND f.record_key = a.record_key
                AND (a.reported_offset = -1 OR f.offset = a.reported_offset
                    OR (f.offset > a.reported_offset AND c.cleaned_offset > a.reported_offset))
        ) AND {not_lost("a", "a.reported_offset")} AND {not_overtaken("a", "a.reported_offset")}
            AND {not_deleted("a")}
    """,
    undecidable=f"""
        WITH {_LAST_IN_SYNC}
        SELECT DISTINCT a.run, '{UNREAD_REPLICA}' AS reason
        FROM record_acknowledged AS a JOIN last_in_sync AS r ON a.run = r.run
            AND a.topic = r.topic AND a.partition = r.partition AND a.position < r.position
        WHERE NOT EXISTS (
            SELECT 1 FROM final_log AS log
            WHERE log.record_count >= 0 AND log.run = r.run AND log.topic = r.topic
                AND log.partition = r.partition AND log.broker = r.broker
        ) AND {not_deleted("a")}
    """,
)


Record = tuple[str, int, str]
"""Topic, partition, key."""


class OftenAsSent:
    """No final log contains a record more often than a client sent it.

    A batch may hold other records than the one before it and have another sequence, so
    one-append-per-sequence does not find such duplicates; a consumer of the log does. Records are
    identified by key, in each replica's log. A client that gave up on a record and sends it again
    has sent it twice.

    Counts the records that clients sent and that the final logs contain; compares them at the end
    of the run.

    Source: KIP-98; Jepsen's "duplicate" (jepsen.tests.kafka).
    """

    def __init__(self) -> None:
        self._findings = Findings("records-in-final-log-once")
        self._sent: dict[Record, int] = {}
        self._found: dict[tuple[Record, str], list[str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a record that was sent, or a record of a final log."""
        if isinstance(event, RecordSent):
            record = (event.topic, event.partition, event.record_key)
            self._sent[record] = self._sent.get(record, 0) + 1
        elif isinstance(event, FinalRecord):
            found = ((event.topic, event.partition, event.record_key), event.broker)
            self._found.setdefault(found, []).append(envelope.event_id)
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict."""
        for ((topic, partition, record_key), broker), events in self._found.items():
            sent = self._sent.get((topic, partition, record_key), 0)
            self._findings.examined += len(events) if sent else 0
            if 0 < sent < len(events):
                message = (
                    f"{topic}-{partition}: record {record_key} was sent {sent} times and is in "
                    f"the final log {len(events)} times"
                )
                self._findings.violation(
                    f"{broker}/{topic}/{partition}/{record_key}", message, events[0], events[-1]
                )
        return self._findings.verdict()


RECORDS_IN_FINAL_LOG_ONCE = Invariant(
    name="records-in-final-log-once",
    rule="No final log contains a record more often than a client sent it.",
    source="KIP-98",
    watches=(RecordSent, FinalRecord),
    check=OftenAsSent,
    examined="""
        SELECT f.run, count(*) FROM final_record AS f
        WHERE EXISTS (
            SELECT 1 FROM record_sent AS s WHERE s.run = f.run AND s.topic = f.topic
                AND s.partition = f.partition AND s.record_key = f.record_key
        ) GROUP BY f.run
    """,
    violations="""
        WITH sent AS (
            SELECT run, topic, partition, record_key, count(*) AS times FROM record_sent
                GROUP BY run, topic, partition, record_key
        ), found AS (
            SELECT run, broker, topic, partition, record_key, count(*) AS times,
                min(position) AS first_position, max(position) AS last_position
            FROM final_record GROUP BY run, broker, topic, partition, record_key HAVING count(*) > 1
        )
        SELECT
            found.run,
            concat(found.broker, '/', found.topic, '/', found.partition, '/',
                found.record_key) AS key,
            concat(
                found.topic, '-', found.partition, ': record ', found.record_key, ' was sent ',
                    sent.times, ' times and is in the final log ',
                found.times, ' times'
            ) AS message,
            found.first_position AS first_witness,
            found.last_position AS second_witness
        FROM found JOIN sent
            ON found.run = sent.run AND found.topic = sent.topic
                AND found.partition = sent.partition AND found.record_key = sent.record_key
        WHERE found.times > sent.times
    """,
)


INVARIANTS = (
    ACKNOWLEDGED_RECORDS_IN_FINAL_LOG,
    ACKNOWLEDGED_RECORDS_ON_REPLICAS,
    RECORDS_IN_FINAL_LOG_ONCE,
)
