"""The files of a log are whole: segments, checksums, offsets, counts and indexes.

What a crash leaves at the end of the newest segment, brokers truncate when they start: it is no
defect. What compaction removed leaves gaps: they count only where no compaction ran.

Source: LogSegment.recover, LogLoader, UnifiedLog.analyzeAndValidateRecords, LogValidator.
"""

from typing import Final

from kraftsim.audit.log_sql import BATCH, POLICY, REPLICA, SEGMENT, finding, place
from kraftsim.audit.rule import AuditRule, DefectSeverity

_READS: Final = ("log_dirs", "replicas", "files")
_AT_PROBLEM: Final = (
    "p.log_dir",
    "p.file",
    "coalesce(p.position, -1)",
    "CAST(-1 AS BIGINT)",
)
_WHERE: Final = (
    "concat(p.topic, '-', p.partition, ': ', p.file, ' at byte ', coalesce(p.position, 0), ': ', "
    "p.reason"
)
_NAMED: Final = "concat(p.topic, '-', p.partition)"
_PROBLEM: Final = f"""
WITH {REPLICA}, {SEGMENT}, problem AS (
    SELECT p.*, r.is_clean FROM problems AS p
    JOIN segment AS s ON s.log_dir = p.log_dir AND s.file = p.file
    JOIN replica AS r ON r.log_dir = p.log_dir AND r.directory = p.directory
)"""
_SEGMENTS_EXAMINED: Final = f"WITH {REPLICA}, {SEGMENT} SELECT count(*) FROM segment"

SEGMENTS_READABLE: Final = AuditRule(
    name="segments-readable",
    statement="Every byte of a segment belongs to a record batch.",
    source="LogSegment.recover",
    severity=DefectSeverity.LOSS,
    meaning="The records in these bytes cannot be read from this replica. A broker that recovers "
    "the log after a crash truncates it there, with all that follows.",
    remedy="If another replica has the records, stop this broker, move the partition's directory "
    "away and start the broker: it replicates the partition again. Check the disk.",
    reads=(*_READS, "problems"),
    must_decide=True,
    examined=_SEGMENTS_EXAMINED,
    defects=f"""
        {_PROBLEM} SELECT {
        finding(_NAMED, f"{_WHERE}, ', so the bytes are no readable record batch')", at=_AT_PROBLEM)
    } FROM problem AS p
        WHERE p.problem IN ('torn', 'malformed') AND (p.is_clean OR NOT coalesce(p.is_tail, false))
    """,
    undecided=f"""
        {_PROBLEM} SELECT {
        finding(
            _NAMED,
            f"{_WHERE}, CASE WHEN p.problem = 'unsupported' THEN ', which cannot be examined' WHEN "
            "p.problem = 'unreadable' THEN ', so the file was not examined' ELSE ', at the end of "
            "a log that was not closed: the broker truncates it when it starts' END)",
            at=_AT_PROBLEM,
        )
    } FROM problem AS p
        WHERE p.problem IN ('unsupported', 'unreadable') OR (
            p.problem IN ('torn', 'malformed') AND NOT p.is_clean AND coalesce(p.is_tail, false))
    """,
)

_CHECKSUM: Final = f"""
WITH {REPLICA}, {SEGMENT}, valid AS (
    SELECT b.log_dir, b.directory, max(b.last_offset) AS last_offset
    FROM batches AS b JOIN segment AS s ON s.log_dir = b.log_dir AND s.file = b.file
    WHERE coalesce(b.crc_valid, true) GROUP BY b.log_dir, b.directory
), wrong AS (
    SELECT b.*, r.is_clean, b.base_offset <= coalesce(v.last_offset, -1) AS is_followed
    FROM batches AS b JOIN segment AS s ON s.log_dir = b.log_dir AND s.file = b.file
    JOIN replica AS r ON r.log_dir = b.log_dir AND r.directory = b.directory
    LEFT JOIN valid AS v ON v.log_dir = b.log_dir AND v.directory = b.directory
    WHERE NOT b.crc_valid
)"""
_WRONG_BATCH: Final = (
    "concat(topic, '-', partition, ': the checksum of the batch at offset ', "
    "coalesce(base_offset, last_offset), ' does not fit its ', size, ' bytes"
)

