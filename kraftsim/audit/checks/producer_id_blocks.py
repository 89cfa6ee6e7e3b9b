"""Producer ids come from blocks of the metadata log, and no block is allocated twice.

A record holds the first id after the block: the block that it allocates begins where the one before
ended. Brokers of Apache Kafka take 1000 ids; kraftsim's controllers may be configured for others,
so a smaller size that is there more than once is no defect. Ids of before a migration from
ZooKeeper lie below the first block that the log has.

Source: KIP-730; org.apache.kafka.controller.ProducerIdControlManager.
"""

from typing import Final

from kraftsim.audit.rule import AuditRule, DefectSeverity
from kraftsim.audit.shared_sql import finding

BLOCK_SIZE: Final = 1000
SKEW_MS: Final = 5000
"""Clocks of the nodes may differ by that."""

_ORDERED: Final = """
    WITH placed AS (
        SELECT p.*, CASE WHEN p.snapshot_end_offset IS NULL THEN 2 * p.record_offset + 1
            ELSE 2 * p.snapshot_end_offset END AS place,
            p.snapshot_end_offset IS NOT NULL AS in_snapshot
        FROM producer_id_blocks AS p
    ), ordered AS (
        SELECT placed.*, lag(next_producer_id) OVER (PARTITION BY log_dir ORDER BY place)
                AS next_before,
            lag(file) OVER (PARTITION BY log_dir ORDER BY place) AS file2,
            lag(position) OVER (PARTITION BY log_dir ORDER BY place) AS position2,
            lag(record_offset) OVER (PARTITION BY log_dir ORDER BY place) AS at_offset2
        FROM placed
    ), wrong AS (
        SELECT ordered.*, CASE
            WHEN in_snapshot AND next_producer_id < next_before THEN 'lost'
            WHEN NOT in_snapshot AND next_producer_id <= next_before THEN 'twice'
            WHEN NOT in_snapshot AND next_producer_id < next_before + 1000
                THEN CASE WHEN sizes.size_count > 1 THEN 'size' ELSE 'overlap' END
            END AS how
        FROM ordered LEFT JOIN (
            SELECT log_dir AS sized_dir, next_producer_id - next_before AS block_size,
                count(*) AS size_count
            FROM ordered WHERE NOT in_snapshot GROUP BY log_dir, next_producer_id - next_before
        ) AS sizes ON sizes.sized_dir = ordered.log_dir
            AND sizes.block_size = ordered.next_producer_id - ordered.next_before
        WHERE next_before IS NOT NULL
    )
"""


def _blocks(condition: str) -> str:
    return f"""
        {_ORDERED}
        SELECT 'producer ids' AS subject, CASE WHEN how = 'lost' THEN concat('the snapshot at ',
                snapshot_end_offset, ' has ', next_producer_id, ' as the next producer id, and ',
                next_before, ' was before it: blocks below it are allocated again')
            WHEN how = 'twice' THEN concat('the block that ends before ', next_producer_id,
                ' was allocated to broker ', broker_id, ' after the one that ends before ',
                next_before)
            ELSE concat('the block that ends before ', next_producer_id, ' has ',
                next_producer_id - next_before, ' ids, and a broker that takes {BLOCK_SIZE} shares',
                ' some with the owner of the block before') END AS message,
            CAST(NULL AS BIGINT) AS since_ms, log_dir, file, position, record_offset AS at_offset,
            log_dir AS log_dir2, file2, position2, at_offset2
        FROM wrong WHERE {condition}
    """


BLOCKS_DISJOINT = AuditRule(
    name="producer-id-blocks-disjoint",
    statement="Blocks of producer ids in the metadata log grow and do not overlap, also across "
    "snapshots.",
    source="KIP-730; ProducerIdControlManager.generateNextProducerId",
    severity=DefectSeverity.WRONG,
    meaning="Two brokers give the same producer ids to different producers: batches of one are "
    "taken for duplicates of the other and acknowledged without being written.",
    remedy="Restart all brokers, so that they take new blocks, after a controller with the newest "
    "metadata log is the leader; then restart the producers.",
    reads=("producer_id_blocks",),
    examined=f"{_ORDERED} SELECT count(next_before) FROM ordered",
    defects=_blocks("how IN ('lost', 'twice', 'overlap')"),
    undecided=_blocks("how = 'size'"),
)

_USED: Final = f"""
    WITH blocks AS (
        SELECT min(next_producer_id) - {BLOCK_SIZE} AS first_id, max(next_producer_id) AS next_id
        FROM producer_id_blocks
    ), heard AS (
        SELECT max(timestamp_ms) AS heard_ms FROM metadata_records WHERE snapshot_end_offset IS NULL
    ), certain_metadata AS (
        SELECT count(*) AS unclean_count FROM log_dirs WHERE NOT is_clean
            AND log_dir IN (SELECT log_dir FROM replicas WHERE topic <> '__cluster_metadata')
    ), used AS (
        SELECT * FROM (
            SELECT b.producer_id, b.log_dir, b.file, b.position, b.base_offset AS record_offset,
                b.topic, b.partition, b.max_ms, row_number() OVER (PARTITION BY b.producer_id
                    ORDER BY b.max_ms, b.log_dir, b.file, b.position) AS place
            FROM batches AS b WHERE b.producer_id >= 0
        ) AS ranked WHERE place = 1
    ), beyond AS (
        SELECT u.*, k.first_id, k.next_id,
            c.unclean_count = 0 OR u.max_ms + {SKEW_MS} < h.heard_ms AS is_certain
        FROM used AS u CROSS JOIN blocks AS k CROSS JOIN heard AS h
        CROSS JOIN certain_metadata AS c
        WHERE u.producer_id >= k.next_id
    )
"""
_USED_MESSAGE: Final = (
    "'partition ', topic, '-', partition, ' has a batch of producer id ', producer_id, ' at offset "
    "', record_offset, ', and the blocks that were allocated end before ', next_id"
)

IDS_ALLOCATED = AuditRule(
    name="producer-ids-allocated",
    statement="Every producer id in a batch lies below the end of the last block that the metadata "
    "log allocated.",
    source="KIP-730",
    severity=DefectSeverity.WRONG,
    meaning="The id was never allocated, or the allocation was lost. It will be allocated again, "
    "and then two producers share it.",
    remedy="Look for a controller whose metadata log has more records, and make it the leader. "
    "If there is none, restart the producers that use ids above the last block before "
    "new blocks reach them.",
    reads=("batches", "producer_id_blocks", "metadata_records", "log_dirs", "replicas"),
    examined=f"""
        {_USED} SELECT count(*) FROM used AS u CROSS JOIN blocks AS k WHERE k.next_id IS NOT NULL
            AND u.producer_id >= k.first_id
    """,
    defects=f"""
        {_USED} SELECT {
        finding("concat('producer id ', producer_id)", f"concat({_USED_MESSAGE})", since="max_ms")
    } FROM beyond WHERE is_certain
    """,
    undecided=f"""
        {_USED} SELECT {
        finding(
            "concat('producer id ', producer_id)",
            f"concat({_USED_MESSAGE}, '; the copy of the metadata log may be older')",
            since="max_ms",
        )
    } FROM beyond WHERE NOT is_certain
    """,
)

RULES = (BLOCKS_DISJOINT, IDS_ALLOCATED)
