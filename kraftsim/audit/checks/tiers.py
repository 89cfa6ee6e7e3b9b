"""Remote segments: their states, their files, and whether they and the local logs leave no gap.

A segment is announced (COPY_SEGMENT_STARTED) before it is copied and confirmed
(COPY_SEGMENT_FINISHED) after; deletion likewise. Segments of several leaders may overlap.

Source: KIP-405; RemoteLogSegmentState, RemoteLogManager, RemoteLogMetadataCache.
"""

from typing import Final

from kraftsim.audit.rule import AuditRule, DefectSeverity
from kraftsim.audit.shared_sql import HELD, METADATA, best_logs, finding

TOPIC: Final = "__remote_log_metadata"

_FOLD: Final = f"""
    WITH {METADATA}, {HELD}, {best_logs("tier_logs", f"r.topic = '{TOPIC}'")}, events AS (
        SELECT s.*, l.first_offset AS log_begins, c.partition IS NOT NULL AS is_certain,
            lag(s.state) OVER (PARTITION BY s.log_dir, s.directory, s.segment_id
                ORDER BY s.record_offset) AS state_before,
            lag(s.broker_id) OVER (PARTITION BY s.log_dir, s.directory, s.segment_id
                ORDER BY s.record_offset) AS broker_before
        FROM remote_segments AS s
        JOIN tier_logs AS l ON l.log_dir = s.log_dir AND l.directory = s.directory
        LEFT JOIN certain AS c ON c.topic = '{TOPIC}' AND c.partition = l.partition
        WHERE s.segment_id IS NOT NULL
    ), segments AS (
        SELECT segment_id, max(topic_id) AS topic_id, max(of_topic) AS of_topic,
            max(of_partition) AS of_partition, max(start_offset) AS start_offset,
            max(end_offset) AS end_offset, max(segment_size) AS segment_size,
            max_by(state, record_offset) AS state, max(event_ms) AS event_ms,
            max(log_dir) AS log_dir, max_by(file, record_offset) AS file,
            max_by(position, record_offset) AS position, max(record_offset) AS record_offset,
            max(CASE WHEN is_certain THEN 1 ELSE 0 END) = 1 AS is_certain,
            max(CASE WHEN log_begins = 0 THEN 1 ELSE 0 END) = 1 AS is_whole
        FROM events GROUP BY segment_id
    )
"""
_READS: Final = (
    "remote_segments",
    "replicas",
    "log_dirs",
    "batches",
    "metadata_records",
    "metadata_topics",
    "metadata_partitions",
)
_UNSURE: Final = ", '; but not all replicas of {of} are here, or a broker was not stopped cleanly'"

_LEGAL: Final = """(state = state_before
    OR (state_before = 'COPY_SEGMENT_STARTED'
        AND state IN ('COPY_SEGMENT_FINISHED', 'DELETE_SEGMENT_STARTED'))
    OR (state_before = 'COPY_SEGMENT_FINISHED' AND state = 'DELETE_SEGMENT_STARTED')
    OR (state_before = 'DELETE_SEGMENT_STARTED' AND state = 'DELETE_SEGMENT_FINISHED'))"""

STATES_VALID = AuditRule(
    name="remote-segment-states-valid",
    statement="A remote segment is announced before it is copied, confirmed after, and then "
    "deleted in two steps.",
    source="KIP-405; RemoteLogSegmentState.isValidTransition",
    severity=DefectSeverity.WRONG,
    meaning="Brokers ignore such an event. They may not see a segment that is there, or read one "
    "that is deleted.",
    remedy="Compare the replicas of this partition of __remote_log_metadata, and check whether its "
    "retention is unlimited.",
    reads=_READS,
    examined=f"{_FOLD} SELECT count(*) FROM events",
    defects=f"""
        {_FOLD}
        SELECT {
        finding(
            "concat('partition ', of_topic, '-', of_partition)",
            "concat('remote segment ', segment_id, ' is in state ', state, ' after ', "
            "coalesce(state_before, 'nothing'))",
            since="event_ms",
        )
    }
        FROM events
        WHERE (state_before IS NULL AND state <> 'COPY_SEGMENT_STARTED' AND log_begins = 0)
            OR (broker_before = broker_id AND NOT {_LEGAL})
    """,
)

