"""The copies of the metadata log agree, have no holes, and their snapshots say what their records
say.

Two logs that have a batch at one offset and leader epoch have the same batches up to there. Where
epochs differ the older one is the rest of a leader that was deposed, and legitimate unless it was
committed: a majority of the voters has it, or its own replica made a snapshot of it.

Source: KIP-595, KIP-630; org.apache.kafka.raft.KafkaRaftClient, MetadataImage.
"""

from typing import Final

from kraftsim.audit.rule import AuditRule, DefectSeverity
from kraftsim.audit.shared_sql import METADATA_TOPIC, finding

_LOG: Final = f"""
    log_batches AS (
        SELECT b.log_dir, b.node_id, b.file, b.position, b.base_offset, b.last_offset,
            b.leader_epoch, b.crc, b.max_ms,
            lag(b.last_offset) OVER (PARTITION BY b.log_dir ORDER BY b.base_offset, b.position)
                AS last_before,
            lag(b.leader_epoch) OVER (PARTITION BY b.log_dir ORDER BY b.base_offset, b.position)
                AS epoch_before
        FROM batches AS b WHERE b.topic = '{METADATA_TOPIC}' AND b.file LIKE '%.log'
    ), snapshot_ends AS (
        SELECT log_dir, max(snapshot_end_offset) AS snapshot_end
        FROM metadata_records GROUP BY log_dir
    )
"""
_PAIRS: Final = f"""
    WITH {_LOG}, voters AS (
        SELECT DISTINCT CAST(get_json_object(data, '$.controllerId') AS INT) AS voter_id
        FROM metadata_records WHERE type = 'REGISTER_CONTROLLER_RECORD'
    ), voter_count AS (
        SELECT count(*) AS voter_count FROM voters
    ), holders AS (
        SELECT b.base_offset, b.leader_epoch, count(DISTINCT v.voter_id) AS holder_count
        FROM log_batches AS b LEFT JOIN voters AS v ON v.voter_id = b.node_id
        GROUP BY b.base_offset, b.leader_epoch
    ), pairs AS (
        SELECT a.log_dir, a.file, a.position, a.base_offset AS record_offset,
            a.leader_epoch AS epoch, a.max_ms, b.log_dir AS log_dir2, b.file AS file2,
            b.position AS position2, b.base_offset AS at_offset2, b.leader_epoch AS epoch2,
            CASE WHEN a.leader_epoch = b.leader_epoch
                THEN a.crc <> b.crc OR a.last_offset <> b.last_offset
                ELSE h.holder_count * 2 > n.voter_count
                    AND n.voter_count > 0 OR coalesce(s.snapshot_end, 0) > a.base_offset
                END AS is_wrong
        FROM log_batches AS a
        JOIN log_batches AS b ON b.base_offset = a.base_offset AND b.log_dir <> a.log_dir
            AND (a.leader_epoch < b.leader_epoch
                OR (a.leader_epoch = b.leader_epoch AND a.log_dir < b.log_dir))
        JOIN holders AS h ON h.base_offset = a.base_offset AND h.leader_epoch = a.leader_epoch
        LEFT JOIN snapshot_ends AS s ON s.log_dir = a.log_dir
        CROSS JOIN voter_count AS n
    ), first_wrong AS (
        SELECT * FROM (
            SELECT pairs.*, row_number() OVER (PARTITION BY log_dir, log_dir2
                ORDER BY record_offset) AS place FROM pairs WHERE is_wrong
        ) AS ranked WHERE place = 1
    )
"""

LOGS_EQUAL = AuditRule(
    name="metadata-logs-equal",
    statement="All copies of the metadata log have the same batch at an offset that was committed.",
    source="KIP-595; the log matching property of Raft",
    severity=DefectSeverity.LOSS,
    meaning="Controllers and brokers have different histories of the cluster: of topics, "
    "leaders and producer ids. What one of them learned is not what the next leader knows.",
    remedy="Keep copies of all metadata directories. Find out which history the majority has, "
    "format the directory of the others, and let them fetch it again.",
    reads=("batches", "metadata_records"),
    examined=f"{_PAIRS} SELECT count(*) FROM pairs",
    defects=f"""
        {_PAIRS}
        SELECT 'metadata log' AS subject, concat('at offset ', record_offset, ' ', log_dir,
            ' has a batch of epoch ', epoch, ' and ', log_dir2, ' another one of epoch ', epoch2,
            CASE WHEN epoch = epoch2 THEN ''
                ELSE ', and the older one was committed' END) AS message,
            max_ms AS since_ms, log_dir, file, position, record_offset AS at_offset, log_dir2,
            file2, position2, at_offset2
        FROM first_wrong
    """,
)

