"""Producer snapshots have what the log says of its producers up to their offset.

A broker that starts reads the newest snapshot and replays the log behind it. A snapshot may have
less than the log, as producers expire, and more, as retention deletes records and keeps producers.

Source: KIP-98, KIP-360; ProducerStateManager (takeSnapshot, loadFromSnapshot, truncateAndReload),
UnifiedLog.rebuildProducerState, KAFKA-15195.
"""

from typing import Final

from kraftsim.audit.log_sql import (
    BATCH,
    POLICY,
    REPLICA,
    SEGMENT,
    STATE_KEPT_MS,
    TRANSACTION,
    finding,
    place,
)
from kraftsim.audit.rule import AuditRule, DefectSeverity

_READS: Final = (
    "log_dirs",
    "replicas",
    "files",
    "batches",
    "producer_snapshots",
    "metadata_records",
    "metadata_topics",
)
_IS_OF_PRODUCER: Final = (
    "producer_id >= 0 AND (NOT is_control OR control_type IN ('COMMIT', 'ABORT'))"
)
_BEFORE: Final = (
    "OVER (PARTITION BY log_dir, directory, producer_id ORDER BY at_offset, is_batch "
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
)

_SNAPSHOTS: Final = f"""
WITH {REPLICA}, {SEGMENT}, {BATCH}, {POLICY}, snapshot_row AS (
    SELECT s.log_dir, s.directory, s.file, s.snapshot_offset, s.producer_id, s.producer_epoch,
        s.last_sequence, s.last_offset, s.offset_delta, s.coordinator_epoch,
        s.transaction_first_offset, r.named, r.first_offset, r.end_offset,
        NOT r.is_clean AND s.snapshot_offset > coalesce(r.recovery_point, 0) AS is_replaced,
        f.modified_ms
    FROM producer_snapshots AS s
    JOIN files AS f ON f.log_dir = s.log_dir AND f.file = s.file AND f.state = 'live'
    JOIN replica AS r ON r.log_dir = s.log_dir AND r.directory = s.directory
    JOIN policy AS y ON y.topic = r.topic
    WHERE y.kind <> 'compacted' AND s.snapshot_offset <= r.end_offset
), snapshot_file AS (
    SELECT DISTINCT log_dir, directory, file, snapshot_offset, named, first_offset, is_replaced,
        modified_ms
    FROM snapshot_row WHERE snapshot_offset > first_offset
)"""
_FOLDED: Final = f"""
{_SNAPSHOTS}, {TRANSACTION}, step AS (
    SELECT log_dir, directory, producer_id, base_offset AS at_offset, 1 AS is_batch,
        base_offset AS any_offset,
        CASE WHEN NOT is_control THEN base_offset END AS data_offset,
        CASE WHEN is_control THEN base_offset END AS marker_offset,
        CAST(NULL AS STRING) AS file
    FROM batch WHERE {_IS_OF_PRODUCER}
    UNION ALL
    SELECT log_dir, directory, producer_id, snapshot_offset, 0, CAST(NULL AS BIGINT),
        CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), file
    FROM snapshot_row WHERE producer_id IS NOT NULL
), run AS (
    SELECT log_dir, directory, producer_id, at_offset, is_batch, file,
        max(any_offset) {_BEFORE} AS any_offset,
        max(data_offset) {_BEFORE} AS data_offset,
        max(marker_offset) {_BEFORE} AS marker_offset,
        count(marker_offset) {_BEFORE} AS markers
    FROM step
), folded AS (
    SELECT s.*, a.base_offset AS any_offset, a.producer_epoch AS folded_epoch,
        CASE WHEN d.producer_epoch = a.producer_epoch THEN d.last_offset ELSE -1 END
            AS folded_offset,
        CASE WHEN d.producer_epoch = a.producer_epoch THEN d.last_sequence ELSE -1 END
            AS folded_sequence,
        CASE WHEN d.producer_epoch = a.producer_epoch THEN d.last_offset - d.base_offset ELSE 0 END
            AS folded_delta,
        m.coordinator_epoch AS folded_coordinator,
        CASE WHEN t.first_offset < s.snapshot_offset THEN t.first_offset ELSE -1 END
            AS folded_transaction,
        a.file AS batch_file, a.position AS batch_position
    FROM snapshot_row AS s
    JOIN run AS u ON u.is_batch = 0 AND u.log_dir = s.log_dir AND u.file = s.file
        AND u.producer_id = s.producer_id
    LEFT JOIN batch AS a ON a.log_dir = u.log_dir AND a.directory = u.directory
        AND a.base_offset = u.any_offset
    LEFT JOIN batch AS d ON d.log_dir = u.log_dir AND d.directory = u.directory
        AND d.base_offset = u.data_offset
    LEFT JOIN batch AS m ON m.log_dir = u.log_dir AND m.directory = u.directory
        AND m.base_offset = u.marker_offset
    LEFT JOIN transaction AS t ON t.log_dir = u.log_dir AND t.directory = u.directory
        AND t.producer_id = u.producer_id AND t.markers_before = u.markers
), spanned AS (
    SELECT log_dir, directory, at_offset, producer_id, marker_offset, min(snapshot_offset) OVER (
        PARTITION BY log_dir, directory ORDER BY at_offset, is_transaction, producer_id
        ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS snapshot_offset
    FROM (
        SELECT log_dir, directory, first_offset AS at_offset, 1 AS is_transaction, producer_id,
            marker_offset, CAST(NULL AS BIGINT) AS snapshot_offset
        FROM transaction WHERE first_offset IS NOT NULL
        UNION ALL
        SELECT log_dir, directory, snapshot_offset, 0, CAST(-1 AS BIGINT), CAST(NULL AS BIGINT),
            snapshot_offset
        FROM snapshot_file
    ) AS line
), lacking AS (
    SELECT f.log_dir, f.directory, f.file, f.named, f.is_replaced, f.snapshot_offset, p.producer_id,
        p.at_offset AS first_offset
    FROM spanned AS p
    JOIN snapshot_file AS f ON f.log_dir = p.log_dir AND f.directory = p.directory
        AND f.snapshot_offset = p.snapshot_offset
    LEFT JOIN snapshot_row AS s ON s.log_dir = f.log_dir AND s.file = f.file
        AND s.producer_id = p.producer_id
    WHERE p.producer_id >= 0 AND s.producer_id IS NULL
        AND p.snapshot_offset <= coalesce(p.marker_offset, p.snapshot_offset)
), contradiction AS (
    SELECT log_dir, file, named, is_replaced, snapshot_offset, producer_id,
        coalesce(batch_file, directory) AS batch_file,
        coalesce(batch_position, -1) AS batch_position, coalesce(any_offset, -1) AS batch_offset,
        CASE
            WHEN any_offset IS NULL AND last_offset >= first_offset THEN concat('has producer id ',
                producer_id, ' with a last batch at offset ', last_offset,
                ', and the log has none of it before the snapshot')
            WHEN any_offset IS NULL AND first_offset = 0 THEN concat('has producer id ',
                producer_id, ', of which the log has nothing before the snapshot')
            WHEN any_offset IS NULL THEN NULL
            WHEN producer_epoch <> folded_epoch THEN concat('has epoch ', producer_epoch,
                ' of producer id ', producer_id, ', by the log it is ', folded_epoch)
            WHEN last_offset <> folded_offset AND NOT (folded_offset < 0 AND first_offset > 0
                AND last_offset < first_offset) THEN concat('has offset ', last_offset,
                ' as the last of producer id ', producer_id, ', by the log it is ', folded_offset)
            WHEN last_offset = folded_offset AND folded_offset >= 0 AND (
                last_sequence <> folded_sequence OR offset_delta <> folded_delta)
                THEN concat('has last sequence ', last_sequence, ' of producer id ', producer_id,
                ' in a batch of ', offset_delta + 1, ' records, by the log it is ',
                folded_sequence, ' in a batch of ', folded_delta + 1)
            WHEN coordinator_epoch <> coalesce(folded_coordinator, coordinator_epoch)
                AND coordinator_epoch >= 0 THEN concat('has coordinator epoch ',
                coordinator_epoch, ' of producer id ', producer_id, ', by the log it is ',
                folded_coordinator)
            WHEN transaction_first_offset <> coalesce(folded_transaction, -1)
                AND NOT (transaction_first_offset >= 0 AND transaction_first_offset < first_offset)
                THEN concat('has first offset ', transaction_first_offset,
                ' of the open transaction of producer id ', producer_id, ', by the log it is ',
                coalesce(folded_transaction, -1))
        END AS said
    FROM folded
    UNION ALL
    SELECT log_dir, file, named, is_replaced, snapshot_offset, producer_id, directory,
        CAST(-1 AS BIGINT), first_offset,
        concat('lacks producer id ', producer_id, ', which has a transaction open since offset ',
            first_offset)
    FROM lacking
)"""
_AT_SNAPSHOT: Final = ("log_dir", "file", "CAST(-1 AS BIGINT)", "snapshot_offset")
_AT_BATCH: Final = ("log_dir", "batch_file", "batch_position", "batch_offset")
_SAYS: Final = "concat(named, ': the producer snapshot at offset ', snapshot_offset, ' ', said"