_STORED: Final = f"""
    {_FOLD}, kinds AS (
        SELECT DISTINCT kind FROM remote_files
        WHERE kind IN ('log', 'index', 'timeindex', 'snapshot', 'leader-epochs')
        UNION SELECT 'log' FROM remote_files
    ), found_files AS (
        SELECT segment_id, kind, max(size) AS size, max(remote_dir) AS remote_dir, max(file) AS file
        FROM remote_files WHERE segment_id IS NOT NULL GROUP BY segment_id, kind
    ), compared AS (
        SELECT s.*, k.kind, f.size, f.remote_dir, f.file AS remote_file
        FROM segments AS s CROSS JOIN kinds AS k
        LEFT JOIN found_files AS f ON f.segment_id = s.segment_id AND f.kind = k.kind
        WHERE s.state = 'COPY_SEGMENT_FINISHED'
    )
"""


def _stored(condition: str, more: str = "") -> str:
    return f"""
        {_STORED}
        SELECT concat('partition ', of_topic, '-', of_partition) AS subject,
            concat('remote segment ', segment_id, ' of ', of_topic, '-', of_partition,
                ' with offsets ', start_offset, ' to ', end_offset, CASE
                WHEN size IS NULL THEN concat(' has no ', kind, ' file in remote storage')
                ELSE concat(' has ', segment_size, ' bytes, and the file in remote storage ', size)
                END{more}) AS message,
            event_ms AS since_ms, log_dir, file, position, record_offset AS at_offset,
            remote_dir AS log_dir2, remote_file AS file2, CAST(-1 AS BIGINT) AS position2,
            CAST(-1 AS BIGINT) AS at_offset2
        FROM compared
        WHERE (size IS NULL OR (kind = 'log' AND size <> segment_size)) AND {condition}
    """


SEGMENTS_STORED = AuditRule(
    name="remote-segments-stored",
    statement="Every remote segment that is complete has its files in remote storage, of the size "
    "that its metadata says.",
    source="KIP-405; RemoteLogManager.copyLogSegment",
    severity=DefectSeverity.LOSS,
    meaning="Records that were deleted from the brokers' disks are not in remote storage. "
    "Consumers that read there fail; a new replica cannot be built from it.",
    remedy="Restore the object from a version or a backup of the remote store. Look for a replica "
    "that still has the segment on its disk before local retention deletes it.",
    reads=(*_READS, "remote_files"),
    examined=f"{_STORED} SELECT count(*) FROM compared",
    defects=_stored("is_certain"),
    undecided=_stored(
        "NOT is_certain", _UNSURE.format(of="this partition of __remote_log_metadata")
    ),
)

_GARBAGE: Final = f"""
    {_FOLD}, tier_counts AS (
        SELECT (SELECT count(*) FROM assigned WHERE topic = '{TOPIC}') AS assigned_count,
            (SELECT count(*) FROM certain WHERE topic = '{TOPIC}') AS certain_count
    ), compared AS (
        SELECT f.*, s.state, n.assigned_count > 0 AND n.assigned_count = n.certain_count
            AS is_certain
        FROM remote_files AS f CROSS JOIN tier_counts AS n
        LEFT JOIN segments AS s ON s.segment_id = f.segment_id
        WHERE f.segment_id IS NOT NULL
    )
"""
_NOT_KNOWN: Final = "(state IS NULL OR state = 'DELETE_SEGMENT_FINISHED')"


def _garbage(condition: str, more: str = "") -> str:
    return f"""
        {_GARBAGE}
        SELECT concat('partition ', coalesce(topic, 'unknown'), '-', coalesce(partition, -1))
                AS subject,
            concat('the file ', file, ' in remote storage belongs to ', CASE WHEN state IS NULL
                THEN 'no segment in __remote_log_metadata' ELSE 'a segment that was deleted' END
                {more}) AS message,
            CAST(NULL AS BIGINT) AS since_ms, remote_dir AS log_dir, file,
            CAST(-1 AS BIGINT) AS position, coalesce(base_offset, -1) AS at_offset,
            CAST(NULL AS STRING) AS log_dir2, CAST(NULL AS STRING) AS file2,
            CAST(NULL AS BIGINT) AS position2, CAST(NULL AS BIGINT) AS at_offset2
        FROM compared WHERE {_NOT_KNOWN} AND {condition}
    """


FILES_KNOWN = AuditRule(
    name="remote-files-known",
    statement="Every segment file in remote storage belongs to a segment of __remote_log_metadata.",
    source="KIP-405",
    severity=DefectSeverity.NOTICE,
    meaning="The file takes space in remote storage, and nothing will delete it.",
    remedy="Delete the file when the cluster is known to be sound, not before.",
    reads=(*_READS, "remote_files"),
    examined=f"{_GARBAGE} SELECT count(*) FROM compared",
    defects=_garbage("is_certain"),
    undecided=_garbage("NOT is_certain", _UNSURE.format(of="__remote_log_metadata")),
)