_CONTIGUOUS: Final = f"""
    WITH {_LOG}, wrong AS (
        SELECT b.*, CASE WHEN b.last_before IS NULL AND b.base_offset > coalesce(s.snapshot_end, 0)
                THEN 'start'
            WHEN b.base_offset <> b.last_before + 1 THEN 'hole'
            WHEN b.leader_epoch < b.epoch_before THEN 'epoch' END AS how, s.snapshot_end
        FROM log_batches AS b LEFT JOIN snapshot_ends AS s ON s.log_dir = b.log_dir
    )
"""

LOG_CONTIGUOUS = AuditRule(
    name="metadata-log-contiguous",
    statement="The metadata log has every offset after its newest snapshot's beginning, and its "
    "leader epochs do not decrease.",
    source="KIP-595, KIP-630",
    severity=DefectSeverity.LOSS,
    meaning="Records of the metadata log are missing here. The node cannot load its metadata, or "
    "loads a cluster that never was.",
    remedy="Do not start the node with this directory. Format it and let the node fetch the "
    "metadata from the others, if a majority of the voters is sound.",
    reads=("batches", "metadata_records"),
    examined=f"{_CONTIGUOUS} SELECT count(*) FROM wrong",
    defects=f"""
        {_CONTIGUOUS}
        SELECT {
        finding(
            "concat('metadata log in ', log_dir)",
            "CASE WHEN how = 'start' THEN concat('the log begins at offset ', base_offset, "
            "', and no snapshot reaches up to it; the newest ends at ', coalesce(snapshot_end, 0)) "
            "WHEN how = 'hole' THEN concat('offset ', last_before, ' is followed by ', "
            "base_offset) ELSE concat('the batch at offset ', base_offset, ' is of epoch ', "
            "leader_epoch, ' and the one before it of ', epoch_before) END",
            since="max_ms",
            offset="base_offset",
        )
    } FROM wrong WHERE how IS NOT NULL
    """,
)


# --------------------------------------------------------------------------------------------------
# A snapshot equals the fold of the records before its end
#
# `facts` is what each record says, as a kind, a key and a value; a null value removes the key.

