"""Checkpoints of offsets and leader epochs agree with the log beside them.

A broker writes them every few seconds and when it stops: only after a clean shutdown they describe
the log exactly. Before that a broker that starts again corrects them.

Source: ReplicaManager.checkpointHighWatermarks, LogManager.{checkpointLogRecoveryOffsets,
checkpointLogStartOffsets}, LeaderEpochFileCache.
"""

from typing import Final

from kraftsim.audit.log_sql import BATCH, POLICY, REPLICA, SEGMENT, finding
from kraftsim.audit.rule import AuditRule, DefectSeverity

_READS: Final = ("log_dirs", "replicas", "files")
_WRONG_CHECKPOINT: Final = f"""
WITH {REPLICA}, wrong AS (
    SELECT log_dir, directory, named, is_clean, end_offset,
        'replication-offset-checkpoint' AS file, high_watermark AS checkpointed,
        concat('the high watermark ', high_watermark, ' is after the end of the log at offset ',
            end_offset) AS said
    FROM replica WHERE high_watermark > end_offset
    UNION ALL
    SELECT log_dir, directory, named, is_clean, end_offset,
        'recovery-point-offset-checkpoint', recovery_point,
        concat('the recovery point ', recovery_point, ' is after the end of the log at offset ',
            end_offset)
    FROM replica WHERE recovery_point > end_offset
    UNION ALL
    SELECT log_dir, directory, named, is_clean, end_offset,
        'log-start-offset-checkpoint', checkpointed_start,
        concat('the log start offset ', checkpointed_start, ' is after the high watermark ',
            high_watermark)
    FROM replica WHERE checkpointed_start > high_watermark
    UNION ALL
    SELECT log_dir, directory, named, is_clean, end_offset,
        'log-start-offset-checkpoint', checkpointed_start,
        concat('the log start offset ', checkpointed_start, ' is after the end of the log at '
            'offset ', end_offset)
    FROM replica WHERE checkpointed_start > end_offset AND high_watermark IS NULL
)"""
_AT_CHECKPOINT: Final = ("log_dir", "file", "CAST(-1 AS BIGINT)", "checkpointed")
_AT_LOG: Final = ("log_dir", "directory", "CAST(-1 AS BIGINT)", "end_offset")

CHECKPOINTS_FIT: Final = AuditRule(
    name="offset-checkpoints-fit-logs",
    statement="The high watermark and the recovery point are not after the end of their log, and "
    "the log start offset is not after the high watermark.",
    source="ReplicaManager.checkpointHighWatermarks, LogManager",
    severity=DefectSeverity.LOSS,
    meaning="The end of the log is missing, although it was committed or flushed, or the "
    "checkpoint belongs to another log.",
    remedy="If another replica has the offsets, let it be leader: this one replicates them again. "
    "If none has them, they are lost.",
    reads=("log_dirs", "replicas"),
    must_decide=True,
    examined=f"""
        WITH {REPLICA} SELECT count(*) FROM replica
        WHERE high_watermark IS NOT NULL OR recovery_point IS NOT NULL
            OR checkpointed_start IS NOT NULL
    """,
    defects=f"""
        {_WRONG_CHECKPOINT} SELECT {
        finding("named", "concat(named, ': ', said)", at=_AT_CHECKPOINT, and_at=_AT_LOG)
    } FROM wrong WHERE is_clean
    """,
    undecided=f"""
        {_WRONG_CHECKPOINT} SELECT {
        finding(
            "named",
            "concat(named, ': ', said, '; the broker was not stopped cleanly: its last records "
            "were not flushed, or the files were copied at different times')",
            at=_AT_CHECKPOINT,
            and_at=_AT_LOG,
        )
    } FROM wrong WHERE NOT is_clean
    """,
)

# --------------------------------------------------------------------------------------------------
# The leader-epoch-checkpoint
#
# An entry says where an epoch begins: the leader writes it when it is elected, a follower with the
# first batch of the epoch. Retention raises the first entry to the log start offset; recovery after
# a crash rebuilds the rest from the batches. The metadata log starts at its first snapshot: epochs
# before it are removed with the snapshots before, and segments later.

