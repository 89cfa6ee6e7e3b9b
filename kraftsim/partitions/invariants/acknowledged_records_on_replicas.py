"""Every acknowledged record is in the final log of each in-sync replica.

The invariant acknowledged-records-in-final-log accepts the log of any broker, but any in-sync
replica may become the next leader. A replica is in sync if all brokers reported it so to the
harness after the last fault was healed. The key must match as well. A record below the log start
offset was deleted by retention and is not lost. Neither are records discarded by an unclean
election, records that compaction removed because the log contains a later record of the key, and
records that the range check of KIP-758 reported as duplicates because the producer's first appended
batch had a later sequence.
Source: KIP-98 and the semantics of acks=all;
org.apache.kafka.common.errors.NotEnoughReplicasException.
"""

from kraftsim.clients.events import RecordAcknowledged
from kraftsim.events.event import Event
from kraftsim.invariants.cleaned_logs import CLEANED_UNTIL, CLEANED_WATCHES, CleanedLogs
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.overtaken_beginnings import (
    OVERTAKEN,
    OVERTAKEN_WATCHES,
    OvertakenBeginnings,
    not_overtaken,
)
from kraftsim.invariants.unclean_elections import (
    UNCLEAN,
    UNCLEAN_WATCHES,
    UncleanElections,
    not_lost,
)
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import FinalLog, FinalRecord, ReplicaInSync

NAME = "acknowledged-records-on-replicas"
NO_OFFSET = -1
"""The broker returned no offset: the key may then be anywhere in the log."""
UNREAD = "the final log of a replica that is in sync was not read"


class OnEveryReplica:
    """Collects acknowledgements, in-sync replicas and the records of their logs; compares them at
    the end of the run.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._acknowledged: dict[tuple[str, int], dict[tuple[str, int], str]] = {}
        self._in_sync: dict[tuple[str, int], dict[str, str]] = {}
        self._offsets: dict[tuple[str, str, int, str], list[int]] = {}
        self._log_start_offset: dict[tuple[str, str, int], int] = {}
        self._unclean = UncleanElections()
        self._cleaned = CleanedLogs()
        self._overtaken = OvertakenBeginnings()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an acknowledgement, a replica, its final log or one of its records."""
        if isinstance(event, RecordAcknowledged):
            acknowledged = self._acknowledged.setdefault((event.topic, event.partition), {})
            acknowledged.setdefault((event.record_key, event.offset), envelope.event_id)
        elif isinstance(event, ReplicaInSync):
            self._in_sync.setdefault((event.topic, event.partition), {}).setdefault(
                event.broker, envelope.event_id
            )
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
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict; it is unknown if the log of a replica was not read."""
        undecidable = ""
        for (topic, partition), acknowledged in self._acknowledged.items():
            for broker in self._in_sync.get((topic, partition), {}):
                self._findings.examined += len(acknowledged)
                log_start_offset = self._log_start_offset.get((broker, topic, partition))
                if log_start_offset is None:
                    undecidable = UNREAD
                    continue
                for (record_key, offset), event_id in acknowledged.items():
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


INVARIANT = Invariant(
    name=NAME,
    rule="Every acknowledged record is in the final log of each in-sync replica.",
    source="KIP-98",
    watches=(
        RecordAcknowledged,
        ReplicaInSync,
        FinalLog,
        FinalRecord,
        *UNCLEAN_WATCHES,
        *CLEANED_WATCHES,
        *OVERTAKEN_WATCHES,
    ),
    check=OnEveryReplica,
    examined="""
        SELECT a.run, count(*)
        FROM (SELECT DISTINCT run, topic, partition, record_key, reported.offset AS reported_offset
            FROM record_acknowledged AS reported) AS a
        JOIN (SELECT DISTINCT run, topic, partition, broker FROM replica_in_sync) AS r
            ON a.run = r.run AND a.topic = r.topic AND a.partition = r.partition
        GROUP BY a.run
    """,
    violations=f"""
        WITH {UNCLEAN}, {CLEANED_UNTIL}, {OVERTAKEN}, reported AS (
            SELECT run, topic, partition, record_key, r.offset AS reported_offset,
                min(position) AS position
            FROM record_acknowledged AS r GROUP BY run, topic, partition, record_key, r.offset
        ), replica AS (
            SELECT DISTINCT r.run, r.topic, r.partition, r.broker, log.log_start_offset
            FROM replica_in_sync AS r JOIN final_log AS log
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
            AND a.partition = r.partition
        LEFT JOIN cleaned_until AS c ON a.run = c.run AND a.topic = c.topic
            AND a.partition = c.partition
        WHERE greatest(a.reported_offset, 0) >= r.log_start_offset AND NOT EXISTS (
            SELECT 1 FROM final_record AS f
            WHERE f.run = a.run AND f.broker = r.broker AND f.topic = a.topic
                AND f.partition = a.partition AND f.record_key = a.record_key
                AND (a.reported_offset = -1 OR f.offset = a.reported_offset
                    OR (f.offset > a.reported_offset AND c.cleaned_offset > a.reported_offset))
        ) AND {not_lost("a", "a.reported_offset")} AND {not_overtaken("a", "a.reported_offset")}
    """,
    undecidable=f"""
        SELECT DISTINCT a.run, '{UNREAD}' AS reason
        FROM record_acknowledged AS a JOIN replica_in_sync AS r ON a.run = r.run
            AND a.topic = r.topic AND a.partition = r.partition
        WHERE NOT EXISTS (
            SELECT 1 FROM final_log AS log
            WHERE log.record_count >= 0 AND log.run = r.run AND log.topic = r.topic
                AND log.partition = r.partition AND log.broker = r.broker
        )
    """,
)
