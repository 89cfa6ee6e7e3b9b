"""What clients recorded against what the disks have: acknowledged and lost, doubled, out of order,
committed but aborted, read but aborted.

A client's row is looked up in each replica by its offset: the newest batch that begins at or below
it covers it, or none does. Source: KIP-98; Partition.appendRecordsToLeader (acks), CompletedFetch.
"""

from typing import Final

from kraftsim.audit.rule import AuditRule, DefectSeverity

_NO_PLACE = (
    "CAST(NULL AS STRING) AS log_dir2, CAST(NULL AS STRING) AS file2, "
    "CAST(NULL AS BIGINT) AS position2, CAST(NULL AS BIGINT) AS at_offset2"
)
_NO_PLACES = (
    "CAST(NULL AS STRING) AS log_dir, CAST(NULL AS STRING) AS file, "
    f"CAST(NULL AS BIGINT) AS position, CAST(NULL AS BIGINT) AS at_offset, {_NO_PLACE}"
)
_SAID = (
    "CASE WHEN client IS NULL THEN '' ELSE client || ', ' END || source || ' line ' || "
    "CAST(line AS STRING)"
)
"""Who recorded it, and where."""
_PARTITION = "topic || '-' || CAST(partition AS STRING)"

_ACKNOWLEDGED: Final = """
    SELECT source, line, client, time_ms, topic, partition, acknowledged_offset AS first_offset,
        records, coalesce(acks, -1) AS acks, coalesce(producer_id, -1) AS producer_id,
        coalesce(producer_epoch, -1) AS producer_epoch, coalesce(sequence, -1) AS sequence,
        outcome
    FROM client_acknowledged
"""
_READ: Final = """
    SELECT source, line, client, time_ms, topic, partition, read_offset AS first_offset,
        records, -1 AS acks, coalesce(producer_id, -1) AS producer_id,
        coalesce(producer_epoch, -1) AS producer_epoch, coalesce(sequence, -1) AS sequence,
        isolation AS outcome
    FROM client_reads
"""


def _located(rows: str) -> str:
    """Return CTEs up to `located`: each row of clients with the batch that covers it, per replica.

    `batch_offset` is null without one; `next_marker` is the type of the first marker of the batch's
    producer behind it, null if none follows.
    """
    return f"""
client_rows AS ({rows}),
client_partitions AS (SELECT DISTINCT topic, partition FROM client_rows),
log_batches AS (
    SELECT b.log_dir, b.file, b.position, b.topic, b.partition, b.base_offset, b.last_offset,
        b.producer_id, b.producer_epoch, b.base_sequence, b.is_control, b.is_transactional,
        b.control_type, row_number() OVER (
            PARTITION BY b.log_dir, b.topic, b.partition, b.base_offset ORDER BY b.position
        ) AS copy
    FROM batches AS b
    JOIN client_partitions AS p ON p.topic = b.topic AND p.partition = b.partition
),
marked AS (
    SELECT log_batches.*, min(CASE WHEN is_control AND control_type IN ('COMMIT', 'ABORT') THEN
        base_offset END) OVER (
            PARTITION BY log_dir, topic, partition, producer_id ORDER BY base_offset
            ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
        ) AS marker_offset
    FROM log_batches WHERE copy = 1
),
live_replicas AS (
    SELECT r.log_dir, r.directory, r.topic, r.partition, r.first_segment_offset,
        r.log_start_offset, r.end_offset, r.high_watermark, r.cleaned_until, d.is_clean,
        d.newest_ms
    FROM replicas AS r
    JOIN client_partitions AS p ON p.topic = r.topic AND p.partition = r.partition
    JOIN log_dirs AS d ON d.log_dir = r.log_dir
    WHERE NOT coalesce(r.is_future, false)
),
places AS (
    SELECT log_dir, topic, partition, base_offset AS place_offset, 0 AS is_client, base_offset,
        CAST(NULL AS STRING) AS source, CAST(NULL AS BIGINT) AS line,
        CAST(NULL AS STRING) AS client, CAST(NULL AS BIGINT) AS time_ms,
        CAST(NULL AS INT) AS records, CAST(NULL AS INT) AS acks,
        CAST(NULL AS BIGINT) AS client_producer_id, CAST(NULL AS INT) AS client_epoch,
        CAST(NULL AS INT) AS client_sequence, CAST(NULL AS STRING) AS outcome
    FROM marked
    UNION ALL
    SELECT r.log_dir, c.topic, c.partition, c.first_offset, 1, CAST(NULL AS BIGINT), c.source,
        c.line, c.client, c.time_ms, c.records, c.acks, c.producer_id, c.producer_epoch,
        c.sequence, c.outcome
    FROM client_rows AS c
    JOIN live_replicas AS r ON r.topic = c.topic AND r.partition = c.partition
),
covered AS (
    SELECT places.*, max(base_offset) OVER (
        PARTITION BY log_dir, topic, partition ORDER BY place_offset, is_client
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS covering_offset
    FROM places
),
located AS (
    SELECT c.source, c.line, c.client, c.time_ms, c.topic, c.partition,
        c.place_offset AS first_offset, c.records, c.acks, c.outcome, c.client_producer_id,
        c.client_sequence, r.log_dir, r.directory, r.first_segment_offset, r.log_start_offset,
        r.end_offset, r.high_watermark, r.cleaned_until, r.is_clean, r.newest_ms, b.file,
        b.position, b.base_offset AS batch_offset, b.producer_id, b.is_transactional,
        CASE WHEN b.base_offset IS NOT NULL AND NOT b.is_control AND (c.client_producer_id < 0 OR (
            b.producer_id = c.client_producer_id AND (c.client_sequence < 0 OR
            (b.base_sequence + c.place_offset - b.base_offset) % 2147483648 = c.client_sequence)
        )) THEN 1 ELSE 0 END AS is_same,
        m.control_type AS next_marker, m.file AS marker_file, m.position AS marker_position,
        m.base_offset AS marker_offset
    FROM covered AS c
    JOIN live_replicas AS r
        ON r.log_dir = c.log_dir AND r.topic = c.topic AND r.partition = c.partition
    LEFT JOIN marked AS b ON b.log_dir = c.log_dir AND b.topic = c.topic
        AND b.partition = c.partition AND b.base_offset = c.covering_offset
        AND b.last_offset >= c.place_offset
    LEFT JOIN marked AS m ON m.log_dir = b.log_dir AND m.topic = b.topic
        AND m.partition = b.partition AND m.base_offset = b.marker_offset AND b.producer_id >= 0
    WHERE c.is_client = 1
)"""


