"""The offset that a group coordinator returns when the cluster is idle is the last valid commit in
its log.

A commit inside a transaction is valid if the next marker of its producer commits. Of several valid
commits the last is determined by the offsets of the commits, not of their markers. Checked with the
last response for each partition, unless an offset was committed after it.
Source: KIP-98; KAFKA-5247; kafka.coordinator.group.GroupMetadataManager.
"""

from kraftsim.events.event import Event
from kraftsim.groups.events import (
    OffsetCommitted,
    OffsetForgotten,
    OffsetMaterialised,
    OffsetReturned,
    PendingOffsetAdded,
)
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import FinalMarker, FinalOffset
from kraftsim.producer_state.invariants.one_append_per_sequence import OFFSETS_TOPIC

NAME = "group-offsets-equal-log"
NO_OFFSET = -1
Key = tuple[str, str, int]
"""Group, topic, partition."""


class LastAnswers:
    """Keeps the last response for each partition and replays the log; compares them at the end of
    the run.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._returned: dict[Key, tuple[int, str]] = {}
        self._log: dict[Key, dict[int, FinalOffset]] = {}
        self._markers: dict[tuple[int, int], dict[int, bool]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a response, a later commit, or a record of a final log."""
        if isinstance(event, OffsetReturned):
            if event.error_code == 0:
                self._returned[event.group_id, event.topic, event.partition] = (
                    event.offset,
                    envelope.event_id,
                )
        elif isinstance(
            event, OffsetCommitted | PendingOffsetAdded | OffsetMaterialised | OffsetForgotten
        ):
            self._returned.pop((event.group_id, event.topic, event.partition), None)
        elif isinstance(event, FinalOffset):
            self._log.setdefault((event.group_id, event.topic, event.partition), {})[
                event.log_offset
            ] = event
        elif isinstance(event, FinalMarker) and event.topic == OFFSETS_TOPIC:
            markers = self._markers.setdefault((event.partition, event.producer_id), {})
            markers[event.offset] = event.is_commit or markers.get(
                event.offset, False
            )  # replicas-equal checks for differences between replicas
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict."""
        for key, (returned, event_id) in self._returned.items():
            if key not in self._log:
                continue
            self._findings.examined += 1
            counting = [record for record in self._log[key].values() if self._counts(record)]
            logged = (
                max(counting, key=lambda record: record.log_offset).committed_offset
                if counting
                else NO_OFFSET
            )
            if returned != logged:
                group_id, topic, partition = key
                message = (
                    f"{group_id}: {topic}-{partition}: offset {returned} was reported last, and "
                    f"the log says {logged}"
                )
                self._findings.violation(f"{group_id}/{topic}/{partition}", message, event_id)
        return self._findings.verdict()

    def _counts(self, record: FinalOffset) -> bool:
        if record.producer_id < 0:
            return True
        markers = self._markers.get((record.offsets_partition, record.producer_id), {})
        behind = min((offset for offset in markers if offset > record.log_offset), default=None)
        return behind is not None and markers[behind]


INVARIANT = Invariant(
    name=NAME,
    rule="The last offset that a group coordinator returned is the last valid commit in its log.",
    source="KIP-98",
    watches=(
        OffsetReturned,
        OffsetCommitted,
        PendingOffsetAdded,
        OffsetMaterialised,
        OffsetForgotten,
        FinalMarker,
        FinalOffset,
    ),
    check=LastAnswers,
    examined="""
        WITH step AS (
            SELECT run, group_id, topic, partition, position, true AS is_stated FROM offset_returned
                WHERE error_code = 0
            UNION ALL SELECT run, group_id, topic, partition, position, false FROM offset_committed
            UNION ALL SELECT run, group_id, topic, partition, position, false
                FROM pending_offset_added
            UNION ALL SELECT run, group_id, topic, partition, position, false
                FROM offset_materialised
            UNION ALL SELECT run, group_id, topic, partition, position, false FROM offset_forgotten
        ), last_step AS (
            SELECT *, row_number() OVER (PARTITION BY run, group_id, topic, partition
                ORDER BY position DESC) AS place FROM step
        )
        SELECT run, count(*) FROM last_step AS s WHERE place = 1 AND is_stated AND EXISTS (
            SELECT 1 FROM final_offset AS f
            WHERE f.run = s.run AND f.group_id = s.group_id AND f.topic = s.topic
                AND f.partition = s.partition
        ) GROUP BY run
    """,
    violations=f"""
        WITH step AS (
            SELECT run, group_id, topic, partition, position, t.offset AS reported_offset
                FROM offset_returned AS t WHERE error_code = 0
            UNION ALL SELECT run, group_id, topic, partition, position, cast(NULL AS bigint)
                FROM offset_committed
            UNION ALL SELECT run, group_id, topic, partition, position, cast(NULL AS bigint)
                FROM pending_offset_added
            UNION ALL SELECT run, group_id, topic, partition, position, cast(NULL AS bigint)
                FROM offset_materialised
            UNION ALL SELECT run, group_id, topic, partition, position, cast(NULL AS bigint)
                FROM offset_forgotten
        ), last_step AS (
            SELECT *, row_number() OVER (PARTITION BY run, group_id, topic, partition
                ORDER BY position DESC) AS place FROM step
        ), marker AS (
            SELECT DISTINCT run, partition, producer_id, m.offset AS marker_offset, is_commit
                FROM final_marker AS m WHERE topic = '{OFFSETS_TOPIC}'
        ), record AS (
            SELECT DISTINCT run, group_id, topic, partition, offsets_partition, log_offset,
                producer_id, committed_offset FROM final_offset
        ), behind AS (
            SELECT r.run, r.group_id, r.topic, r.partition, r.log_offset,
                min(m.marker_offset) AS marker_offset
            FROM record AS r
            JOIN marker AS m
                ON m.run = r.run AND m.partition = r.offsets_partition
                    AND m.producer_id = r.producer_id AND m.marker_offset > r.log_offset
            WHERE r.producer_id >= 0 GROUP BY r.run, r.group_id, r.topic, r.partition, r.log_offset
        ), counting AS (
            SELECT r.* FROM record AS r
            LEFT JOIN behind AS b
                ON b.run = r.run AND b.group_id = r.group_id AND b.topic = r.topic
                    AND b.partition = r.partition AND b.log_offset = r.log_offset
            LEFT JOIN marker AS m
                ON m.run = r.run AND m.partition = r.offsets_partition
                    AND m.producer_id = r.producer_id AND m.marker_offset = b.marker_offset
            WHERE r.producer_id < 0 OR m.is_commit
        ), latest AS (
            SELECT *, row_number() OVER (PARTITION BY run, group_id, topic, partition
                ORDER BY log_offset DESC) AS place FROM counting
        ), judged AS (
            SELECT s.run, s.group_id, s.topic, s.partition, s.position, s.reported_offset,
                coalesce(l.committed_offset, {NO_OFFSET}) AS logged
            FROM last_step AS s
            LEFT JOIN latest AS l
                ON l.run = s.run AND l.group_id = s.group_id AND l.topic = s.topic
                    AND l.partition = s.partition AND l.place = 1
            WHERE s.place = 1 AND s.reported_offset IS NOT NULL AND EXISTS (
                SELECT 1 FROM final_offset AS f
                WHERE f.run = s.run AND f.group_id = s.group_id AND f.topic = s.topic
                    AND f.partition = s.partition
            )
        )
        SELECT
            run,
            concat(group_id, '/', topic, '/', partition) AS key,
            concat(group_id, ': ', topic, '-', partition, ': offset ', reported_offset,
                ' was reported last, and the log says ', logged) AS message,
            position AS first_witness,
            cast(NULL AS bigint) AS second_witness
        FROM judged WHERE reported_offset <> logged
    """,
)