_TYPED: Final = " UNION ALL ".join(
    f"SELECT log_dir, file, position, snapshot_end_offset, record_offset, '{kind}' AS kind, "
    f"{key} AS fact_key, {value} AS fact_value FROM metadata_records WHERE type = '{record}'"
    for record, kind, key, value in (
        (
            "FEATURE_LEVEL_RECORD",
            "feature",
            "get_json_object(data, '$.name')",
            "CASE WHEN get_json_object(data, '$.featureLevel') <> '0' "
            "THEN get_json_object(data, '$.featureLevel') END",
        ),
        (
            "REGISTER_BROKER_RECORD",
            "broker epoch of broker",
            "get_json_object(data, '$.brokerId')",
            "get_json_object(data, '$.brokerEpoch')",
        ),
        (
            "UNREGISTER_BROKER_RECORD",
            "broker epoch of broker",
            "get_json_object(data, '$.brokerId')",
            "CAST(NULL AS STRING)",
        ),
        (
            "REGISTER_CONTROLLER_RECORD",
            "incarnation of controller",
            "get_json_object(data, '$.controllerId')",
            "get_json_object(data, '$.incarnationId')",
        ),
        (
            "CONFIG_RECORD",
            "configuration",
            "concat(get_json_object(data, '$.resourceType'), ' ', "
            "get_json_object(data, '$.resourceName'), ' ', get_json_object(data, '$.name'))",
            "get_json_object(data, '$.value')",
        ),
        (
            "ACCESS_CONTROL_ENTRY_RECORD",
            "access control entry",
            "get_json_object(data, '$.id')",
            "get_json_object(data, '$.resourceName')",
        ),
        (
            "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
            "access control entry",
            "get_json_object(data, '$.id')",
            "CAST(NULL AS STRING)",
        ),
    )
)
_SNAPSHOTS: Final = f"""
    WITH snapshots AS (
        SELECT log_dir, snapshot_end_offset AS snapshot_end, lag(snapshot_end_offset) OVER (
            PARTITION BY log_dir ORDER BY snapshot_end_offset) AS snapshot_before, file
        FROM (SELECT log_dir, snapshot_end_offset, max(file) AS file FROM metadata_records
            WHERE snapshot_end_offset IS NOT NULL GROUP BY log_dir, snapshot_end_offset) AS ends
    ), aborting AS (
        SELECT DISTINCT log_dir FROM metadata_records WHERE type = 'ABORT_TRANSACTION_RECORD'
    ), checked AS (
        SELECT s.log_dir, s.snapshot_end, s.file AS snapshot_file,
            CASE WHEN r.first_offset <= s.snapshot_before THEN s.snapshot_before END AS base_end
        FROM snapshots AS s
        JOIN replicas AS r ON r.log_dir = s.log_dir AND r.topic = '{METADATA_TOPIC}'
        LEFT JOIN aborting AS x ON x.log_dir = s.log_dir
        WHERE s.snapshot_end > 0 AND r.end_offset >= s.snapshot_end AND x.log_dir IS NULL
            AND (r.first_offset = 0 OR r.first_offset <= s.snapshot_before)
    ), facts AS (
        SELECT log_dir, file, position, snapshot_end_offset, record_offset, 'topic' AS kind,
            topic_id AS fact_key, CASE WHEN NOT is_removed THEN topic_name END AS fact_value
        FROM metadata_topics
        UNION ALL
        SELECT log_dir, file, position, snapshot_end_offset, record_offset, 'next producer id',
            '', CAST(next_producer_id AS STRING) FROM producer_id_blocks
        UNION ALL {_TYPED}
    ), former_names AS (
        SELECT DISTINCT log_dir, topic_name FROM (
            SELECT n.log_dir, n.topic_name FROM metadata_topics AS n
            JOIN metadata_topics AS x ON x.log_dir = n.log_dir AND x.topic_id = n.topic_id
            WHERE x.is_removed AND NOT n.is_removed
        ) AS removed_topics
    ), in_range AS (
        SELECT c.log_dir, c.snapshot_end, c.snapshot_file, f.kind, f.fact_key, f.fact_value, f.file,
            f.position, f.record_offset, f.snapshot_end_offset = c.snapshot_end AS is_said,
            CASE WHEN f.snapshot_end_offset IS NULL THEN f.record_offset + 1 ELSE 0 END AS place
        FROM checked AS c
        JOIN facts AS f ON f.log_dir = c.log_dir AND (f.snapshot_end_offset = c.snapshot_end
            OR f.snapshot_end_offset = c.base_end
            OR (f.snapshot_end_offset IS NULL AND f.record_offset < c.snapshot_end
                AND f.record_offset >= coalesce(c.base_end, 0)))
        LEFT JOIN former_names AS n ON f.kind = 'configuration' AND n.log_dir = f.log_dir
            AND instr(f.fact_key, concat('2 ', n.topic_name, ' ')) = 1
        WHERE n.topic_name IS NULL
    ), folded AS (
        SELECT * FROM (
            SELECT r.*, coalesce(r.is_said, false) AS said, row_number() OVER (
                PARTITION BY r.log_dir, r.snapshot_end, r.kind, r.fact_key,
                    coalesce(r.is_said, false) ORDER BY r.place DESC, r.record_offset DESC)
                AS newest
            FROM in_range AS r
        ) AS ranked WHERE newest = 1 AND fact_value IS NOT NULL
    ), partition_rows AS (
        SELECT c.log_dir, c.snapshot_end, c.snapshot_file, m.topic_id, m.partition_id, m.is_change,
            m.leader, m.partition_epoch, replace(m.replicas, ' ', '') AS replicas,
            replace(m.isr, ' ', '') AS isr, m.file, m.position, m.record_offset,
            coalesce(m.snapshot_end_offset = c.snapshot_end, false) AS said,
            CASE WHEN m.snapshot_end_offset IS NULL THEN m.record_offset + 1 ELSE 0 END AS place
        FROM checked AS c
        JOIN metadata_partitions AS m ON m.log_dir = c.log_dir
            AND (m.snapshot_end_offset = c.snapshot_end OR m.snapshot_end_offset = c.base_end
                OR (m.snapshot_end_offset IS NULL AND m.record_offset < c.snapshot_end
                    AND m.record_offset >= coalesce(c.base_end, 0)))
    ), partition_begins AS (
        SELECT log_dir, snapshot_end, topic_id, partition_id, said, max(place) AS begin_place
        FROM partition_rows WHERE NOT is_change
        GROUP BY log_dir, snapshot_end, topic_id, partition_id, said
    ), partition_states AS (
        SELECT p.log_dir, p.snapshot_end, max(p.snapshot_file) AS snapshot_file, p.said,
            concat(p.topic_id, ' ', p.partition_id) AS fact_key, p.topic_id,
            concat('leader ', max_by(CASE WHEN p.leader IS NOT NULL THEN p.leader END,
                    CASE WHEN p.leader IS NOT NULL THEN p.place END),
                ', replicas ',
                max_by(p.replicas, CASE WHEN p.replicas IS NOT NULL THEN p.place END),
                ', isr ', max_by(p.isr, CASE WHEN p.isr IS NOT NULL THEN p.place END),
                ', partition epoch ', max(CASE WHEN NOT p.is_change THEN p.partition_epoch END)
                    + sum(CASE WHEN p.is_change THEN 1 ELSE 0 END)) AS fact_value,
            max_by(p.file, p.place) AS file, max_by(p.position, p.place) AS position,
            max(p.record_offset) AS record_offset
        FROM partition_rows AS p
        JOIN partition_begins AS b ON b.log_dir = p.log_dir AND b.snapshot_end = p.snapshot_end
            AND b.topic_id = p.topic_id AND b.partition_id = p.partition_id AND b.said = p.said
        WHERE p.place >= b.begin_place
        GROUP BY p.log_dir, p.snapshot_end, p.said, p.topic_id, p.partition_id
    ), all_facts AS (
        SELECT log_dir, snapshot_end, snapshot_file, said, kind, fact_key, fact_value, file,
            position, record_offset FROM folded
        UNION ALL
        SELECT p.log_dir, p.snapshot_end, p.snapshot_file, p.said, 'partition', p.fact_key,
            p.fact_value, p.file, p.position, p.record_offset
        FROM partition_states AS p JOIN folded AS t ON t.log_dir = p.log_dir
            AND t.snapshot_end = p.snapshot_end AND t.said = p.said AND t.kind = 'topic'
            AND t.fact_key = p.topic_id
        JOIN folded AS o ON o.log_dir = p.log_dir AND o.snapshot_end = p.snapshot_end
            AND o.said <> p.said AND o.kind = 'topic' AND o.fact_key = p.topic_id
    ), compared AS (
        SELECT coalesce(w.log_dir, g.log_dir) AS log_dir,
            coalesce(w.snapshot_end, g.snapshot_end) AS snapshot_end,
            coalesce(w.snapshot_file, g.snapshot_file) AS snapshot_file,
            coalesce(w.kind, g.kind) AS kind, coalesce(w.fact_key, g.fact_key) AS fact_key,
            w.fact_value AS log_value, g.fact_value AS snapshot_value, w.file AS log_file,
            w.position AS log_position, w.record_offset AS log_offset, g.position AS place_there
        FROM (SELECT * FROM all_facts WHERE NOT said) AS w
        FULL OUTER JOIN (SELECT * FROM all_facts WHERE said) AS g ON g.log_dir = w.log_dir
            AND g.snapshot_end = w.snapshot_end AND g.kind = w.kind AND g.fact_key = w.fact_key
    )
"""

