"""Transactions of a partition: how they ended, what readers see of them, and which never end.

The transactions are folded from the batches of each log. Kafka's own record of them are the
transaction indexes and the coordinator's log.

Source: KIP-98, KIP-664, KIP-890; ProducerStateManager, TransactionIndex, TransactionsCommand.
"""

from typing import Final

from kraftsim.audit.log_sql import (
    BATCH,
    ISR,
    POLICY,
    REFERENCE,
    REPLICA,
    SEGMENT,
    TRANSACTION,
    finding,
)
from kraftsim.audit.rule import AuditRule, DefectSeverity

_READS: Final = ("log_dirs", "replicas", "files", "batches")
_POLICY_READS: Final = ("metadata_records", "metadata_topics")

# --------------------------------------------------------------------------------------------------
# One transaction has one end
#
# Since KIP-890 a marker has the epoch after that of the records: it belongs to one transaction.
# Before that only markers that fence a producer have, and these abort. Markers with the epoch of
# the records say nothing here: one epoch may have many transactions, and some have no records.

_ENDS: Final = f"""
WITH {REPLICA}, {SEGMENT}, {BATCH}, {TRANSACTION}, ended AS (
    SELECT coalesce(d.cluster_id, '') AS cluster_id, t.producer_id, t.marker_epoch, t.control_type,
        t.log_dir, t.directory, t.marker_offset, t.marker_ms,
        row_number() OVER (PARTITION BY coalesce(d.cluster_id, ''), t.producer_id, t.marker_epoch,
            t.control_type ORDER BY t.directory, t.marker_offset, t.log_dir) AS place
    FROM transaction AS t LEFT JOIN log_dirs AS d ON d.log_dir = t.log_dir
    WHERE t.marker_epoch > t.producer_epoch
), contradiction AS (
    SELECT c.producer_id, c.marker_epoch, c.log_dir, c.directory, c.marker_offset, c.marker_ms,
        a.log_dir AS abort_dir, a.directory AS abort_directory, a.marker_offset AS abort_offset
    FROM ended AS c JOIN ended AS a ON a.cluster_id = c.cluster_id
        AND a.producer_id = c.producer_id AND a.marker_epoch = c.marker_epoch
    WHERE c.place = 1 AND a.place = 1 AND c.control_type = 'COMMIT' AND a.control_type = 'ABORT'
)"""

TRANSACTIONS_WHOLE: Final = AuditRule(
    name="transactions-commit-or-abort",
    statement="A transaction ends with COMMIT in all its partitions or with ABORT in all of them.",
    source="KIP-98, KIP-890",
    severity=DefectSeverity.WRONG,
    meaning="A read_committed consumer gets a part of the transaction and misses the rest.",
    remedy="Decide with the application whether the transaction counts. Produce the aborted part "
    "again, or compensate the committed part.",
    reads=_READS,
    examined=f"""
        {_ENDS} SELECT count(DISTINCT concat(cluster_id, ' ', producer_id, ' ', marker_epoch))
        FROM ended
    """,
    defects=f"""
        {_ENDS} SELECT {
        finding(
            "concat('producer ', producer_id)",
            "concat('the transaction of producer id ', producer_id, ' that ended with epoch ', "
            "marker_epoch, ' is committed in ', directory, ' at offset ', marker_offset, ' and "
            "aborted in ', abort_directory, ' at offset ', abort_offset)",
            since="marker_ms",
            at=("log_dir", "directory", "CAST(-1 AS BIGINT)", "marker_offset"),
            and_at=("abort_dir", "abort_directory", "CAST(-1 AS BIGINT)", "abort_offset"),
        )
    } FROM contradiction
    """,
)

# --------------------------------------------------------------------------------------------------
# The transaction index: the aborted transactions whose markers are in a segment
#
# The last stable offset of an entry is the first offset of the oldest transaction that is open
# behind the marker, or the offset after the marker. A follower appends many batches at a time and
# counts those that begin among them too: its value may be higher, never lower.

