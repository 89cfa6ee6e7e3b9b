"""Parts of SQL that rules about logs share: common table expressions over the tables of an audit,
and the columns of a finding.

A rule begins with `WITH` and the expressions that it needs, in the order of this file: later ones
read earlier ones. Texts in messages are joined with `concat`, whose arguments are never null:
DuckDB leaves a null out, Spark returns null.
"""

from typing import Final

Place = tuple[str, str, str, str]
"""SQL for the directory, file, byte and offset of a witness."""
HERE: Final[Place] = ("log_dir", "file", "position", "base_offset")
"""The place of a row with the columns of `batches`."""
NOWHERE: Final[Place] = (
    "CAST(NULL AS STRING)",
    "CAST(NULL AS STRING)",
    "CAST(NULL AS BIGINT)",
    "CAST(NULL AS BIGINT)",
)
UNKNOWN_SINCE: Final = "CAST(NULL AS BIGINT)"

STATE_KEPT_MS: Final = 600_000
"""A broker keeps what it knows of a producer for producer.id.expiration.ms, a day by default. Disks
do not say the value: within ten minutes of the previous batch a producer counts as known.
"""


def finding(
    subject: str,
    message: str,
    *,
    since: str = UNKNOWN_SINCE,
    at: Place = HERE,
    and_at: Place = NOWHERE,
) -> str:
    """Return the columns of a finding as a select list; all arguments are SQL expressions."""
    names = ("log_dir", "file", "position", "at_offset")
    places = [
        *(f"{value} AS {name}" for value, name in zip(at, names, strict=True)),
        *(f"{value} AS {name}2" for value, name in zip(and_at, names, strict=True)),
    ]
    return f"{subject} AS subject, {message} AS message, {since} AS since_ms, {', '.join(places)}"


def place(prefix: str) -> Place:
    """Return the place of a row with the columns of `batches` whose names begin with a prefix."""
    return (f"{prefix}log_dir", f"{prefix}file", f"{prefix}position", f"{prefix}base_offset")


REPLICA: Final = """
replica AS (
    SELECT row_number() OVER (ORDER BY r.log_dir, r.directory) AS log_id,
        r.log_dir, r.node_id, r.directory, r.topic, r.partition, r.topic_id, r.end_offset,
        r.first_segment_offset, r.recovery_point, r.high_watermark, r.cleaned_until, r.segments,
        r.log_start_offset AS checkpointed_start,
        coalesce(r.first_offset, r.end_offset) AS first_offset,
        greatest(coalesce(r.log_start_offset, 0), coalesce(r.first_segment_offset, 0))
            AS start_offset,
        concat(r.topic, '-', r.partition) AS named,
        coalesce(d.cluster_id, '') AS cluster_id,
        coalesce(d.is_clean, false) AS is_clean,
        d.newest_ms
    FROM replicas AS r
    LEFT JOIN log_dirs AS d ON d.log_dir = r.log_dir
    WHERE NOT coalesce(r.is_future, false)
)"""
"""One row per live partition directory; `start_offset` is the first offset that readers get.

`log_id` numbers them: windows over a number take half the time of windows over its two names.
"""

SEGMENT: Final = """
segment AS (
    SELECT f.log_dir, f.file, f.directory, f.topic, f.partition, f.base_offset, r.end_offset,
        r.log_id
    FROM files AS f
    JOIN replica AS r ON r.log_dir = f.log_dir AND r.directory = f.directory
    WHERE f.kind = 'log' AND f.state = 'live'
)"""
"""One row per segment of these logs."""

