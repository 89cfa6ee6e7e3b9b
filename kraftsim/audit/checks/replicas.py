"""Replicas of a partition have the same batches below the high watermark, and belong to one topic.

A replica that was not in the ISR may be short, and may end in batches that were never committed: it
truncates them when it follows the next leader. So batches that differ count below the high
watermarks of both replicas, which they had checkpointed as committed; if both were in the ISR and
closed, below that of any.

Source: KIP-101, KIP-279, KIP-516; Partition.maybeIncrementLeaderHW, AbstractFetcherThread.truncate.
"""

from typing import Final

from kraftsim.audit.log_sql import BATCH, ISR, POLICY, REFERENCE, REPLICA, SEGMENT, finding
from kraftsim.audit.rule import AuditRule, DefectSeverity

_READS: Final = (
    "log_dirs",
    "replicas",
    "files",
    "metadata_partitions",
    "leader_epochs",
)
_PAIRS: Final = f"""
WITH {REPLICA}, {SEGMENT}, {BATCH}, {POLICY}, {ISR}, {REFERENCE}, committed AS (
    SELECT cluster_id, topic, partition, generation, max(high_watermark) AS high_watermark,
        max(cleaned_until) AS cleaned_until
    FROM member GROUP BY cluster_id, topic, partition, generation
), pair AS (
    SELECT o.log_dir, o.directory, o.named, f.log_dir AS reference_dir, y.kind,
        CASE WHEN o.is_in_isr AND f.is_in_isr AND o.is_clean AND f.is_clean THEN c.high_watermark
            WHEN o.high_watermark < f.high_watermark THEN o.high_watermark
            WHEN f.high_watermark <= o.high_watermark THEN f.high_watermark END AS high_watermark,
        greatest(o.first_offset, f.first_offset, o.start_offset, f.start_offset,
            coalesce(c.cleaned_until, 0)) AS from_offset,
        least(o.end_offset, f.end_offset) AS to_offset
    FROM member AS o
    JOIN reference AS f ON f.cluster_id = o.cluster_id AND f.topic = o.topic
        AND f.partition = o.partition AND f.generation = o.generation
    JOIN committed AS c ON c.cluster_id = o.cluster_id AND c.topic = o.topic
        AND c.partition = o.partition AND c.generation = o.generation
    JOIN policy AS y ON y.topic = o.topic
    WHERE o.log_dir <> f.log_dir AND o.topic NOT IN ('__cluster_metadata', '@metadata')
        AND coalesce(o.node_id, -1) <> coalesce(f.node_id, -2)
)"""
"""Each replica with the reference of its partition, in another directory: from `from_offset` up to
`to_offset` both have the log, and below `high_watermark` both had it committed.
"""
_COMPARED_FIELDS: Final = (
    "last_offset",
    "size",
    "crc",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)
_DIFFERS: Final = " OR ".join(f"min({name}) <> max({name})" for name in _COMPARED_FIELDS)
_BATCH_FIELDS: Final = (
    "b.base_offset, b.last_offset, b.size, b.crc, coalesce(b.leader_epoch, -1) AS leader_epoch, "
    "b.producer_id, b.producer_epoch, b.base_sequence"
)
_IS_SHARED: Final = (
    "b.base_offset >= p.from_offset AND b.base_offset < p.to_offset AND (p.kind <> 'compacted' OR "
    "(b.delete_horizon_ms IS NULL AND b.records = b.last_offset - b.base_offset + 1))"
)
_DIFFERENCES: Final = f"""
{_PAIRS}, shared AS (
    SELECT p.log_dir, p.directory, p.kind, 0 AS is_other, {_BATCH_FIELDS}
    FROM batch AS b JOIN pair AS p ON p.reference_dir = b.log_dir AND p.directory = b.directory
    WHERE {_IS_SHARED}
    UNION ALL
    SELECT p.log_dir, p.directory, p.kind, 1 AS is_other, {_BATCH_FIELDS}
    FROM batch AS b JOIN pair AS p ON p.log_dir = b.log_dir AND p.directory = b.directory
    WHERE {_IS_SHARED}
), difference AS (
    SELECT log_dir, directory, base_offset, min(is_other) = max(is_other) AS is_missing,
        max(is_other) AS in_other
    FROM shared GROUP BY log_dir, directory, base_offset
    HAVING (min(is_other) = max(is_other) AND min(kind) <> 'compacted') OR {_DIFFERS}
), first_difference AS (
    SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY log_dir, directory, is_missing
            ORDER BY base_offset) AS place
        FROM difference
    ) AS numbered WHERE place = 1
), found AS (
    SELECT p.named, p.log_dir AS other_dir, p.reference_dir, d.base_offset, d.is_missing,
        coalesce(o.file, '') AS other_file, coalesce(o.position, -1) AS other_position,
        coalesce(f.file, '') AS reference_file, coalesce(f.position, -1) AS reference_position,
        coalesce(f.max_ms, o.max_ms) AS max_ms,
        d.base_offset < coalesce(p.high_watermark, 0) AS is_committed,
        p.kind,
        concat(p.named, ': at offset ', d.base_offset, ', ', p.log_dir, CASE
            WHEN d.is_missing AND d.in_other = 1 THEN concat(' has a batch of ', o.size,
                ' bytes that ', p.reference_dir, ' does not have')
            WHEN d.is_missing THEN concat(' lacks a batch of ', f.size, ' bytes that ',
                p.reference_dir, ' has')
            ELSE concat(' and ', p.reference_dir, ' have different batches: last offsets ',
                o.last_offset, ' and ', f.last_offset, ', sizes ', o.size, ' and ', f.size,
                ', leader epochs ', coalesce(o.leader_epoch, -1), ' and ',
                coalesce(f.leader_epoch, -1), ', checksums ', o.crc, ' and ', f.crc,
                ', producer ids ', o.producer_id, ' and ', f.producer_id) END) AS said
    FROM first_difference AS d
    JOIN pair AS p ON p.log_dir = d.log_dir AND p.directory = d.directory
    LEFT JOIN batch AS o ON o.log_dir = d.log_dir AND o.directory = d.directory
        AND o.base_offset = d.base_offset
    LEFT JOIN batch AS f ON f.log_dir = p.reference_dir AND f.directory = d.directory
        AND f.base_offset = d.base_offset
)"""
_OTHER: Final = ("other_dir", "other_file", "other_position", "base_offset")
_REFERENCE: Final = ("reference_dir", "reference_file", "reference_position", "base_offset")