_INDEXES: Final = f"""
WITH {REPLICA}, {SEGMENT}, {BATCH}, {POLICY}, {TRANSACTION}, stable AS (
    SELECT *, min(first_offset) OVER (PARTITION BY log_dir, directory
            ORDER BY coalesce(marker_offset, 9223372036854775807)
            ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS oldest_offset
    FROM transaction WHERE first_offset IS NOT NULL
), aborted AS (
    SELECT s.log_dir, s.directory, s.producer_id, s.first_offset, s.marker_offset, s.marker_ms,
        s.marker_segment, least(coalesce(s.oldest_offset, s.marker_offset + 1),
            s.marker_offset + 1) AS stable_offset
    FROM stable AS s
    WHERE s.control_type = 'ABORT' AND s.first_offset IS NOT NULL
), indexed AS (
    SELECT a.log_dir, a.directory, a.file, a.producer_id, a.first_offset, a.last_offset,
        a.last_stable_offset
    FROM aborted_transactions AS a
    JOIN files AS f ON f.log_dir = a.log_dir AND f.file = a.file AND f.state = 'live'
), paired AS (
    SELECT coalesce(b.log_dir, i.log_dir) AS log_dir, coalesce(b.directory, i.directory)
            AS directory,
        coalesce(b.producer_id, i.producer_id) AS producer_id, b.first_offset, b.marker_offset,
        b.stable_offset, b.marker_ms, b.marker_segment, i.file, i.first_offset AS indexed_first,
        i.last_offset AS indexed_last, i.last_stable_offset
    FROM aborted AS b
    FULL OUTER JOIN indexed AS i ON i.log_dir = b.log_dir AND i.directory = b.directory
        AND i.producer_id = b.producer_id AND i.last_offset = b.marker_offset
), contradiction AS (
    SELECT m.log_dir, r.directory, r.named, r.is_clean, m.file, m.marker_segment, m.marker_ms,
        coalesce(m.marker_offset, m.indexed_last) AS at_offset, r.recovery_point,
        CASE
            WHEN m.file IS NULL THEN concat('the index lacks the aborted transaction of producer '
                'id ', m.producer_id, ' from offset ', m.first_offset, ' to ', m.marker_offset)
            WHEN m.marker_offset IS NULL THEN concat('the index has an aborted transaction of '
                'producer id ', m.producer_id, ' from offset ', m.indexed_first, ' to ',
                m.indexed_last, ', which the log has not')
            WHEN m.indexed_first <> m.first_offset THEN concat('the index lets the aborted '
                'transaction of producer id ', m.producer_id, ' that ends at offset ',
                m.marker_offset, ' begin at offset ', m.indexed_first, ', the log at offset ',
                m.first_offset)
            ELSE concat('the index gives the abort at offset ', m.marker_offset, ' the last '
                'stable offset ', m.last_stable_offset, ', by the log it is ', m.stable_offset)
        END AS said
    FROM paired AS m
    JOIN replica AS r ON r.log_dir = m.log_dir AND r.directory = m.directory
    JOIN policy AS y ON y.topic = r.topic
    WHERE y.kind <> 'compacted' AND coalesce(m.marker_offset, m.indexed_last) >= r.first_offset
        AND (m.file IS NULL
            OR (m.marker_offset IS NULL AND m.indexed_first >= r.first_offset)
            OR (m.indexed_first <> m.first_offset AND m.indexed_first >= r.first_offset)
            OR (m.indexed_first = m.first_offset AND r.first_offset = 0
                AND (m.last_stable_offset < m.stable_offset
                    OR (m.stable_offset <= m.marker_offset
                        AND m.last_stable_offset > m.stable_offset))))
)"""
_AT_MARKER: Final = ("log_dir", "coalesce(file, directory)", "CAST(-1 AS BIGINT)", "at_offset")
_INDEX_SAYS: Final = (
    "concat(named, ': ', said, CASE WHEN marker_segment IS NULL THEN '' ELSE concat(' (segment ', "
    "marker_segment, ')') END"
)