def _looked_up(rows: str, condition: str) -> str:
    """Return CTEs up to `evaluated`: one row per row of clients, with `reason` null if it is lost,
    and `is_there` 1 if a replica has it.

    It is lost if a replica has another batch, or none, at an offset that was committed there, or if
    all registered replicas are here and none has it.
    """
    return f"""
WITH {_located(rows)},
registered AS (
    SELECT t.topic_name AS topic, p.partition_id AS partition,
        max(length(p.replicas) - length(replace(p.replicas, ',', '')) + 1) AS replica_count
    FROM metadata_partitions AS p
    JOIN (SELECT DISTINCT topic_id, topic_name FROM metadata_topics WHERE NOT is_removed) AS t
        ON t.topic_id = p.topic_id
    WHERE p.replicas IS NOT NULL
    GROUP BY t.topic_name, p.partition_id
),
compacted AS (
    SELECT topic, partition,
        max(CASE WHEN cleaned_until IS NOT NULL THEN 1 ELSE 0 END) AS is_cleaned
    FROM live_replicas GROUP BY topic, partition
),
summed AS (
    SELECT c.source, c.line, c.client, c.time_ms, c.topic, c.partition, c.first_offset, c.acks,
        c.outcome, count(l.log_dir) AS replicas, coalesce(sum(l.is_same), 0) AS same,
        sum(CASE WHEN l.is_same = 0 AND l.batch_offset IS NOT NULL THEN 1 ELSE 0 END) AS others,
        sum(CASE WHEN l.is_same = 0 AND l.first_offset < greatest(
            coalesce(l.log_start_offset, 0), coalesce(l.first_segment_offset, 0)
        ) THEN 1 ELSE 0 END) AS removed,
        sum(CASE WHEN l.batch_offset IS NULL AND l.first_offset >= l.end_offset
            THEN 1 ELSE 0 END) AS beyond,
        sum(CASE WHEN l.high_watermark > l.first_offset AND l.is_same = 0
            THEN 1 ELSE 0 END) AS committed,
        sum(CASE WHEN l.is_clean THEN 0 ELSE 1 END) AS unclean,
        max(l.newest_ms) AS newest_ms, min(l.log_dir) AS log_dir,
        min(coalesce(l.file, l.directory)) AS file, min(l.position) AS position
    FROM client_rows AS c
    LEFT JOIN located AS l ON l.source = c.source AND l.line = c.line AND l.topic = c.topic
        AND l.partition = c.partition AND l.first_offset = c.first_offset
    WHERE {condition}
    GROUP BY c.source, c.line, c.client, c.time_ms, c.topic, c.partition, c.first_offset, c.acks,
        c.outcome
),
evaluated AS (
    SELECT s.*, CASE WHEN same > 0 THEN 1 ELSE 0 END AS is_there,
        CASE
        WHEN replicas = 0 THEN 'no replica of the partition is among these directories'
        WHEN removed > 0 THEN
            'below the start of a log: retention, DeleteRecords or tiered storage removed it'
        WHEN others = 0 AND beyond < replicas AND c.is_cleaned = 1 THEN
            'the topic is compacted, which removes records'
        WHEN acks = 1 THEN
            'not there, but it was acknowledged with acks=1, which a change of leaders may lose'
        WHEN committed > 0 THEN CAST(NULL AS STRING)
        WHEN unclean > 0 THEN 'the logs end or differ there, and a broker was not stopped cleanly'
        WHEN g.replica_count IS NULL THEN
            'the logs end or differ there, and no metadata log says which replicas are missing'
        WHEN g.replica_count > replicas THEN
            'the logs end or differ there, and other replicas are not among these directories'
        WHEN beyond = replicas AND time_ms IS NULL THEN
            'the logs end before it, and the client recorded no time to compare the copies with'
        WHEN beyond = replicas AND time_ms > newest_ms THEN
            'the directories were last written before it'
        END AS reason
    FROM summed AS s
    LEFT JOIN registered AS g ON g.topic = s.topic AND g.partition = s.partition
    LEFT JOIN compacted AS c ON c.topic = s.topic AND c.partition = s.partition
)"""