REPLICAS_EQUAL: Final = AuditRule(
    name="replicas-equal",
    statement="Below the high watermark all replicas of a partition have the same batches.",
    source="KIP-101, KIP-279",
    severity=DefectSeverity.LOSS,
    meaning="What a consumer reads depends on the leader. Acknowledged records are missing from "
    "one of the replicas, after an unclean leader election or damage to a disk.",
    remedy="Decide which replica is right. Keep it as leader; on the other broker, while it is "
    "stopped, move the partition's directory away: it replicates the partition again.",
    reads=(*_READS, "batches", "metadata_records", "metadata_topics"),
    examined=f"""
        {_PAIRS} SELECT count(*) FROM batch AS b
        JOIN pair AS p ON p.log_dir = b.log_dir AND p.directory = b.directory
        WHERE b.base_offset >= p.from_offset AND b.base_offset < p.to_offset
    """,
    defects=f"""
        {_DIFFERENCES} SELECT {
        finding("named", "said", since="max_ms", at=_OTHER, and_at=_REFERENCE)
    } FROM found WHERE is_committed AND NOT (is_missing AND kind = 'unknown')
    """,
    undecided=f"""
        {_DIFFERENCES} SELECT {
        finding(
            "named",
            "concat(said, CASE WHEN is_committed THEN '; without a metadata log it is not known "
            "whether the topic was compacted' ELSE '; one of the two had not committed this "
            "offset: it truncates its log when it follows a leader again' END)",
            at=_OTHER,
            and_at=_REFERENCE,
        )
    } FROM found WHERE NOT is_committed OR (is_missing AND kind = 'unknown')
    """,
)

_SHORT: Final = f"""
WITH {REPLICA}, {ISR}, {REFERENCE}, watermark AS (
    SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY cluster_id, topic, partition, generation
            ORDER BY high_watermark DESC, CASE WHEN is_clean THEN 0 ELSE 1 END, log_dir) AS number
        FROM member WHERE high_watermark IS NOT NULL
    ) AS ranked WHERE number = 1
), short AS (
    SELECT o.log_dir, o.directory, o.named, o.end_offset, o.has_isr, o.is_in_isr,
        o.is_clean AND w.is_clean AS are_clean, w.log_dir AS watermark_dir, w.high_watermark,
        concat(o.named, ': the log in ', o.log_dir, ' ends at offset ', o.end_offset,
            ', but offsets up to the high watermark ', w.high_watermark, ' of ', w.log_dir,
            ' were committed') AS said
    FROM member AS o
    JOIN watermark AS w ON w.cluster_id = o.cluster_id AND w.topic = o.topic
        AND w.partition = o.partition AND w.generation = o.generation
    WHERE o.log_dir <> w.log_dir AND o.end_offset < w.high_watermark
        AND coalesce(o.node_id, -1) <> coalesce(w.node_id, -2)
)"""
_AT_END: Final = ("log_dir", "directory", "CAST(-1 AS BIGINT)", "end_offset")
_AT_WATERMARK: Final = (
    "watermark_dir",
    "'replication-offset-checkpoint'",
    "CAST(-1 AS BIGINT)",
    "high_watermark",
)

