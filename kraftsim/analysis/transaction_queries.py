"""The SQL of the report's chapter on transactions: one query whose rows contain the part of the
chapter that they belong to.

Percentiles are nearest ranks, so that Spark and DuckDB agree to the last digit. Related rows are
found by windows and equal keys: there are no cross joins.
Source: KIP-98, KIP-447, KIP-890.
"""

from collections.abc import Mapping
from typing import Final

from protocol.errors import ErrorCode

IDS, ENDS, MARKERS, PARTITIONS, TURNED_AWAY, GROUPS = (
    "id",
    "end",
    "marker",
    "partition",
    "turned away",
    "group",
)
NUMBERS: Final = 8
"""The number of numeric columns of every row; those that a part does not need are null."""
KINDS: Final = (
    *(
        "BatchAppended",
        "LastStableOffsetMoved",
        "MarkerAppended",
        "MarkerRefused",
        "MembershipLost",
        "OffsetMaterialised",
        "OffsetReturned",
    ),
    *(
        "PendingOffsetAdded",
        "PendingOffsetDropped",
        "ProduceRefused",
        "ProducerFenced",
        "TransactionAbortForced",
        "TransactionErred",
    ),
    *("TransactionRefused", "TransactionStateChanged"),
)
"""The events that the chapter uses."""
SHOWN_MAX: Final = 200
"""Rows of a part, the greatest first: a run may have thousands of transactional ids."""
TRANSACTIONAL_ERRORS: Final = tuple(
    int(error)
    for error in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    )
)
"""The errors in Produce responses that concern transactions."""