def _lost(rows: str, condition: str, verb: str) -> str:
    return f"""{_looked_up(rows, condition)}
SELECT {_PARTITION} AS subject,
    'offset ' || CAST(first_offset AS STRING) || ' was {verb} (' || {_SAID} || '), and ' ||
    CASE WHEN others > 0 THEN 'another batch lies there'
        WHEN beyond = replicas THEN 'all logs end before it'
        ELSE 'no batch covers it' END AS message,
    time_ms AS since_ms, log_dir, file, coalesce(position, -1) AS position,
    first_offset AS at_offset, {_NO_PLACE}
FROM evaluated WHERE is_there = 0 AND reason IS NULL"""


def _lost_undecided(rows: str, condition: str) -> str:
    return f"""{_looked_up(rows, condition)}
SELECT {_PARTITION} AS subject,
    CAST(count(*) AS STRING) || ' offsets of clients, from ' ||
    CAST(min(first_offset) AS STRING) || ' to ' || CAST(max(first_offset) AS STRING) || ': ' ||
    reason AS message,
    min(time_ms) AS since_ms, min(log_dir) AS log_dir, min(file) AS file,
    CAST(-1 AS BIGINT) AS position, min(first_offset) AS at_offset, {_NO_PLACE}
FROM evaluated WHERE is_there = 0 AND reason IS NOT NULL
GROUP BY topic, partition, reason"""


_TABLES_OF_LOGS = ("batches", "replicas", "log_dirs", "metadata_partitions", "metadata_topics")
_NOT_ABORTED = "coalesce(c.outcome, '') <> 'aborted'"

ACKNOWLEDGED_AND_LOST = AuditRule(
    name="acknowledged-records-are-in-the-log",
    statement="A record that a broker acknowledged with acks=all is in the log at its offset.",
    source="Partition.appendRecordsToLeader, ReplicaManager (acks); KIP-98",
    severity=DefectSeverity.LOSS,
    meaning="A client was notified that its record is stored, and it is not.",
    remedy="Send the records again from their source. Look for an unclean leader election, a disk "
    "that lost writes, or a restored directory around the time of the acknowledgement.",
    reads=("client_acknowledged", *_TABLES_OF_LOGS),
    examined="SELECT count(*) FROM client_acknowledged WHERE coalesce(outcome, '') <> 'aborted'",
    defects=_lost(_ACKNOWLEDGED, _NOT_ABORTED, "acknowledged"),
    undecided=_lost_undecided(_ACKNOWLEDGED, _NOT_ABORTED),
)