_COVERED: Final = f"""
    {_FOLD}, {best_logs("user_logs", "substr(r.topic, 1, 2) <> '__'")}, locals AS (
        SELECT u.topic_id, u.topic, u.partition, u.log_dir AS user_dir, u.directory,
            r.first_segment_offset AS local_start, r.log_start_offset AS log_start,
            h.partition IS NOT NULL AS is_user_certain
        FROM user_logs AS u
        JOIN replicas AS r ON r.log_dir = u.log_dir AND r.directory = u.directory
        LEFT JOIN certain AS h ON h.topic = u.topic AND h.partition = u.partition
        WHERE r.log_start_offset IS NOT NULL
    ), remote_ranges AS (
        SELECT s.*, max(end_offset) OVER (PARTITION BY topic_id, of_partition
            ORDER BY start_offset, end_offset ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
            AS end_before
        FROM segments AS s
        WHERE s.state IN ('COPY_SEGMENT_FINISHED', 'DELETE_SEGMENT_STARTED')
            AND s.start_offset IS NOT NULL
    ), remote_ends AS (
        SELECT topic_id, of_topic, of_partition,
            max(CASE WHEN state IN ('COPY_SEGMENT_FINISHED', 'DELETE_SEGMENT_STARTED')
                THEN end_offset END) AS remote_end,
            max(log_dir) AS log_dir, max_by(file, record_offset) AS file,
            max_by(position, record_offset) AS position, max(record_offset) AS record_offset,
            max(event_ms) AS event_ms, min(CASE WHEN is_certain THEN 1 ELSE 0 END) = 1
                AS is_certain, min(CASE WHEN is_whole THEN 1 ELSE 0 END) = 1 AS is_whole
        FROM segments GROUP BY topic_id, of_topic, of_partition
    ), gaps AS (
        SELECT r.of_topic, r.of_partition, r.end_before + 1 AS gap_start,
            r.start_offset - 1 AS gap_end, r.event_ms, r.log_dir, r.file, r.position,
            r.record_offset, l.user_dir, l.directory, l.local_start,
            r.is_whole AND (r.is_certain OR l.is_user_certain) AS is_certain
        FROM remote_ranges AS r
        JOIN locals AS l ON l.topic_id = r.topic_id AND l.partition = r.of_partition
        WHERE r.start_offset > r.end_before + 1 AND r.start_offset > l.log_start
            AND r.end_before + 1 < l.local_start
        UNION ALL
        SELECT e.of_topic, e.of_partition, greatest(coalesce(e.remote_end + 1, 0), l.log_start),
            l.local_start - 1, e.event_ms, e.log_dir, e.file, e.position, e.record_offset,
            l.user_dir, l.directory, l.local_start,
            e.is_whole AND e.is_certain AND l.is_user_certain
        FROM remote_ends AS e
        JOIN locals AS l ON l.topic_id = e.topic_id AND l.partition = e.of_partition
        WHERE l.local_start > l.log_start AND l.local_start > coalesce(e.remote_end, -1) + 1
    )
"""


def _gaps(condition: str, more: str = "") -> str:
    return f"""
        {_COVERED}
        SELECT concat('partition ', of_topic, '-', of_partition) AS subject,
            concat('offsets ', gap_start, ' to ', gap_end, ' of ', of_topic, '-', of_partition,
                ' are in no complete remote segment, and the local log begins at ', local_start
                {more}) AS message,
            event_ms AS since_ms, log_dir, file, position, record_offset AS at_offset,
            user_dir AS log_dir2, directory AS file2, CAST(-1 AS BIGINT) AS position2,
            local_start AS at_offset2
        FROM gaps WHERE {condition}
    """


LOG_COVERED = AuditRule(
    name="tiered-log-without-gap",
    statement="Complete remote segments and the local log together have every offset from the log "
    "start offset on.",
    source="KIP-405; UnifiedLog.deletableSegments (localLogStartOffset)",
    severity=DefectSeverity.LOSS,
    meaning="Records between remote storage and the local log are gone. Consumers that reach the "
    "gap get OFFSET_OUT_OF_RANGE or stop there.",
    remedy="Look for a replica whose local log still has these offsets, before its local retention "
    "deletes them. Otherwise move the groups beyond the gap.",
    reads=_READS,
    examined=f"""
        {_COVERED} SELECT count(*) FROM remote_ends AS e
        JOIN locals AS l ON l.topic_id = e.topic_id AND l.partition = e.of_partition
    """,
    defects=_gaps("is_certain"),
    undecided=_gaps("NOT is_certain", _UNSURE.format(of="the partition")),
)

RULES = (STATES_VALID, SEGMENTS_STORED, FILES_KNOWN, LOG_COVERED)