CHECKSUMS_FIT: Final = AuditRule(
    name="batch-checksums-fit",
    statement="The checksum of every record batch fits its bytes.",
    source="DefaultRecordBatch.ensureValid",
    severity=DefectSeverity.LOSS,
    meaning="Consumers fail on the batch and cannot pass it. Followers refuse it and stay behind.",
    remedy="If another replica has the batch, stop this broker, move the partition's directory "
    "away and start the broker. If none has it, seek consumers past the batch. Check the disk.",
    reads=(*_READS, "batches"),
    must_decide=True,
    examined=f"""
        WITH {REPLICA}, {SEGMENT} SELECT count(*) FROM batches AS b
        JOIN segment AS s ON s.log_dir = b.log_dir AND s.file = b.file
        WHERE b.crc_valid IS NOT NULL
    """,
    defects=f"""
        {_CHECKSUM} SELECT {finding("concat(topic, '-', partition)", f"{_WRONG_BATCH}')")}
        FROM wrong WHERE is_clean OR is_followed
    """,
    undecided=f"""
        {_CHECKSUM} SELECT {
        finding(
            "concat(topic, '-', partition)",
            f"{_WRONG_BATCH}, at the end of a log that was not closed: the broker truncates it "
            "when it starts')",
        )
    } FROM wrong WHERE NOT is_clean AND NOT is_followed
    """,
)

# --------------------------------------------------------------------------------------------------
# The order of offsets, and what is missing between them

_ORDERED: Final = f"""
WITH {REPLICA}, {SEGMENT}, {BATCH}, start AS (
    SELECT log_id, log_dir, directory, topic, partition, file, base_offset AS segment_offset,
        CAST(-1 AS BIGINT) AS position, base_offset, base_offset - 1 AS last_offset, 0 AS magic
    FROM segment
), step AS (
    SELECT log_id, log_dir, directory, topic, partition, file, segment_offset, position,
        base_offset, last_offset, magic FROM batch
    UNION ALL
    SELECT * FROM start
), ordered AS (
    SELECT *, max(last_offset) OVER (
            PARTITION BY log_id ORDER BY segment_offset, position
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached,
        max(CASE WHEN position >= 0 THEN last_offset END) OVER (
            PARTITION BY log_id ORDER BY segment_offset, position
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached_by_batch,
        lag(file) OVER (PARTITION BY log_id ORDER BY segment_offset, position)
            AS file_before,
        lag(position) OVER (PARTITION BY log_id ORDER BY segment_offset, position)
            AS position_before
    FROM step
)"""
"""Batches and starts of segments (position -1) in the order of the disk. `reached` is the last
offset before; a segment's name counts as one.
"""
_BEFORE: Final = (
    "log_dir",
    "file_before",
    "greatest(position_before, 0)",
    "coalesce(reached_by_batch, -1)",
)
_HERE: Final = ("log_dir", "file", "greatest(position, 0)", "base_offset")

OFFSETS_GROW: Final = AuditRule(
    name="offsets-grow",
    statement="Offsets grow within a segment, from its name on, and from segment to segment.",
    source="UnifiedLog.analyzeAndValidateRecords (OffsetsOutOfOrderException)",
    severity=DefectSeverity.WRONG,
    meaning="One offset has two records, or a reader that looks for an offset misses it.",
    remedy="Compare the partition with its other replicas. If they are in order, stop this broker, "
    "move the partition's directory away and start the broker.",
    reads=(*_READS, "batches"),
    examined=f"WITH {REPLICA}, {SEGMENT}, {BATCH} SELECT count(*) FROM batch",
    defects=f"""
        {_ORDERED} SELECT {
        finding(
            "concat(topic, '-', partition)",
            "concat(topic, '-', partition, CASE WHEN position < 0 THEN ': the segment named ' ELSE "
            "': the batch at offset ' END, base_offset, CASE WHEN last_offset < base_offset AND "
            "position >= 0 THEN concat(' ends at offset ', last_offset) WHEN base_offset < "
            "segment_offset THEN concat(' is in the segment named ', segment_offset) ELSE "
            "concat(' comes after offset ', reached) END)",
            at=_HERE,
            and_at=_BEFORE,
        )
    } FROM ordered
        WHERE (position >= 0 AND last_offset < base_offset)
            OR base_offset <= CASE WHEN position < 0 THEN reached_by_batch ELSE reached END
    """,
)