READ_AND_LOST = AuditRule(
    name="records-that-were-read-are-in-the-log",
    statement="A record that a consumer received is in the log at its offset.",
    source="A fetch of a consumer ends at the high watermark: Partition.readRecords",
    severity=DefectSeverity.LOSS,
    meaning="Consumers have processed a record that the log no longer has; later consumers see "
    "another history.",
    remedy="Compare what the application derived from the records. Look for an unclean leader "
    "election or a restored directory after the time of the read.",
    reads=("client_reads", *_TABLES_OF_LOGS),
    examined="SELECT count(*) FROM client_reads",
    defects=_lost(_READ, "1 = 1", "read"),
    undecided=_lost_undecided(_READ, "1 = 1"),
)

_OTHER_MARKER = f"""
WITH {_located(_ACKNOWLEDGED)}
SELECT {_PARTITION} || ', producer ' || CAST(producer_id AS STRING) AS subject,
    'offset ' || CAST(first_offset AS STRING) || ' is in a transaction that was ' || outcome ||
    ' for its client (' || {_SAID} || '), and the marker behind it says ' || next_marker AS message,
    time_ms AS since_ms, log_dir, file, position, first_offset AS at_offset,
    log_dir AS log_dir2, marker_file AS file2, marker_position AS position2,
    marker_offset AS at_offset2
FROM located
WHERE is_same = 1 AND is_transactional AND outcome IS NOT NULL AND next_marker IS NOT NULL
    AND coalesce(cleaned_until, 0) <= first_offset
    AND ((outcome = 'committed' AND next_marker = 'ABORT')
        OR (outcome = 'aborted' AND next_marker = 'COMMIT'))"""

OUTCOME = AuditRule(
    name="outcomes-match-their-markers",
    statement="The marker behind a transaction's records says what the client was notified of.",
    source="KIP-98: EndTxn, WriteTxnMarkers",
    severity=DefectSeverity.LOSS,
    meaning="A transaction that its client believes committed is invisible to read_committed "
    "consumers, or one that it believes aborted is visible.",
    remedy="Do not rely on the transaction's outcome downstream: send the records of a committed "
    "transaction again, and compensate for those of an aborted one. Compare the record in "
    "__transaction_state with the markers.",
    reads=("client_acknowledged", "batches", "replicas", "log_dirs"),
    examined="SELECT count(*) FROM client_acknowledged WHERE outcome IS NOT NULL",
    defects=_OTHER_MARKER,
    undecided=f"""
WITH {_located(_ACKNOWLEDGED)}
SELECT {_PARTITION} AS subject,
    CAST(count(*) AS STRING) || ' acknowledged offsets, from ' ||
    CAST(min(first_offset) AS STRING) || ': ' || reason AS message,
    min(time_ms) AS since_ms, log_dir, directory AS file, CAST(-1 AS BIGINT) AS position,
    min(first_offset) AS at_offset, {_NO_PLACE}
FROM (
    SELECT located.*, CASE WHEN coalesce(cleaned_until, 0) > first_offset
        THEN 'compaction may have removed their marker'
        ELSE 'no marker follows in this replica' END AS reason
    FROM located
    WHERE is_same = 1 AND is_transactional AND outcome IS NOT NULL
        AND (next_marker IS NULL OR coalesce(cleaned_until, 0) > first_offset)
) AS open_ends
GROUP BY topic, partition, log_dir, directory, reason""",
)

