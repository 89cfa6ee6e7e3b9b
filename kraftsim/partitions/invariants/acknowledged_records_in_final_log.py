"""Every acknowledged record is in the final log of its partition, at its acknowledged offset and
under its key.

The key matters because after a loss another record may occupy the offset. The final log is read
from the segments on disk, never from a broker's in-memory state. A record below the log start
offset was deleted by retention and is not lost. Neither are records discarded by an unclean
election, records that compaction removed because the log contains a later record of the key, and
records that the range check of KIP-758 reported as duplicates because the producer's first appended
batch had a later sequence.
Source: KIP-98 and the semantics of acks=all; Jepsen's "lost write" (jepsen.tests.kafka).
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
from kraftsim.partitions.events import FinalLog, FinalRecord

NAME = "acknowledged-records-in-final-log"
NO_OFFSET = -1
"""The broker returned no offset: the key may then be anywhere in the log."""
UNREAD = "the final log of a partition with acknowledged records was not read"


class FinalRecords:
    """Collects acknowledgements and the records of the final logs; compares them at the end of the
    run.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._acknowledged: dict[tuple[str, int, str, int], str] = {}
        self._offsets: dict[tuple[str, int, str], list[int]] = {}
        self._log_start_offset: dict[tuple[str, int], int] = {}
        self._unclean = UncleanElections()
        self._cleaned = CleanedLogs()
        self._overtaken = OvertakenBeginnings()

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
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict; it is unknown if a partition's final log was not
        read.
        """
        undecidable = ""
        for (topic, partition, record_key, offset), event_id in self._acknowledged.items():
            log_start_offset = self._log_start_offset.get((topic, partition))
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


INVARIANT = Invariant(
    name=NAME,
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
        )
    """,
)