_GAP: Final = f"""
{_ORDERED}, {POLICY}, gap AS (
    SELECT o.*, y.kind, r.is_clean FROM ordered AS o JOIN policy AS y ON y.topic = o.topic
    JOIN replica AS r ON r.log_dir = o.log_dir AND r.directory = o.directory
    WHERE o.base_offset > o.reached + 1 AND o.base_offset > r.start_offset
        AND y.kind <> 'compacted'
)"""
_MISSING: Final = (
    "concat(topic, '-', partition, ': offsets ', reached + 1, ' to ', base_offset - 1, "
    "' are missing', CASE WHEN position < 0 THEN concat(' before the segment named ', "
    "segment_offset) ELSE concat(' in the segment named ', segment_offset) END"
)

NO_OFFSET_GAPS: Final = AuditRule(
    name="no-offset-gaps",
    statement="No offset is missing in the log of a topic that compaction never touched.",
    source="UnifiedLog.append, LocalLog.roll",
    severity=DefectSeverity.LOSS,
    meaning="Records between the offsets are gone from this replica, or a segment file is missing.",
    remedy="If another replica has the offsets, stop this broker, move the partition's directory "
    "away and start the broker. Otherwise put the missing segment back from a backup.",
    reads=(*_READS, "batches", "metadata_records", "metadata_topics"),
    examined=f"""
        WITH {REPLICA}, {SEGMENT}, {BATCH}, {POLICY}
        SELECT count(*) FROM batch AS b JOIN policy AS y ON y.topic = b.topic
        WHERE y.kind <> 'compacted'
    """,
    defects=f"""
        {_GAP} SELECT {
        finding("concat(topic, '-', partition)", f"{_MISSING})", at=_HERE, and_at=_BEFORE)
    } FROM gap WHERE kind = 'kept' AND (is_clean OR position >= 0)
    """,
    undecided=f"""
        {_GAP} SELECT {
        finding(
            "concat(topic, '-', partition)",
            f"{_MISSING}, CASE WHEN kind = 'unknown' THEN '; without a metadata log it is not "
            "known whether the topic was compacted' ELSE '; the log was not closed: a broker that "
            "runs may delete segments while they are copied' END)",
            at=_HERE,
            and_at=_BEFORE,
        )
    } FROM gap WHERE kind = 'unknown' OR (NOT is_clean AND position < 0)
    """,
)

RECORD_COUNTS_FIT: Final = AuditRule(
    name="record-counts-fit",
    statement="A batch that was never compacted has one record for each of its offsets.",
    source="LogValidator.validateBatch (InvalidRecordException)",
    severity=DefectSeverity.WRONG,
    meaning="The batch claims offsets without records, or records without offsets of their own: "
    "consumers count wrongly or fail on the batch.",
    remedy="Print the batch with kafka-dump-log --deep-iteration. Compare it with the other "
    "replicas, and replicate the partition again from one that is sound.",
    reads=(*_READS, "batches", "metadata_records", "metadata_topics"),
    examined=f"""
        WITH {REPLICA}, {SEGMENT}, {BATCH}, {POLICY}
        SELECT count(*) FROM batch AS b JOIN policy AS y ON y.topic = b.topic
        WHERE y.kind = 'kept' AND b.magic = 2
    """,
    defects=f"""
        WITH {REPLICA}, {SEGMENT}, {BATCH}, {POLICY}
        SELECT {
        finding(
            "concat(b.topic, '-', b.partition)",
            "concat(b.topic, '-', b.partition, ': the batch of offsets ', b.base_offset, ' to ', "
            "b.last_offset, ' has ', b.records, ' records')",
            at=place("b."),
        )
    } FROM batch AS b JOIN policy AS y ON y.topic = b.topic
        JOIN replica AS r ON r.log_dir = b.log_dir AND r.directory = b.directory
        WHERE y.kind = 'kept' AND b.magic = 2
            AND (r.is_clean OR b.last_offset < r.end_offset - 1)
            AND b.records <> b.last_offset - b.base_offset + 1
    """,
)

# --------------------------------------------------------------------------------------------------
# Indexes