READ_ABORTED = AuditRule(
    name="read-committed-reads-are-committed",
    statement="A record that a read_committed consumer received is not in an aborted transaction.",
    source="KIP-98: last stable offset, CompletedFetch; KIP-890",
    severity=DefectSeverity.WRONG,
    meaning="A consumer has processed a record of a transaction that was aborted.",
    remedy="Compensate for the records in what the application derived from them. Look for a "
    "marker that was written late, or for a transaction index that was lost.",
    reads=("client_reads", "batches", "replicas", "log_dirs"),
    examined="SELECT count(*) FROM client_reads WHERE isolation = 'read_committed'",
    defects=f"""
WITH {_located(_READ)}
SELECT {_PARTITION} || ', producer ' || CAST(producer_id AS STRING) AS subject,
    'offset ' || CAST(first_offset AS STRING) || ' was read with read_committed (' || {_SAID} ||
    '), and the marker behind it says ABORT' AS message,
    time_ms AS since_ms, log_dir, file, position, first_offset AS at_offset,
    log_dir AS log_dir2, marker_file AS file2, marker_position AS position2,
    marker_offset AS at_offset2
FROM located
WHERE outcome = 'read_committed' AND is_same = 1 AND is_transactional AND next_marker = 'ABORT'
    AND coalesce(cleaned_until, 0) <= first_offset""",
    undecided=f"""
WITH {_located(_READ)}
SELECT {_PARTITION} AS subject,
    CAST(count(*) AS STRING) || ' offsets that were read, from ' ||
    CAST(min(first_offset) AS STRING) || ': no marker follows in this replica' AS message,
    min(time_ms) AS since_ms, log_dir, directory AS file, CAST(-1 AS BIGINT) AS position,
    min(first_offset) AS at_offset, {_NO_PLACE}
FROM located
WHERE outcome = 'read_committed' AND is_same = 1 AND is_transactional AND next_marker IS NULL
GROUP BY topic, partition, log_dir, directory""",
)

DOUBLED = AuditRule(
    name="acknowledged-sequences-have-one-offset",
    statement="A sequence of a producer epoch is acknowledged with one offset, and lies once in "
    "the log.",
    source="KIP-98: ProducerStateManager, duplicate detection",
    severity=DefectSeverity.WRONG,
    meaning="A retry of a batch was appended a second time: consumers see its records twice.",
    remedy="Remove the copies downstream, by producer id, epoch and sequence. Look for a producer "
    "snapshot that was lost or put back before the retry.",
    reads=("client_acknowledged", "batches"),
    examined="SELECT count(*) FROM client_acknowledged WHERE producer_id >= 0 AND sequence >= 0",
    defects=f"""
SELECT {_PARTITION} || ', producer ' || CAST(producer_id AS STRING) AS subject,
    'sequence ' || CAST(sequence AS STRING) || ' of epoch ' || CAST(producer_epoch AS STRING) ||
    ' was acknowledged with offsets ' || CAST(first_place AS STRING) || ' and ' ||
    CAST(last_place AS STRING) AS message,
    since_ms, {_NO_PLACES}
FROM (
    SELECT topic, partition, producer_id, producer_epoch, sequence,
        min(acknowledged_offset) AS first_place, max(acknowledged_offset) AS last_place,
        max(time_ms) AS since_ms
    FROM client_acknowledged
    WHERE producer_id >= 0 AND sequence >= 0
    GROUP BY topic, partition, producer_id, producer_epoch, sequence
) AS each
WHERE first_place < last_place AND last_place - first_place < 2147483648
UNION ALL
SELECT {_PARTITION} || ', producer ' || CAST(producer_id AS STRING) AS subject,
    'sequence ' || CAST(sequence AS STRING) || ' of epoch ' || CAST(producer_epoch AS STRING) ||
    ' was acknowledged with offset ' || CAST(acknowledged_offset AS STRING) ||
    ', and also lies at offset ' || CAST(base_offset AS STRING) AS message,
    time_ms AS since_ms, log_dir, file, position, base_offset AS at_offset, {_NO_PLACE}
FROM (
    SELECT c.topic, c.partition, c.producer_id, c.producer_epoch, c.sequence,
        c.acknowledged_offset, c.time_ms, b.log_dir, b.file, b.position, b.base_offset
    FROM client_acknowledged AS c
    JOIN batches AS b ON b.topic = c.topic AND b.partition = c.partition
        AND b.producer_id = c.producer_id AND b.producer_epoch = c.producer_epoch
        AND b.base_sequence = c.sequence AND b.base_offset <> c.acknowledged_offset
    WHERE c.producer_id >= 0 AND c.sequence >= 0 AND NOT b.is_control
        AND abs(b.base_offset - c.acknowledged_offset) < 2147483648
) AS copies""",
)

