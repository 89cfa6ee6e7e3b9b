"""Markers in partitions and decisions in __transaction_state agree.

The coordinator writes its decision, PrepareCommit or PrepareAbort, before it sends markers, and the
completion after all of them are written. The marker has producer id and epoch of the decision: with
transaction.version 2 those of the record, one above the epoch of the data; where a producer is
fenced, the epoch that fences it.

Compaction leaves a suffix of the records of a transactional id, so decisions of epochs above the
one of its first record are all there, and of that epoch too if the record is the one that began it.

Source: KIP-98, KIP-360, KIP-664, KIP-890; TransactionMarkerChannelManager, TransactionMetadata.
"""

from typing import Final

from kraftsim.audit.rule import AuditRule, DefectSeverity
from kraftsim.audit.shared_sql import HELD, METADATA, best_logs, finding

TOPIC: Final = "__transaction_state"
LAST_EPOCH: Final = 32767
BUMPING_VERSION: Final = 2
"""The transaction.version with an epoch for each transaction."""

_DECISIONS: Final = f"""
    decisions AS (
        SELECT producer_id, producer_epoch, CASE WHEN status IN ('PrepareCommit', 'CompleteCommit')
            THEN 'COMMIT' ELSE 'ABORT' END AS kind
        FROM transaction_states
        WHERE status IN ('PrepareCommit', 'PrepareAbort', 'CompleteCommit', 'CompleteAbort')
        UNION
        SELECT previous_producer_id, {LAST_EPOCH}, CASE WHEN status = 'CompleteCommit'
            THEN 'COMMIT' ELSE 'ABORT' END
        FROM transaction_states
        WHERE status IN ('CompleteCommit', 'CompleteAbort') AND producer_epoch = 0
            AND previous_producer_id >= 0
    ), {best_logs("decision_logs", f"r.topic = '{TOPIC}'")}, id_states AS (
        SELECT t.* FROM transaction_states AS t
        JOIN decision_logs AS l ON l.log_dir = t.log_dir AND l.directory = t.directory
        WHERE NOT t.is_tombstone
    ), id_begins AS (
        SELECT * FROM (
            SELECT t.*, row_number() OVER (PARTITION BY transactional_id ORDER BY record_offset)
                AS place
            FROM id_states AS t
        ) AS ranked WHERE place = 1
    ), known AS (
        SELECT t.producer_id, max(t.partition) AS coordinator_partition,
            max(t.transactional_id) AS transactional_id, max(t.producer_epoch) AS last_epoch,
            max(CASE WHEN t.producer_id <> b.producer_id THEN -1
                WHEN b.status = 'Empty' THEN b.producer_epoch ELSE b.producer_epoch + 1 END)
                AS known_from
        FROM id_states AS t JOIN id_begins AS b ON b.transactional_id = t.transactional_id
        GROUP BY t.producer_id
    )
"""
"""`known`: per producer id the first epoch of which all decisions are on these disks."""

_MARKERS: Final = """
    markers AS (
        SELECT * FROM (
            SELECT b.log_dir, b.directory, b.topic, b.partition, b.file, b.position,
                b.base_offset AS record_offset, b.max_ms, b.producer_id, b.producer_epoch,
                b.control_type, count(*) OVER (PARTITION BY b.log_dir, b.directory, b.producer_id,
                    b.producer_epoch, b.control_type) AS written,
                row_number() OVER (PARTITION BY b.topic, b.partition, b.producer_id,
                    b.producer_epoch, b.control_type ORDER BY b.base_offset, b.log_dir) AS place
            FROM batches AS b
            WHERE b.is_control AND b.control_type IN ('COMMIT', 'ABORT')
        ) AS ranked WHERE place = 1
    )
"""