PRODUCER_SNAPSHOTS_FIT: Final = AuditRule(
    name="producer-snapshots-fit-logs",
    statement="A producer snapshot has the epochs, last batches and open transactions that the "
    "log has up to its offset.",
    source="ProducerStateManager.takeSnapshot",
    severity=DefectSeverity.WRONG,
    meaning="A broker that starts from this snapshot appends a retried batch twice, refuses the "
    "next batch of a producer, or lets consumers read an open transaction.",
    remedy="Stop the broker, delete the .snapshot files of the partition, and in the log directory "
    ".kafka_cleanshutdown and recovery-point-offset-checkpoint, and start the broker: it rebuilds "
    "the state from the log.",
    reads=_READS,
    examined=f"{_SNAPSHOTS} SELECT count(*) FROM snapshot_row WHERE producer_id IS NOT NULL",
    defects=f"""
        {_FOLDED} SELECT {finding("named", f"{_SAYS})", at=_AT_SNAPSHOT, and_at=_AT_BATCH)}
        FROM contradiction WHERE said IS NOT NULL AND NOT is_replaced
    """,
    undecided=f"""
        {_FOLDED}, latest AS (
            SELECT log_dir, directory, at_offset, file, max(any_offset) OVER (
                PARTITION BY log_dir, directory ORDER BY at_offset, is_batch
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS any_offset
            FROM (
                SELECT log_dir, directory, base_offset AS at_offset, 1 AS is_batch,
                    base_offset AS any_offset, CAST(NULL AS STRING) AS file
                FROM batch WHERE {_IS_OF_PRODUCER}
                UNION ALL
                SELECT log_dir, directory, snapshot_offset, 0, CAST(NULL AS BIGINT), file
                FROM snapshot_file
            ) AS line
        ), newest_batch AS (
            SELECT l.log_dir, l.file AS snapshot, b.file, b.position, b.base_offset, b.producer_id,
                b.max_ms
            FROM (SELECT * FROM latest WHERE file IS NOT NULL AND any_offset IS NOT NULL) AS l
            JOIN batch AS b ON b.log_dir = l.log_dir AND b.directory = l.directory
                AND b.base_offset = l.any_offset
        )
        SELECT {
        finding(
            "named",
            f"{_SAYS}, '; the log was not closed: the broker replaces snapshots behind its "
            "recovery point')",
            at=_AT_SNAPSHOT,
            and_at=_AT_BATCH,
        )
    } FROM contradiction WHERE said IS NOT NULL AND is_replaced
        UNION ALL
        SELECT {
        finding(
            "f.named",
            "concat(f.named, ': the producer snapshot at offset ', f.snapshot_offset, ' lacks "
            "producer id ', b.producer_id, ', whose batch at offset ', b.base_offset, ' is the "
            "last before it; brokers forget producers after producer.id.expiration.ms, and write "
            "empty snapshots for a log that had none')",
            at=("f.log_dir", "f.file", "CAST(-1 AS BIGINT)", "f.snapshot_offset"),
            and_at=place("b."),
        )
    } FROM newest_batch AS b
        JOIN snapshot_file AS f ON f.log_dir = b.log_dir AND f.file = b.snapshot
        LEFT JOIN snapshot_row AS s ON s.log_dir = f.log_dir AND s.file = f.file
            AND s.producer_id = b.producer_id
        WHERE s.producer_id IS NULL AND abs(f.modified_ms - b.max_ms) < {STATE_KEPT_MS}
    """,
)