IN_SYNC_REPLICAS_COMPLETE: Final = AuditRule(
    name="in-sync-replicas-complete",
    statement="A replica in the ISR has every offset below the high watermark.",
    source="Partition.maybeIncrementLeaderHW, KIP-497",
    severity=DefectSeverity.LOSS,
    meaning="If this replica becomes leader, the acknowledged records behind its end are gone.",
    remedy="Do not let it become leader: start a broker with a longer replica first. Then this one "
    "replicates the rest.",
    reads=_READS,
    examined=f"""
        WITH {REPLICA} SELECT count(*) FROM replica WHERE high_watermark IS NOT NULL
    """,
    defects=f"""
        {_SHORT} SELECT {finding("named", "said", at=_AT_END, and_at=_AT_WATERMARK)}
        FROM short WHERE is_in_isr AND are_clean
    """,
    undecided=f"""
        {_SHORT} SELECT {
        finding(
            "named",
            "concat(said, CASE WHEN has_isr THEN '; it is in the ISR of the newest metadata, but "
            "not all was closed, and the copies may be of different times' ELSE '; the metadata "
            "log does not say whether it was in the ISR' END)",
            at=_AT_END,
            and_at=_AT_WATERMARK,
        )
    } FROM short WHERE NOT has_isr OR (is_in_isr AND NOT are_clean)
    """,
)

_TOPIC_IDS: Final = f"""
WITH {REPLICA}, {ISR}, {REFERENCE}, registered AS (
    SELECT cluster_id, topic, topic_id, is_removed FROM (
        SELECT coalesce(d.cluster_id, '') AS cluster_id, t.topic_name AS topic, t.topic_id,
            t.is_removed,
            row_number() OVER (PARTITION BY d.cluster_id, t.topic_name
                ORDER BY coalesce(t.snapshot_end_offset - 1, t.record_offset) DESC,
                    t.record_offset DESC) AS place
        FROM metadata_topics AS t LEFT JOIN log_dirs AS d ON d.log_dir = t.log_dir
        WHERE t.topic_name IS NOT NULL
    ) AS numbered WHERE place = 1
), wanted AS (
    SELECT g.cluster_id, g.topic, g.topic_id, i.partition_id, i.isr
    FROM registered AS g
    JOIN newest_isr AS i ON i.cluster_id = g.cluster_id AND i.topic_id = g.topic_id
), foreign_id AS (
    SELECT m.log_dir, m.directory, m.named, m.topic_id, m.is_clean, w.topic_id AS registered_id,
        w.isr IS NOT NULL AS is_known,
        coalesce(concat(',', replace(replace(replace(w.isr, '[', ''), ']', ''), ' ', ''), ',')
            LIKE concat('%,', m.node_id, ',%'), false) AS should_be_in_isr
    FROM member AS m
    LEFT JOIN wanted AS w ON w.cluster_id = m.cluster_id AND w.topic = m.topic
        AND w.partition_id = m.partition
    JOIN named_topic AS n ON n.cluster_id = m.cluster_id AND n.topic = m.topic
        AND n.partition = m.partition
    WHERE m.topic_id IS NOT NULL
        AND (w.topic_id <> m.topic_id OR (w.topic_id IS NULL AND n.topic_ids > 1))
)"""
_AT_METADATA: Final = (
    "log_dir",
    "concat(directory, '/partition.metadata')",
    "CAST(-1 AS BIGINT)",
    "CAST(-1 AS BIGINT)",
)
_FOREIGN: Final = "concat(named, ': the replica in ', log_dir, ' has topic id ', topic_id"

TOPIC_IDS_AGREE: Final = AuditRule(
    name="topic-ids-agree",
    statement="Replicas of a partition have the topic id of the metadata log.",
    source="KIP-516",
    severity=DefectSeverity.WRONG,
    meaning="The broker refuses the replica as one of another topic: it stays offline, or its log "
    "is renamed and deleted.",
    remedy="Find out whether the topic was deleted and created again. If not, put back the "
    "partition.metadata that the other replicas have.",
    reads=(*_READS, "metadata_topics"),
    examined=f"WITH {REPLICA} SELECT count(*) FROM replica WHERE topic_id IS NOT NULL",
    defects=f"""
        {_TOPIC_IDS} SELECT {
        finding(
            "named",
            f"{_FOREIGN}, ', the metadata log has ', coalesce(registered_id, 'none'), ' and counts "
            "the replica as in sync')",
            at=_AT_METADATA,
        )
    } FROM foreign_id WHERE should_be_in_isr AND is_clean
    """,
    undecided=f"""
        {_TOPIC_IDS} SELECT {
        finding(
            "named",
            f"{_FOREIGN}, CASE WHEN is_known THEN concat(', the metadata log has ', "
            "coalesce(registered_id, 'none'), '; the broker may have been down when the topic was "
            "deleted and created again') ELSE ', other replicas have another one; the metadata log "
            "does not say which is right' END)",
            at=_AT_METADATA,
        )
    } FROM foreign_id WHERE NOT (should_be_in_isr AND is_clean)
    """,
)

RULES: Final = (REPLICAS_EQUAL, IN_SYNC_REPLICAS_COMPLETE, TOPIC_IDS_AGREE)
