"""The log directories of an audit belong together: one cluster, and no directory twice.

Source: KIP-78 (cluster id), KIP-858 (directory id), MetaPropertiesEnsemble.
"""

from typing import Final

from kraftsim.audit.rule import AuditRule, DefectSeverity

_PLACES: Final = """CAST(NULL AS BIGINT) AS since_ms,
    d.log_dir, 'meta.properties' AS file, CAST(-1 AS BIGINT) AS position,
    CAST(-1 AS BIGINT) AS at_offset, o.log_dir AS log_dir2, 'meta.properties' AS file2,
    CAST(-1 AS BIGINT) AS position2, CAST(-1 AS BIGINT) AS at_offset2"""

RULE: Final = AuditRule(
    name="directories-of-one-cluster",
    statement="All log directories have the same cluster id, and no two the same directory id.",
    source="KIP-78, KIP-858",
    severity=DefectSeverity.WRONG,
    meaning="A directory of another cluster, or a copy of one that is here already, was mixed in: "
    "comparisons between replicas say nothing then. A broker that has both does not start.",
    remedy="Audit the directories of one cluster at a time, each of them once. If a broker has "
    "them, take the foreign directory out of log.dirs.",
    reads=("log_dirs",),
    examined="SELECT count(*) FROM log_dirs WHERE cluster_id IS NOT NULL",
    defects=f"""
        WITH usual AS (
            SELECT cluster_id, log_dir FROM (
                SELECT cluster_id, min(log_dir) AS log_dir,
                    row_number() OVER (ORDER BY count(*) DESC, min(log_dir)) AS place
                FROM log_dirs WHERE cluster_id IS NOT NULL GROUP BY cluster_id
            ) AS counted WHERE place = 1
        ), doubled AS (
            SELECT directory_id, min(log_dir) AS log_dir FROM log_dirs
            WHERE directory_id IS NOT NULL GROUP BY directory_id HAVING count(*) > 1
        )
        SELECT d.log_dir AS subject, concat(d.log_dir, ' belongs to cluster ', d.cluster_id, ', ',
            o.log_dir, ' to cluster ', o.cluster_id) AS message, {_PLACES}
        FROM log_dirs AS d CROSS JOIN usual AS o WHERE d.cluster_id <> o.cluster_id
        UNION ALL
        SELECT d.log_dir AS subject, concat(d.log_dir, ' has the directory id ', d.directory_id,
            ' of ', o.log_dir) AS message, {_PLACES}
        FROM log_dirs AS d JOIN doubled AS o ON o.directory_id = d.directory_id
        WHERE d.log_dir <> o.log_dir
    """,
)
