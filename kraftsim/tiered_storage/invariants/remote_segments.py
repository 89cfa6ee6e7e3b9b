"""Remote segments have all their objects as long as they may be read, and none afterwards, and no
offset of a leader epoch is missing between two of them.

Read from the metadata topic and the store at the end of a run. A segment that is being copied or
deleted may have any of its objects. The producer snapshot is missing where the leader said so: some
remedies of KAFKA-15195 copy segments without one. Offsets below the log start offset may be
missing: DeleteRecords may move it beyond the last segment that was copied.
Source: KIP-405; RemoteStorageManager.copyLogSegmentData, RemoteLogManager.{RLMCopyTask,
RLMExpirationTask}.
"""

from typing import Final, TypeAlias

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import LogStartMoved
from kraftsim.tiered_storage.events import (
    FinalRemoteEpoch,
    FinalRemoteSegment,
    RemoteCopyFinished,
)

COMPLETE: Final = "remote-segments-complete"
GAPLESS: Final = "remote-epochs-without-gap"
ALWAYS: Final = (".log", ".index", ".timeindex", ".leader_epoch_checkpoint")
TRANSACTIONS, PRODUCERS = ".txnindex", ".snapshot"
FINISHED, DELETED, UNKNOWN = 1, 3, -1
"""COPY_SEGMENT_FINISHED, DELETE_SEGMENT_FINISHED; objects without a segment."""
NO_SNAPSHOT: Final = -1

EpochKey: TypeAlias = tuple[str, int, int]
"""Topic, partition, leader epoch."""