TRANSACTION_INDEXES_FIT: Final = AuditRule(
    name="transaction-indexes-fit-logs",
    statement="The transaction indexes of a log have the aborted transactions that its markers "
    "end, with their first offsets and last stable offsets.",
    source="KIP-98, TransactionIndex, ProducerStateManager.lastStableOffset",
    severity=DefectSeverity.WRONG,
    meaning="A read_committed consumer gets records of an aborted transaction, or is not given "
    "records of one that committed.",
    remedy="Stop the broker, delete the .txnindex files of the partition, and in the log directory "
    ".kafka_cleanshutdown and recovery-point-offset-checkpoint, and start the broker: it rebuilds "
    "them.",
    reads=(*_READS, *_POLICY_READS, "aborted_transactions"),
    examined=f"{_INDEXES} SELECT count(*) FROM aborted",
    defects=f"""
        {_INDEXES} SELECT {finding("named", f"{_INDEX_SAYS})", since="marker_ms", at=_AT_MARKER)}
        FROM contradiction WHERE is_clean OR at_offset < coalesce(recovery_point, 0)
    """,
    undecided=f"""
        {_INDEXES} SELECT {
        finding(
            "named",
            f"{_INDEX_SAYS}, '; the log was not closed: the broker rebuilds the index from its "
            "recovery point on')",
            at=_AT_MARKER,
        )
    } FROM contradiction WHERE NOT is_clean AND at_offset >= coalesce(recovery_point, 0)
    """,
)

# --------------------------------------------------------------------------------------------------
# Hanging transactions: open in the log of a partition, and unknown to the coordinator
#
# KIP-664 calls a transaction hanging that is older than transaction.max.timeout.ms and five minutes
# if no transactional id has its producer id, or the id's transaction does not have the partition.
# Without that age it is only certain if both logs were complete when they were closed: the broker
# was in the ISR and stopped cleanly.

_MAX_TIMEOUT_MS: Final = 900_000
"""transaction.max.timeout.ms by default."""
_MARGIN_MS: Final = 300_000