ORDER = AuditRule(
    name="acknowledged-records-are-in-order",
    statement="Records of a producer epoch, or of a sender, have offsets in the order of sending.",
    source="KIP-98: sequences; max.in.flight.requests.per.connection",
    severity=DefectSeverity.WRONG,
    meaning="Consumers see records of one sender in another order than they were sent.",
    remedy="Order them downstream by sequence or number. Without idempotence, check that the "
    "producer had one request in flight.",
    reads=("client_acknowledged",),
    examined="SELECT count(*) FROM client_acknowledged WHERE (producer_id >= 0 AND sequence >= 0) "
    "OR (sender IS NOT NULL AND number IS NOT NULL)",
    defects=f"""
SELECT {_PARTITION} || ', producer ' || CAST(producer_id AS STRING) AS subject,
    'sequence ' || CAST(sequence AS STRING) || ' of epoch ' || CAST(producer_epoch AS STRING) ||
    ' has offset ' || CAST(acknowledged_offset AS STRING) || ', and sequence ' ||
    CAST(sequence_before AS STRING) || ' has offset ' || CAST(offset_before AS STRING) AS message,
    time_ms AS since_ms, {_NO_PLACES}
FROM (
    SELECT client_acknowledged.*, lag(acknowledged_offset) OVER (
            PARTITION BY topic, partition, producer_id, producer_epoch
            ORDER BY sequence, acknowledged_offset
        ) AS offset_before, lag(sequence) OVER (
            PARTITION BY topic, partition, producer_id, producer_epoch
            ORDER BY sequence, acknowledged_offset
        ) AS sequence_before
    FROM client_acknowledged WHERE producer_id >= 0 AND sequence >= 0
) AS sequences
WHERE acknowledged_offset < offset_before AND sequence - sequence_before < 1000000000
UNION ALL
SELECT {_PARTITION} || ', sender ' || sender AS subject,
    'number ' || CAST(number AS STRING) || ' has offset ' || CAST(acknowledged_offset AS STRING) ||
    ', and number ' || CAST(number_before AS STRING) || ' has offset ' ||
    CAST(offset_before AS STRING) AS message,
    time_ms AS since_ms, {_NO_PLACES}
FROM (
    SELECT client_acknowledged.*, lag(acknowledged_offset) OVER (
            PARTITION BY topic, partition, source, sender ORDER BY number, acknowledged_offset
        ) AS offset_before, lag(number) OVER (
            PARTITION BY topic, partition, source, sender ORDER BY number, acknowledged_offset
        ) AS number_before
    FROM client_acknowledged WHERE sender IS NOT NULL AND number IS NOT NULL
) AS numbers
WHERE acknowledged_offset < offset_before AND number > number_before""",
)

VALUES = AuditRule(
    name="acknowledged-values-are-in-the-log",
    statement="The record at an acknowledged offset has the key and value that the client sent.",
    source="ProduceResponse: base offset of the batch",
    severity=DefectSeverity.LOSS,
    meaning="Another record lies where the acknowledged one should be.",
    remedy="Send the acknowledged record again. Look for an unclean leader election or a restored "
    "directory.",
    reads=("client_acknowledged", "records"),
    needs_records=True,
    examined="SELECT count(*) FROM client_acknowledged WHERE value_md5 IS NOT NULL OR "
    "key_md5 IS NOT NULL",
    defects=f"""
SELECT {_PARTITION} AS subject,
    'offset ' || CAST(acknowledged_offset AS STRING) || ' was acknowledged (' || {_SAID} ||
    '), and the record there has another ' || part AS message,
    time_ms AS since_ms, log_dir, file, position, acknowledged_offset AS at_offset, {_NO_PLACE}
FROM (
    SELECT c.topic, c.partition, c.acknowledged_offset, c.source, c.line, c.client, c.time_ms,
        r.log_dir, r.file, r.position, CASE
            WHEN c.value_md5 <> coalesce(md5(r.value), '') THEN 'value' ELSE 'key' END AS part
    FROM client_acknowledged AS c
    JOIN records AS r ON r.topic = c.topic AND r.partition = c.partition
        AND r.record_offset = c.acknowledged_offset
    WHERE c.value_md5 <> coalesce(md5(r.value), '') OR c.key_md5 <> coalesce(md5(r.key), '')
) AS others""",
)