_COORDINATOR: Final = f"""
    coordinator_counts AS (
        SELECT max(assigned_count) AS assigned_count, max(whole_count) AS whole_count FROM (
            SELECT count(*) AS assigned_count, 0 AS whole_count FROM assigned
            WHERE topic = '{TOPIC}'
            UNION ALL
            SELECT 0, count(*) FROM (
                SELECT c.partition FROM certain AS c
                JOIN replicas AS r ON r.topic = c.topic AND r.partition = c.partition
                LEFT JOIN (
                    SELECT log_dir, directory, sum(records) AS records FROM batches
                    WHERE topic = '{TOPIC}' GROUP BY log_dir, directory
                ) AS b ON b.log_dir = r.log_dir AND b.directory = r.directory
                WHERE c.topic = '{TOPIC}' AND coalesce(b.records, 0) = r.end_offset
                GROUP BY c.partition
            ) AS whole
        ) AS counted
    )
"""
"""`whole_count`: the partitions of __transaction_state from which nothing was removed."""

_JUDGED: Final = f"""
    WITH {METADATA}, {HELD}, {_DECISIONS}, {_MARKERS}, {_COORDINATOR}, listed AS (
        SELECT in_topic, in_partition, producer_id, producer_epoch,
            CASE WHEN status = 'PrepareCommit' THEN 'COMMIT' ELSE 'ABORT' END AS kind,
            max(amount) AS decided
        FROM (
            SELECT in_topic, in_partition, producer_id, producer_epoch, status, log_dir,
                count(*) AS amount
            FROM transaction_partitions WHERE status IN ('PrepareCommit', 'PrepareAbort')
            GROUP BY in_topic, in_partition, producer_id, producer_epoch, status, log_dir
        ) AS by_log GROUP BY in_topic, in_partition, producer_id, producer_epoch, status
    ), undecided_markers AS (
        SELECT m.*, k.transactional_id, k.known_from, k.last_epoch, o.kind AS other_kind,
            CASE WHEN k.producer_id IS NULL THEN n.whole_count = n.assigned_count
                ELSE c.partition IS NOT NULL END AS is_certain,
            coalesce(l.decided, 0) > coalesce(w.written, 0) AS has_replaced,
            d.producer_id IS NOT NULL AS is_elsewhere
        FROM markers AS m
        LEFT JOIN decisions AS d ON d.producer_id = m.producer_id
            AND d.producer_epoch = m.producer_epoch AND d.kind = m.control_type
        LEFT JOIN decisions AS o ON o.producer_id = m.producer_id
            AND o.producer_epoch = m.producer_epoch AND o.kind <> m.control_type
        LEFT JOIN known AS k ON k.producer_id = m.producer_id
        LEFT JOIN certain AS c ON c.topic = '{TOPIC}' AND c.partition = k.coordinator_partition
        LEFT JOIN listed AS l ON l.in_topic = m.topic AND l.in_partition = m.partition
            AND l.producer_id = m.producer_id AND l.producer_epoch = m.producer_epoch
            AND l.kind = o.kind
        LEFT JOIN markers AS w ON w.topic = m.topic AND w.partition = m.partition
            AND w.producer_id = m.producer_id AND w.producer_epoch = m.producer_epoch
            AND w.control_type = o.kind
        LEFT JOIN listed AS i ON i.in_topic = m.topic AND i.in_partition = m.partition
            AND i.producer_id = m.producer_id AND i.producer_epoch = m.producer_epoch
            AND i.kind = m.control_type
        CROSS JOIN coordinator_counts AS n
        WHERE (d.producer_id IS NULL OR (i.producer_id IS NULL AND k.producer_id IS NOT NULL))
            AND CASE WHEN k.producer_id IS NULL
            THEN n.assigned_count > 0 AND n.whole_count = n.assigned_count
            ELSE m.producer_epoch >= k.known_from END
    ), judged AS (
        SELECT undecided_markers.*,
            (is_elsewhere OR producer_epoch <= coalesce(last_epoch, -1) OR is_certain)
                AND (control_type = 'COMMIT' OR (other_kind IS NOT NULL AND has_replaced))
                AS is_defect,
            CASE WHEN is_elsewhere THEN ', and the partition was in no such transaction'
                WHEN other_kind = 'COMMIT' THEN ', and the coordinator decided to commit'
                WHEN other_kind = 'ABORT' THEN ', and the coordinator decided to abort'
                ELSE ', and no decision of a coordinator is for it' END AS why
        FROM undecided_markers
    )
"""
_MARKER_MESSAGE: Final = (
    "'partition ', topic, '-', partition, ' has a marker ', control_type, ' at offset ', "
    "record_offset, ' of producer id ', producer_id, ', epoch ', producer_epoch, why"
)
_MARKER_READS: Final = (
    "batches",
    "transaction_states",
    "transaction_partitions",
    "replicas",
    "log_dirs",
    "metadata_records",
    "metadata_topics",
    "metadata_partitions",
)
_PRODUCER: Final = (
    "CASE WHEN transactional_id IS NULL THEN concat('producer id ', producer_id) "
    "ELSE concat('transactional id ', transactional_id) END"
)