_OPEN: Final = f"""
WITH {REPLICA}, {SEGMENT}, {BATCH}, {ISR}, {REFERENCE}, {TRANSACTION}, limits AS (
    SELECT greatest(coalesce(max(timeout_ms), 0), {_MAX_TIMEOUT_MS}) + {_MARGIN_MS} AS age_ms
    FROM transaction_states
), clock AS (
    SELECT log_dir, directory, max(max_ms) AS newest_ms FROM batch
    WHERE is_control OR timestamp_type = 'LogAppendTime' OR topic = '__transaction_state'
    GROUP BY log_dir, directory
), coordinator AS (
    SELECT f.cluster_id, f.log_dir, f.directory, f.partition, f.is_clean AND f.is_in_isr
        AS is_complete, c.newest_ms
    FROM reference AS f
    LEFT JOIN clock AS c ON c.log_dir = f.log_dir AND c.directory = f.directory
    WHERE f.topic = '__transaction_state'
), coordinators AS (
    SELECT c.cluster_id, count(DISTINCT c.partition) AS partitions,
        greatest(max(c.partition) + 1, coalesce(max(k.partitions), 50)) AS wanted,
        min(CASE WHEN c.is_complete THEN 1 ELSE 0 END) = 1 AS are_complete,
        min(coalesce(c.newest_ms, 0)) AS newest_ms
    FROM coordinator AS c
    LEFT JOIN (
        SELECT coalesce(d.cluster_id, '') AS cluster_id, max(m.partition_id) + 1 AS partitions
        FROM metadata_partitions AS m
        JOIN metadata_topics AS t ON t.topic_id = m.topic_id
            AND t.topic_name = '__transaction_state'
        LEFT JOIN log_dirs AS d ON d.log_dir = m.log_dir
        GROUP BY coalesce(d.cluster_id, '')
    ) AS k ON k.cluster_id = c.cluster_id
    GROUP BY c.cluster_id
), state AS (
    SELECT * FROM (
        SELECT c.cluster_id, c.is_complete, c.newest_ms, s.transactional_id, s.producer_id,
            s.previous_producer_id, s.next_producer_id, s.producer_epoch, s.status, s.timeout_ms,
            s.is_tombstone, replace(coalesce(s.partitions, ''), ' ', '') AS partitions,
            row_number() OVER (PARTITION BY c.cluster_id, s.transactional_id
                ORDER BY s.record_offset DESC) AS place
        FROM transaction_states AS s
        JOIN coordinator AS c ON c.log_dir = s.log_dir AND c.directory = s.directory
    ) AS numbered WHERE place = 1 AND NOT coalesce(is_tombstone, false)
), identity AS (
    SELECT cluster_id, producer_id AS of_id, transactional_id FROM state
    UNION
    SELECT cluster_id, previous_producer_id, transactional_id FROM state
    WHERE previous_producer_id >= 0
    UNION
    SELECT cluster_id, next_producer_id, transactional_id FROM state WHERE next_producer_id >= 0
), marked AS (
    SELECT log_dir, directory, producer_id, max(coordinator_epoch) AS coordinator_epoch
    FROM batch WHERE coordinator_epoch IS NOT NULL GROUP BY log_dir, directory, producer_id
), began AS (
    SELECT t.*, f.cluster_id, f.named, f.end_offset, f.high_watermark,
        f.is_clean AND f.is_in_isr AS is_complete, c.newest_ms,
        coalesce(m.coordinator_epoch, 0) AS known_coordinator_epoch
    FROM transaction AS t
    JOIN reference AS f ON f.log_dir = t.log_dir AND f.directory = t.directory
    LEFT JOIN clock AS c ON c.log_dir = t.log_dir AND c.directory = t.directory
    LEFT JOIN marked AS m ON m.log_dir = t.log_dir AND m.directory = t.directory
        AND m.producer_id = t.producer_id
    WHERE t.marker_offset IS NULL AND t.first_offset IS NOT NULL
), asked AS (
    SELECT b.*, s.transactional_id, s.status, s.timeout_ms,
        s.status IN ('Ongoing', 'PrepareCommit', 'PrepareAbort') AND s.partitions
            LIKE concat('%["', b.topic, '",', b.partition, ']%') AS is_ongoing,
        CASE WHEN s.transactional_id IS NULL THEN coalesce(n.partitions = n.wanted, false)
            ELSE true END AS is_answered,
        b.is_complete AND coalesce(CASE WHEN s.transactional_id IS NULL THEN n.are_complete
            ELSE s.is_complete END, false) AS are_complete,
        coalesce(b.newest_ms - b.last_ms > l.age_ms AND CASE WHEN s.transactional_id IS NULL
            THEN n.newest_ms ELSE s.newest_ms END - b.last_ms > l.age_ms, false) AS is_old,
        row_number() OVER (PARTITION BY b.log_dir, b.directory, b.producer_id ORDER BY
            CASE WHEN s.status IN ('Ongoing', 'PrepareCommit', 'PrepareAbort') THEN 0 ELSE 1 END,
            s.transactional_id) AS choice
    FROM began AS b
    CROSS JOIN limits AS l
    LEFT JOIN coordinators AS n ON n.cluster_id = b.cluster_id
    LEFT JOIN identity AS i ON i.cluster_id = b.cluster_id AND i.of_id = b.producer_id
    LEFT JOIN state AS s ON s.cluster_id = i.cluster_id
        AND s.transactional_id = i.transactional_id
), candidate AS (
    SELECT *, coalesce(is_ongoing, false) AS is_held, NOT coalesce(is_ongoing, false)
        AND is_answered AND (are_complete OR is_old) AS is_hanging
    FROM asked WHERE choice = 1
), spoken AS (
    SELECT *, concat(named, ': producer id ', producer_id, ' epoch ', producer_epoch,
        ' has a transaction open since offset ', first_offset, '; read_committed consumers stop '
        'there, ', greatest(coalesce(high_watermark, 0), end_offset) - first_offset,
        ' offsets before the end of the log',
        CASE WHEN newest_ms > last_ms THEN concat('; its last record is ',
            CAST(floor((newest_ms - last_ms) / 1000) AS BIGINT),
            ' seconds older than the newest marker or append of the log') ELSE '' END) AS said
    FROM candidate
), located AS (
    SELECT s.*, b.file, b.position
    FROM spoken AS s
    JOIN batch AS b ON b.log_dir = s.log_dir AND b.directory = s.directory
        AND b.base_offset = s.first_offset
)"""
_AT_FIRST: Final = ("log_dir", "file", "position", "first_offset")

