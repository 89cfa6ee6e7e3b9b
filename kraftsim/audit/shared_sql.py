"""Parts of queries that several rules need: who holds a partition, which copy is the best, which
partition of a coordinator's topic a key belongs to.

Each text is one or more common table expressions, without WITH and without a comma at its end.
Those that build on others say so. The metadata log that counts is the one that ends last: a broker
has a copy of it as a controller has.
"""

from typing import Final

# --------------------------------------------------------------------------------------------------
# The metadata log: the state that each copy of it describes
#
# Records of a snapshot count as the record before its end offset: `place` orders them all.

METADATA_TOPIC: Final = "__cluster_metadata"

_PLACE: Final = (
    "CASE WHEN m.snapshot_end_offset IS NULL THEN 2 * m.record_offset + 1 "
    "ELSE 2 * m.snapshot_end_offset END"
)
CURRENT: Final = (
    "((s.snapshot_end IS NULL AND m.snapshot_end_offset IS NULL) "
    "OR m.snapshot_end_offset = s.snapshot_end "
    "OR (m.snapshot_end_offset IS NULL AND m.record_offset >= s.snapshot_end))"
)
"""Whether a record (m) is in the newest snapshot (s) or after it."""

METADATA: Final = f"""
    metadata_snapshot AS (
        SELECT log_dir, max(snapshot_end_offset) AS snapshot_end
        FROM metadata_records GROUP BY log_dir
    ), metadata_best AS (
        SELECT log_dir FROM (
            SELECT r.log_dir, row_number() OVER (
                ORDER BY coalesce(b.last_epoch, -1) DESC, r.end_offset DESC, r.log_dir) AS place
            FROM replicas AS r LEFT JOIN (
                SELECT log_dir, max(leader_epoch) AS last_epoch FROM metadata_records
                WHERE snapshot_end_offset IS NULL GROUP BY log_dir
            ) AS b ON b.log_dir = r.log_dir
            WHERE r.topic = '{METADATA_TOPIC}'
        ) AS ranked WHERE place = 1
    ), topic_facts AS (
        SELECT log_dir, topic_id, max(topic_name) AS topic_name, min(position) AS position,
            max(file) AS file, max(record_offset) AS record_offset,
            max(CASE WHEN is_removed THEN 1 ELSE 0 END) AS removals
        FROM (
            SELECT m.* FROM metadata_topics AS m
            JOIN metadata_snapshot AS s ON s.log_dir = m.log_dir WHERE {CURRENT}
        ) AS current_topics GROUP BY log_dir, topic_id
    ), assigned_by_log AS (
        SELECT p.log_dir, t.topic_name AS topic, p.topic_id, p.partition_id AS partition,
            concat(',', replace(replace(replace(p.replicas, ' ', ''), '[', ''), ']', ''), ',')
                AS replica_list, p.file, p.position, p.record_offset, p.changes
        FROM (
            SELECT m.log_dir, m.topic_id, m.partition_id, m.replicas, m.file, m.position,
                m.record_offset,
                count(*) OVER (PARTITION BY m.log_dir, m.topic_id, m.partition_id) - 1 AS changes,
                row_number() OVER (PARTITION BY m.log_dir, m.topic_id, m.partition_id
                    ORDER BY {_PLACE} DESC) AS newest
            FROM metadata_partitions AS m
            JOIN metadata_snapshot AS s ON s.log_dir = m.log_dir
            WHERE {CURRENT} AND m.replicas IS NOT NULL
        ) AS p
        JOIN topic_facts AS t ON t.log_dir = p.log_dir AND t.topic_id = p.topic_id
        WHERE p.newest = 1 AND t.removals = 0 AND t.topic_name IS NOT NULL
    ), assigned AS (
        SELECT a.* , length(a.replica_list) - length(replace(a.replica_list, ',', '')) - 1
            AS replica_count
        FROM assigned_by_log AS a JOIN metadata_best AS b ON b.log_dir = a.log_dir
    )
"""
"""`assigned_by_log`: the replicas of each partition as each copy of the metadata log has them,
`replica_list` is `,1,2,3,`; `assigned`: as the best copy has them.
"""


def listed(node: str, replica_list: str = "a.replica_list") -> str:
    """Return a condition: whether a node is in a list of replicas."""
    return f"instr({replica_list}, concat(',', {node}, ',')) > 0"


HELD: Final = f"""
    held AS (
        SELECT a.topic, a.partition, a.replica_count,
            count(DISTINCT CASE WHEN {listed("r.node_id")} THEN r.node_id END) AS held_count,
            min(CASE WHEN d.is_clean OR NOT {listed("r.node_id")} THEN 1 ELSE 0 END) AS all_clean,
            max(r.end_offset) AS end_offset
        FROM assigned AS a
        JOIN replicas AS r ON r.topic = a.topic AND r.partition = a.partition
            AND (r.topic_id IS NULL OR r.topic_id = a.topic_id)
        JOIN log_dirs AS d ON d.log_dir = r.log_dir
        WHERE NOT coalesce(r.is_future, false)
        GROUP BY a.topic, a.partition, a.replica_count
    ), certain AS (
        SELECT topic, partition, end_offset FROM held
        WHERE held_count = replica_count AND all_clean = 1
    )
"""
"""`certain`: the partitions all of whose replicas are on these disks, of brokers that were stopped
cleanly: what is not there does not exist. Needs METADATA.
"""