_HAS_PRODUCERS: Final = "r.topic NOT IN ('__cluster_metadata', '@metadata')"
"""The metadata log has no producers; Kafka writes snapshots all the same, kraftsim does not."""
_ENDS: Final = f"""
WITH {REPLICA}, taken AS (
    SELECT f.log_dir, f.directory, f.file, f.base_offset AS snapshot_offset
    FROM files AS f WHERE f.kind = 'snapshot' AND f.state = 'live'
), newest AS (
    SELECT log_dir, directory, max(snapshot_offset) AS snapshot_offset FROM taken
    GROUP BY log_dir, directory
), behind AS (
    SELECT r.log_dir, r.directory, r.named, r.is_clean, r.end_offset, n.snapshot_offset,
        CASE WHEN n.snapshot_offset IS NULL THEN concat(r.named, ': there is no producer snapshot, '
            'and the log ends at offset ', r.end_offset)
            ELSE concat(r.named, ': the newest producer snapshot is at offset ', n.snapshot_offset,
            ', and the log ends at offset ', r.end_offset) END AS said
    FROM replica AS r
    LEFT JOIN newest AS n ON n.log_dir = r.log_dir AND n.directory = r.directory
    WHERE r.end_offset > 0 AND r.end_offset <> coalesce(n.snapshot_offset, -1)
        AND {_HAS_PRODUCERS}
)"""
_AT_END: Final = (
    "log_dir",
    "directory",
    "CAST(-1 AS BIGINT)",
    "coalesce(snapshot_offset, end_offset)",
)

