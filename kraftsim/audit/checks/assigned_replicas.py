"""The partition directories on a broker's disks are those that the metadata log assigns to it.

Each broker is compared with its own copy of the metadata log: a broker that is down does not notice
that a topic was deleted. What changed in the last minute of that copy may not have been done yet.

Source: KIP-516, KIP-631, KIP-858; kafka.server.ReplicaManager, LogManager.
"""

from typing import Final

from kraftsim.audit.rule import AuditRule, DefectSeverity
from kraftsim.audit.shared_sql import METADATA, METADATA_TOPIC, listed

RECENT_MS: Final = 60_000

_OWN: Final = f"""
    WITH {METADATA}, own_logs AS (
        SELECT node_id, min(log_dir) AS metadata_dir, min(directory) AS metadata_directory
        FROM replicas WHERE topic = '{METADATA_TOPIC}' AND node_id IS NOT NULL GROUP BY node_id
        HAVING count(*) = 1
    ), log_ends AS (
        SELECT log_dir, max(timestamp_ms) AS newest_record_ms FROM metadata_records
        GROUP BY log_dir
    ), topic_changes AS (
        SELECT c.log_dir, c.topic_id, max(m.timestamp_ms) AS changed_ms FROM (
            SELECT log_dir, file, record_offset, topic_id FROM metadata_topics
            WHERE snapshot_end_offset IS NULL
            UNION ALL
            SELECT log_dir, file, record_offset, topic_id FROM metadata_partitions
            WHERE snapshot_end_offset IS NULL AND replicas IS NOT NULL
        ) AS c JOIN metadata_records AS m ON m.log_dir = c.log_dir AND m.file = c.file
            AND m.record_offset = c.record_offset
        GROUP BY c.log_dir, c.topic_id
    ), registrations AS (
        SELECT * FROM (
            SELECT log_dir, CAST(get_json_object(data, '$.brokerId') AS INT) AS broker_id,
                coalesce(get_json_object(data, '$.logDirs'), '[]') AS directories,
                row_number() OVER (PARTITION BY log_dir, get_json_object(data, '$.brokerId')
                    ORDER BY CASE WHEN snapshot_end_offset IS NULL THEN 2 * record_offset + 1
                        ELSE 2 * snapshot_end_offset END DESC) AS newest
            FROM metadata_records WHERE type = 'REGISTER_BROKER_RECORD'
        ) AS ranked WHERE newest = 1
    ), nodes AS (
        SELECT o.node_id, o.metadata_dir, o.metadata_directory, e.newest_record_ms,
            min(CASE WHEN d.is_clean THEN 1 ELSE 0 END) AS is_clean,
            sum(CASE WHEN instr(r.directories, d.directory_id) > 0 THEN 1 ELSE 0 END)
                AS given_count,
            max(CASE WHEN length(r.directories) > 2 THEN length(r.directories)
                - length(replace(r.directories, ',', '')) + 1 ELSE 0 END) AS registered_count
        FROM own_logs AS o
        JOIN registrations AS r ON r.log_dir = o.metadata_dir AND r.broker_id = o.node_id
        JOIN log_dirs AS d ON d.node_id = o.node_id
            AND (NOT d.has_metadata_log OR instr(r.directories, d.directory_id) > 0
                OR length(r.directories) <= 2)
        JOIN log_ends AS e ON e.log_dir = o.metadata_dir
        GROUP BY o.node_id, o.metadata_dir, o.metadata_directory, e.newest_record_ms
    ), live AS (
        SELECT r.* FROM replicas AS r
        WHERE r.topic <> '{METADATA_TOPIC}' AND NOT coalesce(r.is_future, false)
    ), strays AS (
        SELECT r.log_dir, r.node_id, r.directory, r.topic_id, other.topic_id AS present_id,
            coalesce(c.changed_ms, oc.changed_ms) AS changed_ms,
            n.is_clean = 1 AND coalesce(c.changed_ms, 0) < n.newest_record_ms - {RECENT_MS}
                AND coalesce(oc.changed_ms, 0) < n.newest_record_ms - {RECENT_MS} AS is_certain
        FROM live AS r
        JOIN nodes AS n ON n.node_id = r.node_id
        LEFT JOIN assigned_by_log AS a ON a.log_dir = n.metadata_dir AND a.topic = r.topic
            AND a.partition = r.partition AND (r.topic_id IS NULL OR r.topic_id = a.topic_id)
            AND {listed("r.node_id")}
        LEFT JOIN assigned_by_log AS other ON other.log_dir = n.metadata_dir
            AND other.topic = r.topic AND other.partition = r.partition
            AND other.topic_id <> r.topic_id
        LEFT JOIN topic_changes AS c ON c.log_dir = n.metadata_dir AND c.topic_id = r.topic_id
        LEFT JOIN topic_changes AS oc ON oc.log_dir = n.metadata_dir
            AND oc.topic_id = other.topic_id
        WHERE a.topic IS NULL
    ), absent AS (
        SELECT a.log_dir, a.file, a.position, a.record_offset, a.topic, a.partition, n.node_id,
            c.changed_ms,
            n.is_clean = 1 AND (n.registered_count = 0 OR n.given_count = n.registered_count)
                AND coalesce(c.changed_ms, 0) < n.newest_record_ms - {RECENT_MS} AS is_certain
        FROM nodes AS n
        JOIN assigned_by_log AS a ON a.log_dir = n.metadata_dir AND {listed("n.node_id")}
        LEFT JOIN live AS r ON r.node_id = n.node_id AND r.topic = a.topic
            AND r.partition = a.partition
        LEFT JOIN topic_changes AS c ON c.log_dir = n.metadata_dir AND c.topic_id = a.topic_id
        WHERE r.topic IS NULL
    )
"""
_NO_SECOND: Final = (
    "CAST(NULL AS STRING) AS log_dir2, CAST(NULL AS STRING) AS file2, "
    "CAST(NULL AS BIGINT) AS position2, CAST(NULL AS BIGINT) AS at_offset2"
)