_EPOCHS: Final = f"""
WITH {REPLICA}, {SEGMENT}, {BATCH}, {POLICY}, entry AS (
    SELECT e.log_dir, e.directory, e.file, e.leader_epoch, e.start_offset,
        lag(e.start_offset) OVER (PARTITION BY e.log_dir, e.directory
            ORDER BY e.leader_epoch, e.start_offset) AS start_before,
        r.named, r.topic, r.is_clean, r.end_offset
    FROM leader_epochs AS e
    JOIN replica AS r ON r.log_dir = e.log_dir AND r.directory = e.directory
), mark AS (
    SELECT log_dir, directory, start_offset AS at_offset, 0 AS is_batch, leader_epoch,
        file, CAST(0 AS BIGINT) AS position
    FROM entry
    UNION ALL
    SELECT log_dir, directory, base_offset, 1, leader_epoch, file, position
    FROM batch WHERE leader_epoch >= 0
), compared AS (
    SELECT *, max(CASE WHEN is_batch = 0 THEN leader_epoch END) OVER (
        PARTITION BY log_dir, directory ORDER BY at_offset, is_batch
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS checkpointed_epoch,
        min(CASE WHEN is_batch = 0 THEN leader_epoch END) OVER (PARTITION BY log_dir, directory)
            AS first_epoch
    FROM mark
), disagreement AS (
    SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY log_dir, directory ORDER BY at_offset) AS place
        FROM compared
        WHERE is_batch = 1 AND leader_epoch <> coalesce(checkpointed_epoch, -1)
            AND NOT (checkpointed_epoch IS NULL AND first_epoch IS NOT NULL
                AND directory = '__cluster_metadata-0')
    ) AS numbered WHERE place = 1
), wrong AS (
    SELECT d.log_dir, d.directory, r.named, r.is_clean, d.file, d.position, d.at_offset,
        concat('the batch at offset ', d.at_offset, ' has leader epoch ', d.leader_epoch,
            CASE WHEN d.checkpointed_epoch IS NULL
                THEN ', but the leader-epoch-checkpoint has no epoch for it'
                ELSE concat(', but by the leader-epoch-checkpoint it is in epoch ',
                    d.checkpointed_epoch) END) AS said
    FROM disagreement AS d
    JOIN replica AS r ON r.log_dir = d.log_dir AND r.directory = d.directory
    JOIN (
        SELECT DISTINCT log_dir, directory FROM files WHERE file LIKE '%/leader-epoch-checkpoint'
    ) AS e ON e.log_dir = d.log_dir AND e.directory = d.directory
    WHERE d.at_offset >= r.start_offset
    UNION ALL
    SELECT log_dir, directory, named, is_clean, file, CAST(-1 AS BIGINT), start_offset,
        concat('leader epoch ', leader_epoch, ' of the leader-epoch-checkpoint starts at offset ',
            start_offset, ', after the end of the log at offset ', end_offset)
    FROM entry WHERE start_offset > end_offset
    UNION ALL
    SELECT log_dir, directory, named, is_clean, file, CAST(-1 AS BIGINT), start_offset,
        concat('leader epoch ', leader_epoch, ' of the leader-epoch-checkpoint starts at offset ',
            start_offset, ', and an earlier epoch at offset ', start_before)
    FROM entry WHERE start_offset < start_before
)"""
_AT_WRONG: Final = ("log_dir", "file", "position", "at_offset")
_CHECKPOINT_FILE: Final = (
    "log_dir",
    "concat(directory, '/leader-epoch-checkpoint')",
    "CAST(-1 AS BIGINT)",
    "CAST(-1 AS BIGINT)",
)

LEADER_EPOCHS_FIT: Final = AuditRule(
    name="leader-epoch-checkpoints-fit-logs",
    statement="Each batch has the leader epoch that the leader-epoch-checkpoint gives its offset.",
    source="KIP-101, LeaderEpochFileCache",
    severity=DefectSeverity.WRONG,
    meaning="A follower that asks where an epoch ended gets a wrong answer: it truncates records "
    "that were committed, or keeps records that were not.",
    remedy="If another replica agrees with its checkpoint, stop this broker, move the partition's "
    "directory away and start the broker. Otherwise delete this leader-epoch-checkpoint, and in "
    "the log directory .kafka_cleanshutdown and recovery-point-offset-checkpoint: the broker "
    "rebuilds it when it starts.",
    reads=(*_READS, "batches", "leader_epochs"),
    must_decide=True,
    examined=f"""
        WITH {REPLICA} SELECT count(*) FROM leader_epochs AS e
        JOIN replica AS r ON r.log_dir = e.log_dir AND r.directory = e.directory
    """,
    defects=f"""
        {_EPOCHS} SELECT {
        finding("named", "concat(named, ': ', said)", at=_AT_WRONG, and_at=_CHECKPOINT_FILE)
    } FROM wrong WHERE is_clean
    """,
    undecided=f"""
        {_EPOCHS} SELECT {
        finding(
            "named",
            "concat(named, ': ', said, '; the log was not closed: the broker corrects the "
            "checkpoint when it starts')",
            at=_AT_WRONG,
            and_at=_CHECKPOINT_FILE,
        )
    } FROM wrong WHERE NOT is_clean
    """,
)

RULES: Final = (CHECKPOINTS_FIT, LEADER_EPOCHS_FIT)