BATCH: Final = """
batch AS (
    SELECT b.log_dir, b.directory, b.topic, b.partition, b.file, b.position, b.size, b.base_offset,
        b.last_offset, b.leader_epoch, b.magic, b.crc, b.timestamp_type, b.is_transactional,
        b.is_control, b.first_ms, b.max_ms, b.delete_horizon_ms, b.producer_id, b.producer_epoch,
        b.base_sequence, b.last_sequence, b.records, b.control_type, b.coordinator_epoch,
        b.segment_offset, s.log_id
    FROM batches AS b
    JOIN segment AS s ON s.log_dir = b.log_dir AND s.file = b.file
    WHERE b.base_offset < s.end_offset
)"""
"""One row per batch of these segments, without those at the end whose checksum does not fit."""

POLICY: Final = """
cleaned_topic AS (
    SELECT topic FROM replicas WHERE cleaned_until IS NOT NULL
        OR topic IN ('__consumer_offsets', '__transaction_state')
    UNION
    SELECT topic FROM batch WHERE delete_horizon_ms IS NOT NULL
    UNION
    SELECT t.topic FROM (SELECT DISTINCT topic FROM replicas) AS t
    JOIN (
        SELECT replace(data, ' ', '') AS data FROM metadata_records
        WHERE type = 'CONFIG_RECORD' AND data LIKE '%cleanup.policy%' AND data LIKE '%compact%'
    ) AS m ON m.data LIKE concat('%"', t.topic, '"%') OR m.data LIKE '%log.cleanup.policy%'
), known_topic AS (
    SELECT topic_name AS topic FROM metadata_topics WHERE topic_name IS NOT NULL
    UNION
    SELECT topic FROM replicas
    WHERE topic IN ('__cluster_metadata', '@metadata', '__share_group_state',
        '__remote_log_metadata')
), partial_topic AS (
    SELECT DISTINCT topic FROM batch
    WHERE magic = 2 AND records <> last_offset - base_offset + 1
), policy AS (
    SELECT t.topic, CASE WHEN c.topic IS NOT NULL THEN 'compacted' WHEN k.topic IS NOT NULL
        THEN 'kept' WHEN p.topic IS NOT NULL THEN 'compacted' ELSE 'unknown' END AS kind
    FROM (SELECT DISTINCT topic FROM replicas) AS t
    LEFT JOIN cleaned_topic AS c ON c.topic = t.topic
    LEFT JOIN known_topic AS k ON k.topic = t.topic
    LEFT JOIN partial_topic AS p ON p.topic = t.topic
)"""
"""Whether compaction may have removed records of a topic: `compacted` if a cleaner of any broker
has a checkpoint of it, or its config ever said so; `kept` if the metadata log knows the topic and
never said so; `unknown` without a metadata log, as the followers of a cleaned leader replicate its
gaps without a sign of the cleaning.
"""

ISR: Final = """
partition_state AS (
    SELECT coalesce(d.cluster_id, '') AS cluster_id, m.topic_id, m.partition_id, m.isr, m.leader,
        coalesce(m.snapshot_end_offset - 1, m.record_offset) AS state_offset, m.record_offset
    FROM metadata_partitions AS m
    LEFT JOIN log_dirs AS d ON d.log_dir = m.log_dir
), newest_isr AS (
    SELECT cluster_id, topic_id, partition_id, isr FROM (
        SELECT *, row_number() OVER (PARTITION BY cluster_id, topic_id, partition_id
            ORDER BY state_offset DESC, record_offset DESC) AS place
        FROM partition_state WHERE isr IS NOT NULL AND isr <> '[]'
    ) AS numbered WHERE place = 1
), newest_leader AS (
    SELECT cluster_id, topic_id, partition_id, leader FROM (
        SELECT *, row_number() OVER (PARTITION BY cluster_id, topic_id, partition_id
            ORDER BY state_offset DESC, record_offset DESC) AS place
        FROM partition_state WHERE leader IS NOT NULL
    ) AS numbered WHERE place = 1
), placed AS (
    SELECT r.*, i.isr IS NOT NULL AS has_isr,
        coalesce(concat(',', replace(replace(replace(i.isr, '[', ''), ']', ''), ' ', ''), ',')
            LIKE concat('%,', r.node_id, ',%'), false) AS is_in_isr,
        coalesce(l.leader = r.node_id, false) AS is_leader
    FROM replica AS r
    LEFT JOIN newest_isr AS i ON i.cluster_id = r.cluster_id AND i.topic_id = r.topic_id
        AND i.partition_id = r.partition
    LEFT JOIN newest_leader AS l ON l.cluster_id = r.cluster_id AND l.topic_id = r.topic_id
        AND l.partition_id = r.partition
)"""
"""Replicas with what the metadata log says last of them.

When the last replica stops, a cluster with eligible leader replicas (KIP-966) empties the ISR: then
the members before that are the ones that have everything that was committed.
"""