def _strays(condition: str, more: str = "") -> str:
    return f"""
        {_OWN}
        SELECT concat('partition ', directory) AS subject,
            concat('broker ', node_id, ' has the directory ', directory, CASE
                WHEN present_id IS NOT NULL THEN concat(' of topic id ', topic_id,
                    ', and the topic of that name has the id ', present_id)
                ELSE ', and the metadata log does not assign the partition to it' END{more})
                AS message,
            changed_ms AS since_ms, log_dir, concat(directory, '/partition.metadata') AS file,
            CAST(-1 AS BIGINT) AS position, CAST(-1 AS BIGINT) AS at_offset, {_NO_SECOND}
        FROM strays WHERE {condition}
    """


def _absent(condition: str, more: str = "") -> str:
    return f"""
        {_OWN}
        SELECT concat('partition ', topic, '-', partition) AS subject,
            concat('the metadata log assigns ', topic, '-', partition, ' to broker ', node_id,
                ', and no directory of the broker has it'{more}) AS message,
            changed_ms AS since_ms, log_dir, file, position, record_offset AS at_offset,
            {_NO_SECOND}
        FROM absent WHERE {condition}
    """


_READS: Final = (
    "replicas",
    "log_dirs",
    "metadata_records",
    "metadata_topics",
    "metadata_partitions",
)
_UNSURE: Final = ", '; it changed in the last minute, or the broker was not stopped cleanly{also}'"

NO_STRAYS = AuditRule(
    name="no-stray-partitions",
    statement="Every partition directory of a broker is one that the metadata log assigns to it, "
    "with the same topic id.",
    source="KIP-516, KIP-858; LogManager.isStrayKraftReplica",
    severity=DefectSeverity.NOTICE,
    meaning="The directory takes space, and no client reads it. With the id of a former topic it "
    "can keep the broker from hosting the present one (INCONSISTENT_TOPIC_ID).",
    remedy="Make sure that the topic was deleted or moved on purpose. Then move the directory away "
    "while the broker is stopped.",
    reads=_READS,
    examined=f"{_OWN} SELECT count(*) FROM live AS r JOIN nodes AS n ON n.node_id = r.node_id",
    defects=_strays("is_certain"),
    undecided=_strays("NOT is_certain", _UNSURE.format(also="")),
)

REPLICAS_PRESENT = AuditRule(
    name="assigned-replicas-present",
    statement="A broker has a directory for every partition that the metadata log assigns to it.",
    source="KIP-631; ReplicaManager.applyDelta",
    severity=DefectSeverity.LOSS,
    meaning="The replica lost all its records. If it is in the in-sync replicas it can become "
    "leader, and then the others truncate their logs to nothing.",
    remedy="Do not start the broker before the other replicas of the partition are "
    "running and in sync: then it fetches everything again. If it was the only replica, look for "
    "the directory on another disk.",
    reads=_READS,
    examined=f"""
        {_OWN} SELECT count(*) FROM nodes AS n
        JOIN assigned_by_log AS a ON a.log_dir = n.metadata_dir AND {listed("n.node_id")}
    """,
    defects=_absent("is_certain"),
    undecided=_absent("NOT is_certain", _UNSURE.format(also=", or not all its disks are here")),
)

RULES = (NO_STRAYS, REPLICAS_PRESENT)