MARKERS_DECIDED = AuditRule(
    name="markers-decided",
    statement="Every COMMIT or ABORT marker follows from a decision of the coordinator.",
    source="KIP-98, KIP-890",
    severity=DefectSeverity.LOSS,
    meaning="A transaction has another result in this partition than its application knows: "
    "records that were committed are skipped by read_committed consumers, or aborted ones are "
    "read.",
    remedy="Compare the markers of this producer id in all partitions of the transaction. Look for "
    "a replica of __transaction_state that has the decision; if there is none, the coordinator's "
    "log lost records.",
    reads=_MARKER_READS,
    examined=f"""
        WITH {METADATA}, {HELD}, {_DECISIONS}, {_MARKERS}, {_COORDINATOR}
        SELECT count(*) FROM markers AS m LEFT JOIN known AS k ON k.producer_id = m.producer_id
        CROSS JOIN coordinator_counts AS n
        WHERE CASE WHEN k.producer_id IS NULL
            THEN n.assigned_count > 0 AND n.whole_count = n.assigned_count
            ELSE m.producer_epoch >= k.known_from END
    """,
    defects=f"""
        {_JUDGED} SELECT {finding(_PRODUCER, f"concat({_MARKER_MESSAGE})", since="max_ms")}
        FROM judged WHERE is_defect
    """,
    undecided=f"""
        {_JUDGED} SELECT {
        finding(
            _PRODUCER,
            f"concat({_MARKER_MESSAGE}, CASE WHEN control_type = 'ABORT' "
            "AND (is_elsewhere OR producer_epoch <= "
            "coalesce(last_epoch, -1) OR is_certain) THEN '; kafka-transactions.sh abort may have "
            "written it' ELSE '; it may be in a replica of __transaction_state that is not here, "
            "or "
            "came after the copy' END)",
            since="max_ms",
        )
    } FROM judged WHERE NOT is_defect
    """,
)


# --------------------------------------------------------------------------------------------------
# A completed transaction has a marker in each of its partitions