_INDEX_PROBLEM: Final = f"""
WITH {REPLICA}, {SEGMENT}, {BATCH}, {POLICY}, index_file AS (
    SELECT f.log_dir, f.file, f.base_offset, r.directory, r.named, r.topic, r.is_clean,
        r.recovery_point, r.end_offset
    FROM files AS f
    JOIN replica AS r ON r.log_dir = f.log_dir AND r.directory = f.directory
    WHERE f.kind IN ('index', 'timeindex', 'txnindex') AND f.state = 'live'
), entry AS (
    SELECT t.log_dir, t.file, t.directory, t.base_offset AS segment_offset, t.entry,
        t.indexed_offset AS at_offset, t.indexed_ms, 1 AS rank_at, CAST(NULL AS BIGINT) AS max_ms
    FROM time_index AS t
    UNION ALL
    SELECT b.log_dir, b.file, b.directory, b.segment_offset, -1 AS entry, b.base_offset,
        CAST(NULL AS BIGINT), 0 AS rank_at, b.max_ms
    FROM batch AS b JOIN policy AS y ON y.topic = b.topic WHERE y.kind <> 'compacted'
), compared AS (
    SELECT *, max(max_ms) OVER (
        PARTITION BY log_dir, directory, segment_offset ORDER BY at_offset, rank_at, entry
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS newest_ms
    FROM entry
), contradiction AS (
    SELECT p.log_dir, p.file, coalesce(p.position, 0) AS position, p.reason, p.problem
    FROM problems AS p
    UNION ALL
    SELECT log_dir, file, CAST(entry AS BIGINT) * 12,
        concat('entry ', entry, ' has timestamp ', indexed_ms, ' for offset ', at_offset,
            ', the batches up to there have ', newest_ms), 'index'
    FROM compared WHERE rank_at = 1 AND newest_ms IS NOT NULL AND indexed_ms <> newest_ms
        AND (indexed_ms <> 0 OR at_offset <> segment_offset)
), judged AS (
    SELECT c.*, i.named, i.topic, NOT i.is_clean AND (y.kind <> 'kept'
        OR coalesce(n.base_offset, i.end_offset) >= coalesce(i.recovery_point, 0)) AS is_rebuilt,
        NOT i.is_clean AND n.base_offset IS NULL AS is_open
    FROM contradiction AS c
    JOIN index_file AS i ON i.log_dir = c.log_dir AND i.file = c.file
    JOIN policy AS y ON y.topic = i.topic
    LEFT JOIN (
        SELECT log_dir, directory, base_offset AS segment_offset, lead(base_offset) OVER (
            PARTITION BY log_dir, directory ORDER BY base_offset) AS base_offset
        FROM segment
    ) AS n ON n.log_dir = i.log_dir AND n.directory = i.directory
        AND n.segment_offset = i.base_offset
)"""
"""The indexes of the newest segment of a log that was not closed are not examined: they end in
zeros, or lack entries, and brokers always check them.
"""
_AT_ENTRY: Final = ("log_dir", "file", "position", "CAST(-1 AS BIGINT)")
_ENTRY: Final = "concat(named, ': ', file, ' at byte ', position, ': ', reason"

INDEXES_FIT: Final = AuditRule(
    name="indexes-fit-segments",
    statement="Entries of offset, time and transaction indexes grow and name batches of their "
    "segment; a time index has the largest timestamp up to its offset.",
    source="LogSegment.append, OffsetIndex.sanityCheck, TimeIndex.sanityCheck",
    severity=DefectSeverity.DEGRADED,
    meaning="The records are there, but a fetch may begin behind its offset, and a search by time "
    "may return a wrong offset.",
    remedy="Stop the broker, delete the named index file and start the broker: it rebuilds the "
    "index from the segment.",
    reads=(
        *_READS,
        "batches",
        "problems",
        "time_index",
        "metadata_records",
        "metadata_topics",
    ),
    must_decide=True,
    examined=f"""
        WITH {REPLICA} SELECT count(*) FROM files AS f
        JOIN replica AS r ON r.log_dir = f.log_dir AND r.directory = f.directory
        WHERE f.kind IN ('index', 'timeindex', 'txnindex') AND f.state = 'live'
    """,
    defects=f"""
        {_INDEX_PROBLEM} SELECT {finding("named", f"{_ENTRY})", at=_AT_ENTRY)}
        FROM judged WHERE NOT is_rebuilt AND NOT is_open AND problem <> 'unsupported'
    """,
    undecided=f"""
        {_INDEX_PROBLEM} SELECT {
        finding(
            "named",
            f"{_ENTRY}, CASE WHEN problem = 'unsupported' THEN '; this version cannot be read' "
            "ELSE '; the log was not closed: the broker checks this index when it starts' END)",
            at=_AT_ENTRY,
        )
    } FROM judged WHERE (is_rebuilt OR problem = 'unsupported') AND NOT is_open
    """,
)

RULES: Final = (
    SEGMENTS_READABLE,
    CHECKSUMS_FIT,
    OFFSETS_GROW,
    NO_OFFSET_GAPS,
    RECORD_COUNTS_FIT,
    INDEXES_FIT,
)