UNIQUE = AuditRule(
    name="unique-values-are-there-once",
    statement="A value that its application sends only once is in at most one record that is not "
    "aborted.",
    source="KIP-98: exactly-once delivery per partition",
    severity=DefectSeverity.WRONG,
    meaning="A record was stored twice, for example by a retry after the producer restarted.",
    remedy="Remove the copies downstream. Check that the application retries with idempotence, or "
    "in transactions.",
    reads=("client_acknowledged", "records", "batches"),
    needs_records=True,
    examined="SELECT count(DISTINCT value_md5) FROM client_acknowledged WHERE is_unique AND "
    "value_md5 IS NOT NULL",
    defects=f"""
WITH sent AS (
    SELECT topic, value_md5, max(time_ms) AS since_ms FROM client_acknowledged
    WHERE is_unique AND value_md5 IS NOT NULL GROUP BY topic, value_md5
),
marked AS (
    SELECT log_dir, topic, partition, file, position, base_offset, is_control,
        CASE WHEN is_transactional THEN min(CASE WHEN is_control AND control_type IN
            ('COMMIT', 'ABORT') THEN base_offset END) OVER (
                PARTITION BY log_dir, topic, partition, producer_id ORDER BY base_offset
                ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
            ) END AS marker_offset
    FROM batches WHERE topic IN (SELECT topic FROM sent)
),
aborted AS (
    SELECT b.log_dir, b.file, b.position FROM marked AS b
    JOIN batches AS m ON m.log_dir = b.log_dir AND m.topic = b.topic
        AND m.partition = b.partition AND m.base_offset = b.marker_offset
    WHERE NOT b.is_control AND m.control_type = 'ABORT'
),
copies AS (
    SELECT r.log_dir, r.topic, r.partition, r.file, r.position, r.record_offset, s.value_md5,
        s.since_ms
    FROM records AS r
    JOIN sent AS s ON s.topic = r.topic AND s.value_md5 = md5(r.value)
    LEFT JOIN aborted AS a
        ON a.log_dir = r.log_dir AND a.file = r.file AND a.position = r.position
    WHERE a.log_dir IS NULL AND NOT coalesce(r.is_control, false)
),
numbered AS (
    SELECT copies.*, count(*) OVER (PARTITION BY log_dir, topic, value_md5) AS in_one,
        row_number() OVER (
            PARTITION BY topic, value_md5 ORDER BY log_dir, partition, record_offset
        ) AS place
    FROM copies
)
SELECT {_PARTITION} AS subject,
    'the value with MD5 ' || value_md5 || ' was sent once, and is in ' ||
    CAST(in_one AS STRING) || ' records of one log directory' AS message,
    since_ms, log_dir, file, position, record_offset AS at_offset, {_NO_PLACE}
FROM numbered WHERE in_one > 1 AND place = 1""",
)