_MARKED: Final = "(substr(r.topic, 1, 2) <> '__' OR r.topic = '__consumer_offsets')"
_COMPLETED: Final = f"""
    WITH {METADATA}, {HELD}, {best_logs("state_logs", f"r.topic = '{TOPIC}'")}, follows AS (
        SELECT t.log_dir, t.directory, t.record_offset, t.transactional_id, t.producer_id,
            t.producer_epoch, t.status, t.client_transaction_version, t.start_ms,
            lead(t.status) OVER (PARTITION BY t.log_dir, t.directory, t.transactional_id
                ORDER BY t.record_offset) AS next_status,
            lead(t.last_update_ms) OVER (PARTITION BY t.log_dir, t.directory, t.transactional_id
                ORDER BY t.record_offset) AS completed_ms
        FROM transaction_states AS t
        JOIN state_logs AS l ON l.log_dir = t.log_dir AND l.directory = t.directory
    ), completed AS (
        SELECT f.*, CASE WHEN f.status = 'PrepareCommit' THEN 'COMMIT' ELSE 'ABORT' END AS kind
        FROM follows AS f
        WHERE (f.status = 'PrepareCommit' AND f.next_status = 'CompleteCommit')
            OR (f.status = 'PrepareAbort' AND f.next_status = 'CompleteAbort')
    ), created AS (
        SELECT t.topic_name AS topic, max(r.timestamp_ms) AS created_ms
        FROM metadata_topics AS t
        JOIN metadata_records AS r ON r.log_dir = t.log_dir AND r.file = t.file
            AND r.record_offset = t.record_offset
        WHERE t.snapshot_end_offset IS NULL AND NOT t.is_removed GROUP BY t.topic_name
    ), compacted AS (
        SELECT topic FROM replicas WHERE cleaned_until > 0
        UNION
        SELECT get_json_object(data, '$.resourceName') FROM metadata_records
        WHERE type = 'CONFIG_RECORD' AND get_json_object(data, '$.name') = 'cleanup.policy'
            AND instr(data, 'compact') > 0
    ), {best_logs("user_logs", _MARKED)},
    whole AS (
        SELECT log_dir, directory, sum(records) AS records FROM batches
        GROUP BY log_dir, directory
    ), wanted AS (
        SELECT c.producer_id, c.producer_epoch, c.kind, p.in_topic AS topic,
            p.in_partition AS partition, max(c.transactional_id) AS transactional_id,
            max(c.completed_ms) AS completed_ms, count(*) AS decided,
            min(c.start_ms) AS first_start_ms,
            min(coalesce(c.client_transaction_version, 0)) AS version,
            max(p.log_dir) AS log_dir, max(p.file) AS file, max(p.position) AS position,
            max(p.record_offset) AS record_offset
        FROM completed AS c
        JOIN transaction_partitions AS p ON p.log_dir = c.log_dir AND p.directory = c.directory
            AND p.record_offset = c.record_offset
        GROUP BY c.producer_id, c.producer_epoch, c.kind, p.in_topic, p.in_partition
    ), required AS (
        SELECT w.*, u.log_dir AS user_dir, u.directory AS user_directory, u.is_clean,
            CASE WHEN w.version >= {BUMPING_VERSION} THEN 1
                WHEN u.first_offset = 0 AND k.created_ms <= w.first_start_ms THEN w.decided
                ELSE 0 END AS required_count,
            h.partition IS NOT NULL AS is_certain
        FROM wanted AS w
        JOIN user_logs AS u ON u.topic = w.topic AND u.partition = w.partition
        LEFT JOIN created AS k ON k.topic = w.topic
        LEFT JOIN certain AS h ON h.topic = w.topic AND h.partition = w.partition
        LEFT JOIN compacted AS x ON x.topic = w.topic
        LEFT JOIN whole AS a ON a.log_dir = u.log_dir AND a.directory = u.directory
        WHERE (x.topic IS NULL AND w.topic <> '__consumer_offsets')
            OR (u.first_offset = 0 AND coalesce(a.records, 0) = u.end_offset)
    ), data AS (
        SELECT log_dir, directory, producer_id, producer_epoch, min(base_offset) AS data_offset,
            min_by(position, base_offset) AS data_position, min_by(file, base_offset) AS data_file
        FROM batches WHERE is_transactional AND NOT is_control
        GROUP BY log_dir, directory, producer_id, producer_epoch
    ), written AS (
        SELECT log_dir, directory, producer_id, producer_epoch, control_type,
            count(*) AS written_count
        FROM batches WHERE is_control AND control_type IN ('COMMIT', 'ABORT')
        GROUP BY log_dir, directory, producer_id, producer_epoch, control_type
    ), newest_markers AS (
        SELECT log_dir, directory, max(max_ms) AS newest_marker_ms FROM batches
        WHERE is_control GROUP BY log_dir, directory
    ), compared AS (
        SELECT r.*, coalesce(w.written_count, 0) AS written_count, d.data_offset, d.data_file,
            d.data_position, coalesce(n.newest_marker_ms, -1) > r.completed_ms AS goes_on
        FROM required AS r
        JOIN (
            SELECT r2.user_dir, r2.user_directory, r2.producer_id, r2.producer_epoch, r2.kind,
                min(d2.data_offset) AS data_offset,
                min_by(d2.data_file, d2.data_offset) AS data_file,
                min_by(d2.data_position, d2.data_offset) AS data_position
            FROM required AS r2 JOIN data AS d2 ON d2.log_dir = r2.user_dir
                AND d2.directory = r2.user_directory AND d2.producer_id = r2.producer_id
                AND d2.producer_epoch BETWEEN r2.producer_epoch - 1 AND r2.producer_epoch
            WHERE r2.version < {BUMPING_VERSION} OR d2.producer_epoch = r2.producer_epoch - 1
            GROUP BY r2.user_dir, r2.user_directory, r2.producer_id, r2.producer_epoch, r2.kind
        ) AS d ON d.user_dir = r.user_dir AND d.user_directory = r.user_directory
            AND d.producer_id = r.producer_id AND d.producer_epoch = r.producer_epoch
            AND d.kind = r.kind
        LEFT JOIN written AS w ON w.log_dir = r.user_dir AND w.directory = r.user_directory
            AND w.producer_id = r.producer_id AND w.producer_epoch = r.producer_epoch
            AND w.control_type = r.kind
        LEFT JOIN newest_markers AS n ON n.log_dir = r.user_dir AND n.directory = r.user_directory
        WHERE r.required_count > 0
    )
"""
_MISSING_MESSAGE: Final = (
    "'partition ', topic, '-', partition, ' has ', written_count, ' of ', required_count, ' ', "
    "kind, ' markers of producer id ', producer_id, ', epoch ', producer_epoch, ', and the "
    "coordinator completed the transaction after it had written all of them'"
)
_MISSING_WITNESS: Final = (
    "user_dir AS log_dir2, data_file AS file2, data_position AS position2, "
    "data_offset AS at_offset2"
)