class ObjectsOfSegments:
    """Compares the objects of each segment with its state."""

    def __init__(self) -> None:
        self._findings = Findings(COMPLETE)
        self._without_snapshot: set[str] = set()  # for membership only

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a finished copy, or a segment at the end of the run."""
        if isinstance(event, RemoteCopyFinished):
            if event.producer_count == NO_SNAPSHOT:
                self._without_snapshot.add(event.segment_id)
            return None
        assert isinstance(event, FinalRemoteSegment)
        if event.status not in (FINISHED, DELETED, UNKNOWN):
            return None
        self._findings.examined += 1
        found = event.objects.split(",") if event.objects else []
        if event.status == FINISHED:
            missing = [each for each in self._required(event) if each not in found]
            what = f"lacks {','.join(missing)}" if missing else ""
        else:
            what = f"is deleted, and {event.objects} is left" if found else ""
        if not what:
            return None
        return self._findings.violation(
            event.segment_id,
            f"remote segment {event.segment_id} of {event.topic}-{event.partition} {what}",
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _required(self, event: FinalRemoteSegment) -> tuple[str, ...]:
        return (
            *ALWAYS,
            *(() if event.is_transaction_index_empty else (TRANSACTIONS,)),
            *(() if event.segment_id in self._without_snapshot else (PRODUCERS,)),
        )


def _lacks(suffix: str, condition: str = "") -> str:
    return (
        f"CASE WHEN concat(',', s.objects, ',') NOT LIKE '%,{suffix},%'{condition} "
        f"THEN ',{suffix}' ELSE '' END"
    )


_MISSING: Final = ", ".join(
    (
        *(_lacks(suffix) for suffix in ALWAYS),
        _lacks(TRANSACTIONS, " AND NOT s.is_transaction_index_empty"),
        _lacks(PRODUCERS, " AND w.run IS NULL"),
    )
)

REMOTE_SEGMENTS_COMPLETE = Invariant(
    name=COMPLETE,
    rule="A remote segment has all its objects from the end of its copy until its deletion begins, "
    "and none after its deletion.",
    source="KIP-405",
    watches=(RemoteCopyFinished, FinalRemoteSegment),
    check=ObjectsOfSegments,
    examined=f"SELECT run, count(*) FROM final_remote_segment "
    f"WHERE status IN ({FINISHED}, {DELETED}, {UNKNOWN}) GROUP BY run",
    violations=f"""
        WITH without AS (
            SELECT DISTINCT run, segment_id FROM remote_copy_finished
            WHERE producer_count = {NO_SNAPSHOT}
        ), judged AS (
            SELECT s.*, concat({_MISSING}) AS missing
            FROM final_remote_segment AS s
            LEFT JOIN without AS w ON w.run = s.run AND w.segment_id = s.segment_id
            WHERE s.status IN ({FINISHED}, {DELETED}, {UNKNOWN})
        )
        SELECT
            run,
            segment_id AS key,
            concat('remote segment ', segment_id, ' of ', topic, '-', partition,
                CASE WHEN status = {FINISHED} THEN concat(' lacks ', substr(missing, 2))
                    ELSE concat(' is deleted, and ', objects, ' is left') END) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM judged
        WHERE (status = {FINISHED} AND missing <> '') OR (status <> {FINISHED} AND objects <> '')
    """,
)


class EpochsWithoutGap:
    """Walks through the complete segments of each leader epoch by their first offset."""

    def __init__(self) -> None:
        self._findings = Findings(GAPLESS)
        self._log_starts: dict[tuple[str, int], int] = {}
        self._ranges: dict[EpochKey, list[tuple[FinalRemoteEpoch, str]]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Collect the offsets of segments, and the log start offsets."""
        if isinstance(event, LogStartMoved):
            where = (event.topic, event.partition)
            self._log_starts[where] = max(event.log_start_offset, self._log_starts.get(where, 0))
            return None
        assert isinstance(event, FinalRemoteEpoch)
        self._ranges.setdefault((event.topic, event.partition, event.leader_epoch), []).append(
            (event, envelope.event_id)
        )
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict."""
        for (topic, partition, leader_epoch), ranges in self._ranges.items():
            log_start_offset = self._log_starts.get((topic, partition), 0)
            reached: int | None = None
            for event, event_id in sorted(ranges, key=lambda each: each[0].first_offset):
                if event.last_offset < log_start_offset:
                    continue
                self._findings.examined += 1
                if reached is not None and event.first_offset > reached + 1:
                    self._findings.violation(
                        f"{event.segment_id}/{leader_epoch}",
                        f"{topic}-{partition}: the offsets {reached + 1} to "
                        f"{event.first_offset - 1} of epoch {leader_epoch} are in no remote "
                        "segment",
                        event_id,
                    )
                reached = max(event.last_offset, -1 if reached is None else reached)
        return self._findings.verdict()


_WALKED = """
    log_start AS (
        SELECT run, topic, partition, max(log_start_offset) AS log_start_offset
        FROM log_start_moved GROUP BY run, topic, partition
    ), walked AS (
        SELECT e.*, max(e.last_offset) OVER (
            PARTITION BY e.run, e.topic, e.partition, e.leader_epoch
            ORDER BY e.first_offset, e.position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached
        FROM final_remote_epoch AS e
        LEFT JOIN log_start AS l ON l.run = e.run AND l.topic = e.topic
            AND l.partition = e.partition
        WHERE e.last_offset >= coalesce(l.log_start_offset, 0)
    )
"""

REMOTE_EPOCHS_WITHOUT_GAP = Invariant(
    name=GAPLESS,
    rule="No offset of a leader epoch is missing between two complete remote segments.",
    source="KIP-405",
    watches=(FinalRemoteEpoch, LogStartMoved),
    check=EpochsWithoutGap,
    examined=f"WITH {_WALKED} SELECT run, count(*) FROM walked GROUP BY run",
    violations=f"""
        WITH {_WALKED}
        SELECT
            run,
            concat(segment_id, '/', leader_epoch) AS key,
            concat(topic, '-', partition, ': the offsets ', reached + 1, ' to ', first_offset - 1,
                ' of epoch ', leader_epoch, ' are in no remote segment') AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM walked WHERE first_offset > reached + 1
    """,
)

INVARIANTS = (REMOTE_SEGMENTS_COMPLETE, REMOTE_EPOCHS_WITHOUT_GAP)