_COMMITS: Final = """
WITH commits AS (
    SELECT source, line, client, time_ms, group_id, group_hash, topic, partition, committed_offset
    FROM client_commits
    WHERE transactional_id IS NULL OR coalesce(outcome, '') = 'committed'
),
offset_topic AS (
    SELECT max(p.partition_id) + 1 AS partitions
    FROM metadata_partitions AS p
    JOIN metadata_topics AS t ON t.topic_id = p.topic_id
    WHERE t.topic_name = '__consumer_offsets'
),
homes AS (
    SELECT DISTINCT c.group_id, c.group_hash % o.partitions AS home
    FROM commits AS c CROSS JOIN offset_topic AS o WHERE o.partitions IS NOT NULL
),
logs AS (
    SELECT r.partition, count(*) AS replicas, min(r.log_dir) AS log_dir,
        min(r.directory) AS directory,
        max(CASE WHEN r.cleaned_until IS NOT NULL OR coalesce(r.first_segment_offset, 0) > 0
            THEN 1 ELSE 0 END) AS is_cleaned,
        max(CASE WHEN d.is_clean THEN 0 ELSE 1 END) AS is_unclean, max(d.newest_ms) AS newest_ms,
        max(r.end_offset) AS end_offset
    FROM replicas AS r JOIN log_dirs AS d ON d.log_dir = r.log_dir
    WHERE r.topic = '__consumer_offsets' AND NOT coalesce(r.is_future, false)
    GROUP BY r.partition
),
registered AS (
    SELECT p.partition_id AS partition,
        max(length(p.replicas) - length(replace(p.replicas, ',', '')) + 1) AS replica_count
    FROM metadata_partitions AS p
    JOIN metadata_topics AS t ON t.topic_id = p.topic_id
    WHERE t.topic_name = '__consumer_offsets' AND p.replicas IS NOT NULL
    GROUP BY p.partition_id
),
stored AS (
    SELECT c.source, c.line, c.group_id, c.topic, c.partition, c.committed_offset,
        max(CASE WHEN g.committed_offset = c.committed_offset THEN 1 ELSE 0 END) AS is_there,
        max(CASE WHEN g.timestamp_ms >= c.time_ms THEN 1 ELSE 0 END) AS is_superseded
    FROM commits AS c
    JOIN group_offsets AS g ON g.group_id = c.group_id AND g.of_topic = c.topic
        AND g.of_partition = c.partition
    GROUP BY c.source, c.line, c.group_id, c.topic, c.partition, c.committed_offset
),
evaluated AS (
    SELECT c.source, c.line, c.client, c.time_ms, c.group_id, c.topic, c.partition,
        c.committed_offset, l.log_dir, l.directory, l.end_offset,
        CASE WHEN coalesce(s.is_there, 0) = 1
            OR (coalesce(s.is_superseded, 0) = 1 AND l.is_cleaned = 1)
            THEN 1 ELSE 0 END AS is_there,
        CASE WHEN h.home IS NULL THEN
            'no metadata log says in which partition of __consumer_offsets it belongs'
        WHEN l.partition IS NULL THEN
            'its partition of __consumer_offsets is not among these directories'
        WHEN l.is_cleaned = 1 THEN 'compaction of __consumer_offsets may have removed it'
        WHEN l.is_unclean = 1 THEN 'a broker was not stopped cleanly'
        WHEN l.replicas < n.replica_count THEN
            'other replicas of its partition of __consumer_offsets are not among these directories'
        WHEN c.time_ms IS NULL THEN 'the client recorded no time to compare the copies with'
        WHEN c.time_ms > l.newest_ms THEN 'the directories were last written before it'
        END AS reason
    FROM commits AS c
    LEFT JOIN homes AS h ON h.group_id = c.group_id
    LEFT JOIN logs AS l ON l.partition = h.home
    LEFT JOIN registered AS n ON n.partition = h.home
    LEFT JOIN stored AS s ON s.source = c.source AND s.line = c.line AND s.group_id = c.group_id
        AND s.topic = c.topic AND s.partition = c.partition
        AND s.committed_offset = c.committed_offset
)
"""

COMMITTED_OFFSETS = AuditRule(
    name="acknowledged-group-offsets-are-stored",
    statement="A group offset whose commit was acknowledged is in __consumer_offsets.",
    source="GroupCoordinator, OffsetMetadataManager.commitOffset; KIP-98 for transactions",
    severity=DefectSeverity.LOSS,
    meaning="After its next start the group begins at an older offset, and processes records "
    "twice.",
    remedy="Set the group's offset with kafka-consumer-groups.sh --reset-offsets before it starts "
    "again.",
    reads=(
        "client_commits",
        "group_offsets",
        "replicas",
        "log_dirs",
        "metadata_partitions",
        "metadata_topics",
    ),
    examined="SELECT count(*) FROM client_commits WHERE transactional_id IS NULL OR "
    "coalesce(outcome, '') = 'committed'",
    defects=f"""{_COMMITS}
SELECT 'group ' || group_id AS subject,
    'the commit of offset ' || CAST(committed_offset AS STRING) || ' of ' || {_PARTITION} ||
    ' was acknowledged (' || {_SAID} || '), and no record has it' AS message,
    time_ms AS since_ms, log_dir, directory AS file, CAST(-1 AS BIGINT) AS position,
    end_offset AS at_offset, {_NO_PLACE}
FROM evaluated WHERE is_there = 0 AND reason IS NULL""",
    undecided=f"""{_COMMITS}
SELECT 'group ' || group_id AS subject,
    CAST(count(*) AS STRING) || ' acknowledged commits for ' || {_PARTITION} || ': ' || reason
        AS message,
    min(time_ms) AS since_ms, min(log_dir) AS log_dir, min(directory) AS file,
    CAST(-1 AS BIGINT) AS position, CAST(-1 AS BIGINT) AS at_offset, {_NO_PLACE}
FROM evaluated WHERE is_there = 0 AND reason IS NOT NULL
GROUP BY group_id, topic, partition, reason""",
)

RULES = (
    ACKNOWLEDGED_AND_LOST,
    READ_AND_LOST,
    OUTCOME,
    READ_ABORTED,
    DOUBLED,
    ORDER,
    VALUES,
    UNIQUE,
    COMMITTED_OFFSETS,
)
