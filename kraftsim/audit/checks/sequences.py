"""Each batch of an idempotent producer is in a log once, in the order of its sequence numbers, and
its epochs never fall.

Brokers check the sequence of a producer that they know; they accept any from one that they do not
know, because its state expired or its records were deleted (KIP-360). So a first batch says little,
and a gap counts only between two batches that lie next to each other in time and with no offset
removed between them.

Source: KIP-98, KIP-360, KIP-890; ProducerAppendInfo (checkProducerEpoch, checkSequence).
"""

from typing import Final

from kraftsim.audit.log_sql import BATCH, REPLICA, SEGMENT, STATE_KEPT_MS, finding, place
from kraftsim.audit.rule import AuditRule, DefectSeverity

_READS: Final = ("log_dirs", "replicas", "files", "batches")
_NAMED: Final = "concat(topic, '-', partition)"
_OF_PRODUCER: Final = "PARTITION BY log_id, producer_id ORDER BY base_offset"
_OF_EPOCH: Final = "PARTITION BY log_id, producer_id, producer_epoch ORDER BY base_offset"
_KNOWN: Final = "OVER (PARTITION BY b.log_id, b.producer_id ORDER BY b.base_offset)"
_SEQUENCES: Final = 2**31

_SEQUENCED: Final = f"""
WITH {REPLICA}, {SEGMENT}, {BATCH}, stretched AS (
    SELECT *, base_offset - coalesce(sum(last_offset - base_offset + 1) OVER (
        PARTITION BY log_id ORDER BY base_offset
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS stretch
    FROM batch
), produced AS (
    SELECT b.log_id, b.log_dir, b.topic, b.partition, b.file, b.position, b.base_offset,
        b.last_offset, b.producer_id, b.producer_epoch,
        CAST(b.base_sequence AS BIGINT) AS base_sequence,
        CAST(b.last_sequence AS BIGINT) AS last_sequence, b.is_control, b.max_ms, b.stretch,
        r.first_offset, r.start_offset,
        lag(producer_epoch) {_KNOWN} AS epoch_before,
        lag(last_offset) {_KNOWN} AS known_offset,
        lag(max_ms) {_KNOWN} AS known_ms,
        lag(stretch) {_KNOWN} AS known_stretch
    FROM stretched AS b
    JOIN replica AS r ON r.log_id = b.log_id
    WHERE b.magic = 2 AND b.producer_id >= 0 AND b.base_offset >= r.start_offset
), sequenced AS (
    SELECT *, lag(base_offset) OVER ({_OF_EPOCH.replace(" ORDER", ", base_sequence ORDER")})
            AS earlier_offset,
        lag(file) OVER ({_OF_EPOCH.replace(" ORDER", ", base_sequence ORDER")}) AS earlier_file,
        lag(position) OVER ({_OF_EPOCH.replace(" ORDER", ", base_sequence ORDER")})
            AS earlier_position
    FROM produced
    WHERE NOT is_control AND base_sequence >= 0 AND topic <> '__consumer_offsets'
)"""
"""Batches with a producer from the log start offset on. `stretch` is the number of offsets that are
missing before a batch: it is the same in a part of a log without a gap. The group coordinator's
batches in `__consumer_offsets` all have sequence 0.
"""
_IS_DUPLICATE: Final = f"base_offset - coalesce(earlier_offset, -{_SEQUENCES}) < {_SEQUENCES}"
"""A producer that wrapped around has written 2^31 records in between."""
_PRODUCER: Final = "concat('producer id ', producer_id, ' epoch ', producer_epoch"

BATCHES_APPENDED_ONCE: Final = AuditRule(
    name="batches-appended-once",
    statement="A log has one batch with a producer id, producer epoch and base sequence.",
    source="KIP-98, ProducerStateEntry.findDuplicateBatch",
    severity=DefectSeverity.WRONG,
    meaning="Consumers read the records of the batch twice, although the producer is idempotent.",
    remedy="Let consumers of the partition drop the second copy by its offset. Check whether "
    "producer snapshots of the broker were deleted, or files were copied by hand.",
    reads=_READS,
    examined=f"{_SEQUENCED} SELECT count(*) FROM sequenced",
    defects=f"""
        {_SEQUENCED} SELECT {
        finding(
            _NAMED,
            f"concat({_NAMED}, ': the batch of {_PRODUCER[8:]}, ' with base sequence ', "
            "base_sequence, ' is at offset ', earlier_offset, ' and again at offset ', "
            "base_offset)",
            since="max_ms",
            and_at=("log_dir", "earlier_file", "earlier_position", "earlier_offset"),
        )
    } FROM sequenced WHERE {_IS_DUPLICATE}
    """,
)