_IDS = """
    SELECT s.transactional_id AS a, '' AS b, s.transactions AS n1, s.commits AS n2, s.aborts AS n3,
        coalesce(f.timeouts, 0) AS n4,
        coalesce(f.takeovers, 0) AS n5, coalesce(z.fences, 0) AS n6, s.producers AS n7,
            s.epochs AS n8
    FROM (
        SELECT transactional_id, sum(CASE WHEN state LIKE 'Prepare%' THEN 1
            ELSE 0 END) AS transactions,
            sum(CASE WHEN state = 'PrepareCommit' THEN 1 ELSE 0 END) AS commits, sum(CASE
                WHEN state = 'PrepareAbort' THEN 1 ELSE 0 END) AS aborts,
            count(DISTINCT producer_id) AS producers, count(DISTINCT concat(producer_id, '/',
                producer_epoch)) AS epochs
        FROM transaction_state_changed GROUP BY transactional_id
    ) AS s
    LEFT JOIN (
        SELECT transactional_id, sum(CASE WHEN reason = 'timeout' THEN 1 ELSE 0 END) AS timeouts,
            sum(CASE WHEN reason <> 'timeout' THEN 1 ELSE 0 END) AS takeovers
        FROM transaction_abort_forced GROUP BY transactional_id
    ) AS f ON f.transactional_id = s.transactional_id
    LEFT JOIN (SELECT transactional_id, count(*) AS fences FROM producer_fenced
        GROUP BY transactional_id) AS z
        ON z.transactional_id = s.transactional_id
"""
_ENDS = """
    SELECT state AS a, '' AS b, count(*) AS n1, min(CASE WHEN place >= 0.5 * total
        THEN lasted END) AS n2,
        min(CASE WHEN place >= 0.9 * total THEN lasted END) AS n3, min(CASE
            WHEN place >= 0.99 * total THEN lasted END) AS n4, max(lasted) AS n5,
        CAST(NULL AS BIGINT) AS n6, CAST(NULL AS BIGINT) AS n7, CAST(NULL AS BIGINT) AS n8
    FROM (
        SELECT state, lasted, row_number() OVER (PARTITION BY state ORDER BY lasted,
            position) AS place, count(*) OVER (PARTITION BY state) AS total
        FROM (
            SELECT state, position, t_ns - lag(t_ns) OVER (PARTITION BY transactional_id
                ORDER BY position) AS lasted,
                lag(state) OVER (PARTITION BY transactional_id ORDER BY position) AS before
            FROM transaction_state_changed
        ) AS changes WHERE state LIKE 'Complete%' AND before LIKE 'Prepare%'
    ) AS ranked GROUP BY state
"""
_MARKERS = """
    SELECT CASE WHEN is_commit THEN 'commit' ELSE 'abort' END AS a, '' AS b, count(*) AS n1,
        min(CASE WHEN place >= 0.5 * total THEN lasted END) AS n2, min(CASE
            WHEN place >= 0.9 * total THEN lasted END) AS n3,
        min(CASE WHEN place >= 0.99 * total THEN lasted END) AS n4, max(lasted) AS n5,
        CAST(NULL AS BIGINT) AS n6, CAST(NULL AS BIGINT) AS n7, CAST(NULL AS BIGINT) AS n8
    FROM (
        SELECT m.is_commit, m.t_ns - d.t_ns AS lasted,
            row_number() OVER (PARTITION BY m.is_commit ORDER BY m.t_ns - d.t_ns,
                m.position) AS place,
            count(*) OVER (PARTITION BY m.is_commit) AS total
        FROM (
            SELECT is_marker, is_commit, t_ns, position,
                max(CASE WHEN is_marker THEN NULL ELSE position END) OVER (PARTITION BY producer_id
                    ORDER BY position) AS decided
            FROM (
                SELECT producer_id, position, t_ns, true AS is_marker, is_commit
                    FROM marker_appended WHERE on_leader
                UNION ALL
                SELECT producer_id, position, t_ns, false AS is_marker, false AS is_commit
                    FROM transaction_state_changed
            ) AS facts
        ) AS m
        JOIN transaction_state_changed AS d ON d.position = m.decided
        WHERE m.is_marker AND d.state = CASE WHEN m.is_commit THEN 'PrepareCommit'
            ELSE 'PrepareAbort' END
    ) AS ranked GROUP BY is_commit
"""
_PARTITIONS = """
    SELECT s.topic AS a, CAST(s.partition AS VARCHAR(12)) AS b, s.ended AS n1, s.commits AS n2,
        s.ended - s.commits AS n3, s.still_open AS n4,
        s.median AS n5, s.longest AS n6, s.records AS n7, coalesce(l.behind, 0) AS n8
    FROM (
        SELECT topic, partition, sum(CASE WHEN ended_at IS NULL THEN 0 ELSE 1 END) AS ended,
            sum(commits) AS commits,
            sum(CASE WHEN ended_at IS NULL THEN 1 ELSE 0 END) AS still_open,
            min(CASE WHEN place >= 0.5 * total THEN ended_at - began_at END) AS median,
                max(ended_at - began_at) AS longest, max(records) AS records
        FROM (
            SELECT *, row_number() OVER (PARTITION BY topic, partition ORDER BY ended_at IS NULL,
                ended_at - began_at, began_at) AS place,
                count(ended_at) OVER (PARTITION BY topic, partition) AS total
            FROM (
                SELECT topic, partition, producer_id, number, min(CASE WHEN is_marker THEN NULL
                    ELSE t_ns END) AS began_at,
                    max(CASE WHEN is_marker THEN t_ns END) AS ended_at, max(CASE WHEN is_marker
                        AND is_commit THEN 1 ELSE 0 END) AS commits,
                    max(CASE WHEN is_marker THEN at_offset END) - min(CASE WHEN is_marker THEN NULL
                        ELSE at_offset END) AS records
                FROM (
                    SELECT *, coalesce(sum(CASE WHEN is_marker THEN 1 ELSE 0 END) OVER (
                        PARTITION BY topic, partition, producer_id
                            ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                    ), 0) AS number
                    FROM (
                        SELECT topic, partition, producer_id, position, t_ns, false AS is_marker,
                            false AS is_commit, first_offset AS at_offset
                        FROM batch_appended WHERE is_transactional
                        UNION ALL
                        SELECT topic, partition, producer_id, position, t_ns, true AS is_marker,
                            is_commit, m.offset AS at_offset
                        FROM marker_appended AS m WHERE on_leader
                    ) AS facts
                ) AS numbered GROUP BY topic, partition, producer_id, number
            ) AS transactions WHERE began_at IS NOT NULL
        ) AS ranked GROUP BY topic, partition
    ) AS s
    LEFT JOIN (
        SELECT topic, partition, max(high_watermark - m.offset) AS behind
            FROM last_stable_offset_moved AS m GROUP BY topic, partition
    ) AS l ON l.topic = s.topic AND l.partition = s.partition
"""
_TURNED_AWAY = f"""
    SELECT a, b, count(*) AS n1, error_code AS n2, count(DISTINCT who) AS n3,
        CAST(NULL AS BIGINT) AS n4, CAST(NULL AS BIGINT) AS n5,
        CAST(NULL AS BIGINT) AS n6, CAST(NULL AS BIGINT) AS n7, CAST(NULL AS BIGINT) AS n8
    FROM (
        SELECT 'a coordinator, of a fenced producer' AS a, api AS b,
            CAST(NULL AS BIGINT) AS error_code, transactional_id AS who FROM producer_fenced
        UNION ALL
        SELECT 'a coordinator' AS a, api AS b, error_code, transactional_id AS who
            FROM transaction_refused
        UNION ALL
        SELECT 'the leader of a partition' AS a, 'Produce' AS b, error_code,
            CAST(producer_id AS VARCHAR(20)) AS who FROM produce_refused
        WHERE error_code IN {TRANSACTIONAL_ERRORS}
        UNION ALL
        SELECT 'the leader of a partition' AS a, 'WriteTxnMarkers' AS b, error_code,
            CAST(producer_id AS VARCHAR(20)) AS who FROM marker_refused
        UNION ALL
        SELECT 'a group, of a member that was one' AS a, group_id AS b, error_code, client_id AS who
            FROM membership_lost
        UNION ALL
        SELECT CASE WHEN is_fatal THEN 'what ended a producer'
            ELSE 'what made a producer abort' END AS a, '' AS b, error_code,
            transactional_id AS who
        FROM transaction_erred
    ) AS refusals GROUP BY a, b, error_code
"""
_GROUPS = f"""
    SELECT s.group_id AS a, '' AS b, s.pending AS n1, s.counted AS n2, s.dropped AS n3,
        s.pending - s.counted - s.dropped AS n4, s.median AS n5,
        s.longest AS n6, coalesce(t.held_off, 0) AS n7, coalesce(t.asked, 0) AS n8
    FROM (
        SELECT group_id, count(*) AS pending, sum(CASE WHEN became = 'counted' THEN 1
            ELSE 0 END) AS counted,
            sum(CASE WHEN became = 'dropped' THEN 1 ELSE 0 END) AS dropped, min(CASE
                WHEN place >= 0.5 * total THEN lasted END) AS median,
            max(lasted) AS longest
        FROM (
            SELECT *, row_number() OVER (PARTITION BY group_id ORDER BY lasted IS NULL, lasted,
                position) AS place,
                count(lasted) OVER (PARTITION BY group_id) AS total
            FROM (
                SELECT p.group_id, p.position, e.became, e.t_ns - p.t_ns AS lasted
                FROM (
                    SELECT coordinator_partition, group_id, topic, partition, producer_id,
                        record_offset, min(t_ns) AS t_ns, min(position) AS position
                    FROM pending_offset_added GROUP BY coordinator_partition, group_id, topic,
                        partition, producer_id, record_offset
                ) AS p
                LEFT JOIN (
                    SELECT coordinator_partition, group_id, topic, partition, producer_id,
                        record_offset, min(t_ns) AS t_ns, min(became) AS became
                    FROM (
                        SELECT coordinator_partition, group_id, topic, partition, producer_id,
                            record_offset, t_ns, 'counted' AS became
                        FROM offset_materialised
                        UNION ALL
                        SELECT coordinator_partition, group_id, topic, partition, producer_id,
                            record_offset, t_ns, 'dropped' AS became
                        FROM pending_offset_dropped
                    ) AS fates GROUP BY coordinator_partition, group_id, topic, partition,
                        producer_id, record_offset
                ) AS e ON e.coordinator_partition = p.coordinator_partition
                    AND e.group_id = p.group_id AND e.topic = p.topic
                    AND e.partition = p.partition AND e.producer_id = p.producer_id
                        AND e.record_offset = p.record_offset
            ) AS lives
        ) AS ranked GROUP BY group_id
    ) AS s
    LEFT JOIN (
        SELECT group_id, sum(CASE WHEN error_code = {int(ErrorCode.UNSTABLE_OFFSET_COMMIT)} THEN 1
            ELSE 0 END) AS held_off, count(*) AS asked
        FROM offset_returned WHERE require_stable GROUP BY group_id
    ) AS t ON t.group_id = s.group_id
"""
PARTS: Final[Mapping[str, str]] = {
    IDS: _IDS,
    ENDS: _ENDS,
    MARKERS: _MARKERS,
    PARTITIONS: _PARTITIONS,
    TURNED_AWAY: _TURNED_AWAY,
    GROUPS: _GROUPS,
}


def chapter_query() -> str:
    """Return one query: part, two texts, NUMBERS numbers, and the total number of rows of the part;
    of each part the SHOWN_MAX first.
    """
    numbers = ", ".join(
        f"CAST(n{number} AS BIGINT) AS n{number}" for number in range(1, NUMBERS + 1)
    )
    return "\nUNION ALL\n".join(
        f"SELECT part, a, b, {numbers}, total FROM (SELECT '{name}' AS part, rows_of.*, count(*) "
        "OVER () AS total, row_number() OVER (ORDER BY n1 DESC, a, b) AS place_of FROM "
        f"({query}) AS rows_of) AS chosen WHERE place_of <= {SHOWN_MAX}"
        for name, query in PARTS.items()
    )