NO_HANGING_TRANSACTIONS: Final = AuditRule(
    name="no-hanging-transactions",
    statement="Each open transaction of a partition is ongoing at its transaction coordinator.",
    source="KIP-664, KIP-890",
    severity=DefectSeverity.DEGRADED,
    meaning="No marker will come: read_committed consumers of the partition stop at the "
    "transaction's first record, and compaction and the last stable offset with them.",
    remedy="Start the brokers and abort the transaction with kafka-transactions abort. Upgrade "
    "clients and brokers so that transactions are verified (KIP-890).",
    reads=(
        *_READS,
        "metadata_partitions",
        "metadata_topics",
        "leader_epochs",
        "transaction_states",
    ),
    examined=f"""
        WITH {REPLICA}, {SEGMENT}, {BATCH}, {ISR}, {REFERENCE}, {TRANSACTION}
        SELECT count(*) FROM transaction AS t
        JOIN reference AS f ON f.log_dir = t.log_dir AND f.directory = t.directory
        WHERE t.first_offset IS NOT NULL
    """,
    defects=f"""
        {_OPEN} SELECT {
        finding(
            "concat(named, ' producer ', producer_id)",
            "concat(said, CASE WHEN transactional_id IS NULL THEN '; no transactional id has this "
            "producer id' ELSE concat('; its coordinator has transactional id ', "
            "transactional_id, ' in state ', status, ', without this partition') END)",
            since="first_ms",
            at=_AT_FIRST,
        )
    }, topic, partition, producer_id, producer_epoch,
            known_coordinator_epoch AS coordinator_epoch, first_offset AS start_offset
        FROM located WHERE is_hanging
    """,
    undecided=f"""
        {_OPEN} SELECT {
        finding(
            "concat(named, ' producer ', producer_id)",
            "concat(said, CASE WHEN is_held AND status = 'Ongoing' THEN concat('; its coordinator "
            "has transactional id ', transactional_id, ' ongoing, with a timeout of ', timeout_ms, "
            "' ms: it ends or expires when the brokers run') WHEN is_held THEN concat('; its "
            "coordinator has transactional id ', transactional_id, ' in state ', status, ' and "
            "writes the marker when the brokers run') WHEN NOT is_answered THEN '; "
            "__transaction_state is not here, or not all of it, so whether its coordinator knows "
            "it cannot be said' WHEN transactional_id IS NULL THEN '; no transactional id has this "
            "producer id, but the logs may have been copied at different times' ELSE concat('; its "
            "coordinator has transactional id ', transactional_id, ' in state ', status, ', "
            "without this partition, but the logs may have been copied at different times') END)",
            since="first_ms",
            at=_AT_FIRST,
        )
    } FROM located WHERE NOT is_hanging
    """,
    transaction_columns="topic, partition, producer_id, producer_epoch, coordinator_epoch, "
    "start_offset",
)

RULES: Final = (TRANSACTIONS_WHOLE, TRANSACTION_INDEXES_FIT, NO_HANGING_TRANSACTIONS)