_FOLLOWING: Final = f"""
{_SEQUENCED}, single AS (
    SELECT * FROM sequenced WHERE NOT ({_IS_DUPLICATE})
), followed AS (
    SELECT *, lag(last_sequence) OVER ({_OF_EPOCH}) AS sequence_before,
        lag(last_offset) OVER ({_OF_EPOCH}) AS offset_before,
        lag(max_ms) OVER ({_OF_EPOCH}) AS before_ms,
        lag(stretch) OVER ({_OF_EPOCH}) AS stretch_before,
        lag(file) OVER ({_OF_EPOCH}) AS file_before,
        lag(position) OVER ({_OF_EPOCH}) AS position_before
    FROM single
), step AS (
    SELECT *, CASE WHEN sequence_before IS NULL THEN base_sequence = 0
        ELSE base_sequence = sequence_before + 1
            OR (base_sequence = 0 AND sequence_before = {_SEQUENCES - 1}) END AS is_next
    FROM followed
), gap AS (
    SELECT *, abs(max_ms - before_ms) < {STATE_KEPT_MS} AS is_known FROM step
    WHERE NOT is_next AND sequence_before IS NOT NULL AND stretch = stretch_before
), late_start AS (
    SELECT *, known_stretch = stretch AND abs(max_ms - known_ms) < {STATE_KEPT_MS}
            AND (epoch_before <> producer_epoch OR is_whole) AS is_known
    FROM (
        SELECT *, first_offset = 0 AND start_offset = 0 AND stretch = 0 AS is_whole FROM step
        WHERE NOT is_next AND sequence_before IS NULL
    ) AS late
)"""
"""The first batch of an epoch says something if nothing of the epoch can have been removed before
it: the producer's previous epoch is in the same stretch, or the log is whole.
"""
_BEFORE: Final = ("log_dir", "file_before", "position_before", "offset_before")
_SKIPPED: Final = (
    f"concat({_NAMED}, ': sequence ', base_sequence, ' of {_PRODUCER[8:]}, ' at offset ', "
    "base_offset, ' comes after sequence ', sequence_before, ' at offset ', offset_before"
)
_STARTED: Final = (
    f"concat({_NAMED}, ': {_PRODUCER[8:]}, ' begins with sequence ', base_sequence, ' at offset ', "
    "base_offset"
)

SEQUENCES_WITHOUT_GAPS: Final = AuditRule(
    name="sequences-without-gaps",
    statement="Sequence numbers of a producer epoch follow each other from 0 on, and wrap around "
    "after 2^31-1.",
    source="KIP-98, KIP-360, ProducerAppendInfo.checkSequence",
    severity=DefectSeverity.WRONG,
    meaning="Records of an idempotent producer are missing from the log or out of order, although "
    "later ones were accepted.",
    remedy="Ask the application for the records between the sequences and produce them again. "
    "Check for unclean leader elections and deleted producer snapshots at that time.",
    reads=_READS,
    examined=f"{_SEQUENCED} SELECT count(*) FROM sequenced",
    defects=f"""
        {_FOLLOWING} SELECT {
        finding(_NAMED, f"{_SKIPPED})", since="max_ms", and_at=_BEFORE)
    } FROM gap WHERE is_known
        UNION ALL
        SELECT {
        finding(
            _NAMED,
            f"{_STARTED}, ' instead of 0, after epoch ', epoch_before, ' at offset ', "
            "known_offset)",
            since="max_ms",
        )
    } FROM late_start WHERE is_known
    """,
    undecided=f"""
        {_FOLLOWING} SELECT {
        finding(
            _NAMED,
            f"{_SKIPPED}, '; the broker may have forgotten the producer in between "
            "(producer.id.expiration.ms)')",
            and_at=_BEFORE,
        )
    } FROM gap WHERE NOT coalesce(is_known, false)
        UNION ALL
        SELECT {
        finding(
            _NAMED,
            f"{_STARTED}, ' instead of 0; a broker accepts that from a producer that it does not "
            "know, after an unclean leader election for example')",
        )
    } FROM late_start WHERE NOT coalesce(is_known, false) AND is_whole
    """,
)