SNAPSHOTS_EQUAL_LOG = AuditRule(
    name="metadata-snapshots-equal-log",
    statement="A snapshot of the metadata log says of topics, partitions, producer ids, features, "
    "brokers, configurations and access control what the records before its end say.",
    source="KIP-630; MetadataImage.write",
    severity=DefectSeverity.LOSS,
    meaning="A node that starts from this snapshot, or fetches it, has other metadata than the "
    "nodes that read the log.",
    remedy="Remove the snapshot from the directory while the log before it is still there, or "
    "format the directory and let the node fetch the metadata again.",
    reads=(
        "metadata_records",
        "metadata_topics",
        "metadata_partitions",
        "producer_id_blocks",
        "replicas",
    ),
    examined=f"{_SNAPSHOTS} SELECT count(*) FROM compared",
    defects=f"""
        {_SNAPSHOTS}
        SELECT concat('snapshot at offset ', snapshot_end) AS subject,
            concat('the snapshot at offset ', snapshot_end, ' has ', kind, ' ', fact_key, ': ',
                coalesce(snapshot_value, 'nothing'), ', and the records before its end have: ',
                coalesce(log_value, 'nothing')) AS message,
            CAST(NULL AS BIGINT) AS since_ms, log_dir, snapshot_file AS file,
            coalesce(place_there, -1) AS position, -1 AS at_offset,
            CASE WHEN log_file IS NOT NULL THEN log_dir END AS log_dir2, log_file AS file2,
            log_position AS position2, log_offset AS at_offset2
        FROM compared
        WHERE log_value IS NULL OR snapshot_value IS NULL OR log_value <> snapshot_value
    """,
)