def _missing(message: str, condition: str) -> str:
    return f"""
        {_COMPLETED}
        SELECT concat('transactional id ', transactional_id) AS subject, concat({message})
            AS message, CAST(completed_ms AS BIGINT) AS since_ms, log_dir, file, position,
            record_offset AS at_offset, {_MISSING_WITNESS}
        FROM compared WHERE written_count < required_count AND {condition}
    """


DECISIONS_MARKED = AuditRule(
    name="decisions-marked",
    statement="A completed transaction has its marker in every partition that was in it.",
    source="KIP-98; TransactionMarkerChannelManager.completeSendMarkersForTxnId",
    severity=DefectSeverity.LOSS,
    meaning="In this partition the transaction never ended. The last stable offset does not "
    "advance, and records that the application committed do not reach read_committed consumers.",
    remedy="Look for a replica of the partition that has the marker and make it the leader. If "
    "none "
    "has it, `kafka-transactions.sh find-hanging` names the open transaction.",
    reads=_MARKER_READS,
    examined=f"{_COMPLETED} SELECT count(*) FROM compared",
    defects=_missing(_MISSING_MESSAGE, "(is_certain OR goes_on)"),
    undecided=_missing(
        _MISSING_MESSAGE
        + ", ', but not all its replicas are here, or they were copied before the marker came'",
        "NOT (is_certain OR goes_on)",
    ),
)

RULES = (MARKERS_DECIDED, DECISIONS_MARKED)