_EPOCHS: Final = f"""
WITH {REPLICA}, {SEGMENT}, {BATCH}, produced AS (
    SELECT *, lag(producer_epoch) OVER ({_OF_PRODUCER}) AS epoch_before,
        lag(max_ms) OVER ({_OF_PRODUCER}) AS before_ms,
        lag(file) OVER ({_OF_PRODUCER}) AS file_before,
        lag(position) OVER ({_OF_PRODUCER}) AS position_before,
        lag(last_offset) OVER ({_OF_PRODUCER}) AS offset_before
    FROM batch
    WHERE magic = 2 AND producer_id >= 0 AND (NOT is_control OR control_type IS NOT NULL)
), marker AS (
    SELECT *, lag(coordinator_epoch) OVER ({_OF_PRODUCER}) AS coordinator_before,
        lag(max_ms) OVER ({_OF_PRODUCER}) AS before_ms,
        lag(file) OVER ({_OF_PRODUCER}) AS file_before,
        lag(position) OVER ({_OF_PRODUCER}) AS position_before,
        lag(last_offset) OVER ({_OF_PRODUCER}) AS offset_before
    FROM batch WHERE coordinator_epoch IS NOT NULL AND producer_id >= 0
), fall AS (
    SELECT log_dir, file, position, base_offset, topic, partition, max_ms, file_before,
        position_before, offset_before, coalesce(abs(max_ms - before_ms) < {STATE_KEPT_MS}, false)
            AS is_known,
        concat({_NAMED}, CASE WHEN is_control THEN ': the marker at offset ' ELSE
            ': the batch at offset ' END, base_offset, ' of producer id ', producer_id,
            ' has epoch ', producer_epoch, ' after epoch ', epoch_before, ' at offset ',
            offset_before) AS said
    FROM produced WHERE producer_epoch < epoch_before
    UNION ALL
    SELECT log_dir, file, position, base_offset, topic, partition, max_ms, file_before,
        position_before, offset_before, coalesce(abs(max_ms - before_ms) < {STATE_KEPT_MS}, false),
        concat({_NAMED}, ': the marker at offset ', base_offset, ' of producer id ', producer_id,
            ' has coordinator epoch ', coordinator_epoch, ' after coordinator epoch ',
            coordinator_before, ' at offset ', offset_before)
    FROM marker WHERE coordinator_epoch < coordinator_before
)"""

PRODUCER_EPOCHS_NEVER_FALL: Final = AuditRule(
    name="producer-epochs-never-fall",
    statement="In a log the epochs of a producer id, and the coordinator epochs of its markers, "
    "never fall.",
    source="KIP-98, KIP-360, ProducerAppendInfo.{checkProducerEpoch, checkCoordinatorEpoch}",
    severity=DefectSeverity.WRONG,
    meaning="A producer or coordinator that was fenced has still written: its records may be in a "
    "transaction that is not theirs.",
    remedy="Find the application instance that was fenced and check what it wrote after that. "
    "Upgrade brokers before 4.0, which do not verify transactions of old clients (KIP-890).",
    reads=_READS,
    examined=f"""
        WITH {REPLICA}, {SEGMENT}, {BATCH}
        SELECT count(*) FROM batch WHERE magic = 2 AND producer_id >= 0
    """,
    defects=f"""
        {_EPOCHS} SELECT {finding(_NAMED, "said", since="max_ms", and_at=_BEFORE)}
        FROM fall WHERE is_known
    """,
    undecided=f"""
        {_EPOCHS} SELECT {
        finding(
            _NAMED,
            "concat(said, '; the broker may have forgotten the producer in between "
            "(producer.id.expiration.ms)')",
            and_at=_BEFORE,
        )
    } FROM fall WHERE NOT is_known
    """,
)

_LEADERS: Final = f"""
WITH {REPLICA}, {SEGMENT}, {BATCH}, led AS (
    SELECT *, max(leader_epoch) OVER (PARTITION BY log_id ORDER BY base_offset
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS epoch_before
    FROM batch WHERE leader_epoch >= 0
)"""

LEADER_EPOCHS_NEVER_FALL: Final = AuditRule(
    name="leader-epochs-never-fall",
    statement="The leader epochs of a log's batches never fall.",
    source="KIP-101, LeaderEpochFileCache.assign",
    severity=DefectSeverity.LOSS,
    meaning="A leader that was deposed has still appended, or batches of two logs are mixed: "
    "replicas cannot find where their logs diverge.",
    remedy="Compare the partition with its other replicas and keep the one that the current leader "
    "has.",
    reads=_READS,
    examined=f"{_LEADERS} SELECT count(*) FROM led",
    defects=f"""
        {_LEADERS} SELECT {
        finding(
            "concat(l.topic, '-', l.partition)",
            "concat(l.topic, '-', l.partition, ': the batch at offset ', l.base_offset, ' has "
            "leader epoch ', l.leader_epoch, ' after leader epoch ', l.epoch_before)",
            since="l.max_ms",
            at=place("l."),
        )
    } FROM led AS l WHERE l.leader_epoch < l.epoch_before
    """,
)

RULES: Final = (
    BATCHES_APPENDED_ONCE,
    SEQUENCES_WITHOUT_GAPS,
    PRODUCER_EPOCHS_NEVER_FALL,
    LEADER_EPOCHS_NEVER_FALL,
)