# --------------------------------------------------------------------------------------------------
# Elections

LONG_MS: Final = 10_000
"""Longer than it takes to copy a directory of metadata."""
_QUORUM: Final = f"""
    WITH {_LOG}, last_epochs AS (
        SELECT b.log_dir, b.leader_epoch AS last_epoch, max(b.max_ms) - min(b.max_ms) AS lasted_ms,
            min_by(b.file, b.base_offset) AS file2, min_by(b.position, b.base_offset) AS position2,
            min(b.base_offset) AS at_offset2, min(b.max_ms) AS since_ms
        FROM log_batches AS b
        JOIN (SELECT log_dir, max(leader_epoch) AS last_epoch FROM log_batches GROUP BY log_dir)
            AS n ON n.log_dir = b.log_dir AND n.last_epoch = b.leader_epoch
        GROUP BY b.log_dir, b.leader_epoch
    ), behind AS (
        SELECT q.*, e.last_epoch, e.lasted_ms, e.file2, e.position2, e.at_offset2, e.since_ms
        FROM quorum_states AS q JOIN last_epochs AS e ON e.log_dir = q.log_dir
        WHERE q.leader_epoch < e.last_epoch
    ), leaders AS (
        SELECT leader_epoch, leader_id, min(log_dir) AS log_dir, min_by(file, log_dir) AS file,
            row_number() OVER (PARTITION BY leader_epoch ORDER BY leader_id) AS turn
        FROM quorum_states WHERE leader_id >= 0 GROUP BY leader_epoch, leader_id
    )
"""
_BEHIND: Final = """
    SELECT concat('quorum state in ', log_dir) AS subject, concat('the quorum-state of ', log_dir,
            ' is of epoch ', leader_epoch, ', and the log beside it has epoch ', last_epoch,
            ': the node can vote a second time in the epochs between'{more}) AS message, since_ms,
        log_dir, file, CAST(-1 AS BIGINT) AS position, CAST(-1 AS BIGINT) AS at_offset,
        log_dir AS log_dir2, file2, position2, at_offset2
    FROM behind
"""

ELECTIONS = AuditRule(
    name="one-metadata-leader-per-epoch",
    statement="All quorum-state files name the same leader for an epoch, and none is older "
    "than the metadata log beside it.",
    source="KIP-595; FileQuorumStateStore",
    severity=DefectSeverity.LOSS,
    meaning="A voter forgot its vote. Two controllers may lead at one time, each with its own "
    "metadata log.",
    remedy="Do not start the nodes together. Find the metadata log with the newest epoch on a "
    "majority, and format the directories of the others.",
    reads=("quorum_states", "batches", "metadata_records"),
    examined="SELECT count(*) FROM quorum_states",
    defects=f"""
        {_QUORUM}
        SELECT 'metadata quorum' AS subject, concat('epoch ', a.leader_epoch, ' has leader ',
                a.leader_id, ' in ', a.log_dir, ' and leader ', b.leader_id, ' in ', b.log_dir)
                AS message,
            CAST(NULL AS BIGINT) AS since_ms, a.log_dir, a.file, CAST(-1 AS BIGINT) AS position,
            CAST(-1 AS BIGINT) AS at_offset, b.log_dir AS log_dir2, b.file AS file2,
            CAST(-1 AS BIGINT) AS position2, CAST(-1 AS BIGINT) AS at_offset2
        FROM leaders AS a JOIN leaders AS b ON b.leader_epoch = a.leader_epoch
            AND b.turn = a.turn + 1
        UNION ALL {_BEHIND.format(more="")} WHERE lasted_ms > {LONG_MS}
    """,
    undecided=f"""
        {_QUORUM} {_BEHIND.format(more=", '; or the copy was taken during an election'")}
        WHERE coalesce(lasted_ms, 0) <= {LONG_MS}
    """,
)

RULES = (LOGS_EQUAL, LOG_CONTIGUOUS, SNAPSHOTS_EQUAL_LOG, ELECTIONS)