def best_logs(name: str, condition: str) -> str:
    """Return an expression: of each partition the replica with the newest leader epoch and the
    highest end offset. `condition` is about a row `r` of replicas, or a row `b` of batches.
    """
    of_batches = condition.replace("r.", "b.")
    return f"""
    {name} AS (
        SELECT log_dir, directory, node_id, topic, partition, topic_id, first_offset, end_offset,
            is_clean, newest_ms
        FROM (
            SELECT r.*, d.is_clean, d.newest_ms, row_number() OVER (
                PARTITION BY r.topic, r.partition
                ORDER BY coalesce(e.last_epoch, -1) DESC, r.end_offset DESC, r.log_dir) AS place
            FROM replicas AS r JOIN log_dirs AS d ON d.log_dir = r.log_dir
            LEFT JOIN (
                SELECT b.log_dir, b.directory, max(b.leader_epoch) AS last_epoch
                FROM batches AS b WHERE {of_batches} GROUP BY b.log_dir, b.directory
            ) AS e ON e.log_dir = r.log_dir AND e.directory = r.directory
            WHERE NOT coalesce(r.is_future, false) AND {condition}
        ) AS ranked WHERE place = 1
    )
"""


# --------------------------------------------------------------------------------------------------
# Keys of coordinators' topics: the partition that a key's hash chooses
#
# abs(java.lang.String.hashCode) modulo the number of partitions; abs of the lowest integer is 0.
# Source: org.apache.kafka.common.utils.Utils.abs, TransactionStateManager.partitionFor,
# GroupCoordinatorService.partitionFor, ShareCoordinatorService.partitionFor.

KEY_LENGTH_MAX: Final = 300
"""Longer keys are not examined."""


def _powers() -> str:
    rows, power = [], 1
    for place in range(KEY_LENGTH_MAX):
        rows.append(f"({place}, {power})")
        power = power * 31 % 2**32
    return ", ".join(rows)


def homes(topic: str, keys: str) -> str:
    """Return expressions: `homes` has the columns `key` and `home`, its partition of a topic.

    `keys` is a query with one column `key`, without duplicates. `home` is null if the number of
    partitions is unknown; `is_known` is whether the metadata log says it (1), or only the
    directories that are there (0). Keys with characters beyond 16 bits are left out. Needs METADATA.
    """
    return f"""
    powers AS (SELECT * FROM (VALUES {_powers()}) AS p(place, power)
    ), hash_keys AS (
        SELECT k.key, coalesce(sum(CAST(ascii(substr(k.key, CAST(length(k.key) - p.place AS INT), 1))
            AS BIGINT) * CAST(p.power AS BIGINT)), 0) AS total,
            coalesce(max(ascii(substr(k.key, CAST(length(k.key) - p.place AS INT), 1))), 0)
                AS highest
        FROM ({keys}) AS k LEFT JOIN powers AS p ON p.place < length(k.key)
        WHERE length(k.key) <= {KEY_LENGTH_MAX}
        GROUP BY k.key
    ), hash_counts AS (
        SELECT max(count_known) AS count_known, max(count_seen) AS count_seen FROM (
            SELECT count(*) AS count_known, 0 AS count_seen FROM assigned WHERE topic = '{topic}'
            UNION ALL
            SELECT 0, CASE WHEN count(DISTINCT partition) = max(partition) + 1
                THEN max(partition) + 1 ELSE 0 END FROM replicas WHERE topic = '{topic}'
        ) AS counted
    ), homes AS (
        SELECT key, CASE WHEN count_known > 0 THEN 1 ELSE 0 END AS is_known,
            CASE WHEN count_known > 0 THEN absolute % count_known
                WHEN count_seen > 0 THEN absolute % count_seen END AS home
        FROM (
            SELECT key, CASE WHEN hashed = 2147483648 THEN 0
                WHEN hashed > 2147483648 THEN 4294967296 - hashed ELSE hashed END AS absolute
            FROM (
                SELECT key, CAST(total % 4294967296 AS BIGINT) AS hashed
                FROM hash_keys WHERE highest < 65536
            ) AS hashed_keys
        ) AS absolutes CROSS JOIN hash_counts
    )
"""


# --------------------------------------------------------------------------------------------------
# The columns of a finding


def finding(
    subject: str,
    message: str,
    *,
    since: str = "NULL",
    place: str = "",
    second: str = "",
    offset: str = "record_offset",
    second_offset: str = "second_offset",
) -> str:
    """Return the columns of a finding.

    `place` is the alias of a row with log_dir, file and position; `second` of another one.
    """
    dot = f"{place}." if place else ""
    other = (
        f"{second}.log_dir AS log_dir2, {second}.file AS file2, {second}.position AS position2, "
        f"{second}.{second_offset} AS at_offset2"
        if second
        else "CAST(NULL AS STRING) AS log_dir2, CAST(NULL AS STRING) AS file2, "
        "CAST(NULL AS BIGINT) AS position2, CAST(NULL AS BIGINT) AS at_offset2"
    )
    return (
        f"{subject} AS subject, {message} AS message, CAST({since} AS BIGINT) AS since_ms, "
        f"{dot}log_dir AS log_dir, {dot}file AS file, {dot}position AS position, "
        f"{dot}{offset} AS at_offset, {other}"
    )