PRODUCER_SNAPSHOTS_AT_END: Final = AuditRule(
    name="producer-snapshot-at-end",
    statement="A log that was closed cleanly has a producer snapshot at its end, and none behind.",
    source="UnifiedLog.close, ProducerStateManager.takeSnapshot",
    severity=DefectSeverity.DEGRADED,
    meaning="Snapshots were removed or come from another log. Without any snapshot a broker starts "
    "with no producers at all: it appends retried batches again.",
    remedy="Before the broker starts, delete .kafka_cleanshutdown and "
    "recovery-point-offset-checkpoint in the log directory: it then rebuilds the producers from "
    "the log.",
    reads=("log_dirs", "replicas", "files"),
    examined=f"""
        WITH {REPLICA} SELECT count(*) FROM replica AS r
        WHERE r.is_clean AND r.end_offset > 0 AND {_HAS_PRODUCERS}
    """,
    defects=f"""
        {_ENDS} SELECT {finding("named", "said", at=_AT_END)} FROM behind WHERE is_clean
    """,
    undecided=f"""
        {_ENDS} SELECT {
        finding(
            "named",
            "concat(said, '; the log was not closed: its end was lost, or the files were copied at "
            "different times')",
            at=_AT_END,
        )
    } FROM behind WHERE NOT is_clean AND snapshot_offset > end_offset
    """,
)

RULES: Final = (PRODUCER_SNAPSHOTS_FIT, PRODUCER_SNAPSHOTS_AT_END)