REFERENCE: Final = """
named_topic AS (
    SELECT cluster_id, topic, partition, count(DISTINCT topic_id) AS topic_ids,
        max(topic_id) AS topic_id
    FROM replica GROUP BY cluster_id, topic, partition
), member AS (
    SELECT p.*, CASE WHEN n.topic_ids > 1 THEN coalesce(p.topic_id, '') ELSE '' END AS generation,
        coalesce(e.newest_epoch, -1) AS newest_epoch
    FROM placed AS p
    LEFT JOIN (
        SELECT log_dir, directory, max(leader_epoch) AS newest_epoch FROM leader_epochs
        GROUP BY log_dir, directory
    ) AS e ON e.log_dir = p.log_dir AND e.directory = p.directory
    JOIN named_topic AS n ON n.cluster_id = p.cluster_id AND n.topic = p.topic
        AND n.partition = p.partition
), reference AS (
    SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY cluster_id, topic, partition, generation
            ORDER BY CASE WHEN is_in_isr THEN 0 ELSE 1 END, newest_epoch DESC, end_offset DESC,
                CASE WHEN is_leader THEN 0 ELSE 1 END, first_offset, node_id, log_dir) AS place
        FROM member
    ) AS numbered WHERE place = 1
)"""
"""The replica of each partition that has the most: in the ISR as last known, with the newest leader
epoch, and then with the latest end.

Replicas whose topic ids differ belong to topics of one name, all but one of which were deleted: to
different generations.
"""

TRANSACTION: Final = """
transactional AS (
    SELECT *, count(CASE WHEN is_control THEN 1 END) OVER (
        PARTITION BY log_id, producer_id ORDER BY base_offset
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS markers_before
    FROM batch
    WHERE producer_id >= 0 AND is_transactional
        AND (NOT is_control OR control_type IN ('COMMIT', 'ABORT'))
), transaction AS (
    SELECT log_id, min(log_dir) AS log_dir, min(directory) AS directory, min(topic) AS topic,
        min(partition) AS partition, producer_id, markers_before,
        min(CASE WHEN NOT is_control THEN base_offset END) AS first_offset,
        max(CASE WHEN NOT is_control THEN last_offset END) AS last_offset,
        max(CASE WHEN NOT is_control THEN producer_epoch END) AS producer_epoch,
        min(CASE WHEN NOT is_control THEN max_ms END) AS first_ms,
        max(CASE WHEN NOT is_control THEN max_ms END) AS last_ms,
        max(CASE WHEN is_control THEN base_offset END) AS marker_offset,
        max(CASE WHEN is_control THEN producer_epoch END) AS marker_epoch,
        max(CASE WHEN is_control THEN control_type END) AS control_type,
        max(CASE WHEN is_control THEN coordinator_epoch END) AS coordinator_epoch,
        max(CASE WHEN is_control THEN segment_offset END) AS marker_segment,
        max(CASE WHEN is_control THEN max_ms END) AS marker_ms
    FROM transactional
    GROUP BY log_id, producer_id, markers_before
)"""
"""The transactions of a log: the records of a producer up to its next marker. Without records
(`first_offset` null) it is a marker alone, without a marker (`marker_offset` null) it is open.
"""
