"""The delivery state of share groups in __share_group_state: epochs and start offsets that do not
go back, batches inside the log, deliveries that are not forgotten.

A snapshot supersedes what is before it; updates repeat its epoch. When an operator sets the start
offset of a group, or the state is deleted, a new state epoch or a tombstone begins a new history.

Source: KIP-932; ShareCoordinatorShard, PersisterStateBatchCombiner, SharePartitionKey.
"""

from typing import Final

from kraftsim.audit.checks.coordinator_states import keys_in_their_partition
from kraftsim.audit.rule import AuditRule, DefectSeverity
from kraftsim.audit.shared_sql import HELD, METADATA, best_logs, finding

TOPIC: Final = "__share_group_state"
BATCHES_MAX: Final = 4096
"""Of one record that are examined."""
_KEY: Final = "log_dir, directory, group_id, topic_id, of_partition"

_HISTORY: Final = f"""
    WITH {METADATA}, {HELD}, {best_logs("share_logs", f"r.topic = '{TOPIC}'")}, eras AS (
        SELECT s.*, sum(CASE WHEN s.is_tombstone THEN 1 ELSE 0 END) OVER (
            PARTITION BY s.log_dir, s.directory, s.group_id, s.topic_id, s.of_partition
            ORDER BY s.record_offset ROWS UNBOUNDED PRECEDING) AS era
        FROM share_states AS s
        JOIN share_logs AS l ON l.log_dir = s.log_dir AND l.directory = s.directory
    ), staged AS (
        SELECT e.*, coalesce(max(state_epoch) OVER (PARTITION BY {_KEY}, era
            ORDER BY record_offset ROWS UNBOUNDED PRECEDING), -1) AS stage
        FROM eras AS e WHERE NOT is_tombstone
    ), history AS (
        SELECT s.*,
            lag(snapshot_epoch) OVER (PARTITION BY {_KEY}, era ORDER BY record_offset)
                AS snapshot_epoch_before,
            lag(record_offset) OVER (PARTITION BY {_KEY}, era ORDER BY record_offset)
                AS at_offset2,
            lag(file) OVER (PARTITION BY {_KEY}, era ORDER BY record_offset) AS file2,
            lag(position) OVER (PARTITION BY {_KEY}, era ORDER BY record_offset) AS position2,
            max(CASE WHEN start_offset >= 0 THEN start_offset END) OVER (
                PARTITION BY {_KEY}, era, stage ORDER BY record_offset
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS start_before,
            max(share_leader_epoch) OVER (PARTITION BY {_KEY}, era, stage ORDER BY record_offset
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS leader_epoch_before
        FROM staged AS s
    ), wrong AS (
        SELECT h.*, CASE WHEN snapshot_epoch < snapshot_epoch_before THEN 'snapshot'
            WHEN start_offset >= 0 AND start_offset < start_before THEN 'start'
            WHEN share_leader_epoch < leader_epoch_before THEN 'leader' END AS how
        FROM history AS h
    )
"""
_SUBJECT: Final = "concat('share group ', group_id)"
_WHERE: Final = "'share group ', group_id, ', partition ', of_partition, ' of topic id ', topic_id"
_READS: Final = (
    "share_states",
    "replicas",
    "log_dirs",
    "batches",
    "metadata_records",
    "metadata_topics",
    "metadata_partitions",
)

STATES_ADVANCE = AuditRule(
    name="share-states-advance",
    statement="Snapshot epoch, leader epoch and start offset of a share-partition do not go back.",
    source="KIP-932; ShareCoordinatorShard.generateShareStateRecord",
    severity=DefectSeverity.WRONG,
    meaning="An older state of the share group came back. Records that were acknowledged are "
    "delivered again.",
    remedy="Compare the replicas of this partition of __share_group_state. Consumers must cope "
    "with records that they have processed before; `kafka-share-groups.sh --reset-offsets` sets "
    "the start offset.",
    reads=_READS,
    examined=f"{_HISTORY} SELECT count(snapshot_epoch_before) FROM history",
    defects=f"""
        {_HISTORY}
        SELECT {_SUBJECT} AS subject, concat({_WHERE}, ': at offset ', record_offset, CASE
            WHEN how = 'snapshot' THEN concat(' the snapshot epoch is ', snapshot_epoch,
                ' after ', snapshot_epoch_before)
            WHEN how = 'start' THEN concat(' the start offset is ', start_offset, ' after ',
                start_before)
            ELSE concat(' the leader epoch is ', share_leader_epoch, ' after ',
                leader_epoch_before) END) AS message,
            timestamp_ms AS since_ms, log_dir, file, position, record_offset AS at_offset,
            log_dir AS log_dir2, file2, position2, at_offset2
        FROM wrong WHERE how IS NOT NULL
    """,
)

_BATCHES: Final = f"""
    {_HISTORY}, amounts AS (
        SELECT h.*, length(h.batches) - length(replace(h.batches, '[', '')) - 1 AS amount
        FROM history AS h WHERE length(h.batches) > 2
    ), delivered AS (
        SELECT a.*, n.i AS batch_number,
            CAST(get_json_object(a.batches, concat('$[', n.i, '][0]')) AS BIGINT) AS first_offset,
            CAST(get_json_object(a.batches, concat('$[', n.i, '][1]')) AS BIGINT) AS last_offset,
            CAST(get_json_object(a.batches, concat('$[', n.i, '][2]')) AS INT) AS delivery_state,
            CAST(get_json_object(a.batches, concat('$[', n.i, '][3]')) AS INT) AS delivery_count
        FROM amounts AS a JOIN range(0, {BATCHES_MAX}) AS n(i) ON n.i < a.amount
    )
"""
_OUTSIDE: Final = f"""
    {_BATCHES}, share_ends AS (
        SELECT a.topic_id, c.partition, max(c.end_offset) AS end_offset FROM certain AS c
        JOIN assigned AS a ON a.topic = c.topic AND a.partition = c.partition
        GROUP BY a.topic_id, c.partition
    ), neighbours AS (
        SELECT d.*, lag(last_offset) OVER (PARTITION BY log_dir, directory, record_offset
            ORDER BY first_offset, batch_number) AS last_before, e.end_offset
        FROM delivered AS d
        LEFT JOIN share_ends AS e ON e.topic_id = d.topic_id AND e.partition = d.of_partition
    ), outside AS (
        SELECT n.*, CASE WHEN last_offset < first_offset THEN ' ends before it begins'
            WHEN type = 'ShareSnapshot' AND first_offset < start_offset
                THEN concat(' begins before the start offset ', start_offset)
            WHEN type = 'ShareSnapshot' AND first_offset <= last_before
                THEN ' overlaps with the batch before it'
            WHEN last_offset >= end_offset
                THEN concat(' ends after the end of the partition, ', end_offset) END AS why
        FROM neighbours AS n
    )
"""

BATCHES_INSIDE = AuditRule(
    name="share-batches-inside-log",
    statement="The batches in the state of a share-partition lie between its start offset and the "
    "end of the partition, and do not overlap in a snapshot.",
    source="KIP-932; PersisterStateBatchCombiner",
    severity=DefectSeverity.WRONG,
    meaning="Records that do not exist count as delivered, and new records at these offsets will "
    "not be delivered to the share group.",
    remedy="Look for an unclean leader election of the partition. Set the start offset of the "
    "share group with `kafka-share-groups.sh --reset-offsets`.",
    reads=_READS,
    examined=f"{_OUTSIDE} SELECT count(*) FROM outside",
    defects=f"""
        {_OUTSIDE}
        SELECT {
        finding(
            _SUBJECT,
            f"concat({_WHERE}, ': the batch of offsets ', first_offset, ' to ', last_offset, why)",
            since="timestamp_ms",
        )
    } FROM outside WHERE why IS NOT NULL
    """,
)

_FORGOTTEN: Final = f"""
    {_BATCHES}, repeated AS (
        SELECT d.*, lag(delivery_count) OVER (PARTITION BY {_KEY}, era, stage, first_offset
                ORDER BY record_offset) AS count_before,
            lag(delivery_state) OVER (PARTITION BY {_KEY}, era, stage, first_offset
                ORDER BY record_offset) AS delivery_state_before
        FROM delivered AS d
    )
"""

DELIVERIES_KEPT = AuditRule(
    name="share-deliveries-kept",
    statement="The delivery count of a batch does not fall, and what was acknowledged or archived "
    "does not become available again.",
    source="KIP-932; SharePartition.RecordState",
    severity=DefectSeverity.WRONG,
    meaning="A share group delivers records again that were acknowledged, or more often than "
    "group.share.delivery.count.limit allows.",
    remedy="Compare the replicas of this partition of __share_group_state, and the epochs of its "
    "leaders.",
    reads=_READS,
    examined=f"{_FORGOTTEN} SELECT count(count_before) FROM repeated",
    defects=f"""
        {_FORGOTTEN}
        SELECT {
        finding(
            _SUBJECT,
            f"concat({_WHERE}, ': the batch at offset ', first_offset, ' has state ', "
            "delivery_state, ' and delivery count ', delivery_count, ' after state ', "
            "delivery_state_before, ' and count ', count_before)",
            since="timestamp_ms",
        )
    }
        FROM repeated
        WHERE delivery_count < count_before OR (delivery_state_before IN (2, 4)
            AND delivery_state <> delivery_state_before)
    """,
)

_KEYS_EXAMINED, _KEYS_DEFECTS, _KEYS_UNDECIDED = keys_in_their_partition(
    TOPIC,
    "share_states",
    "concat(k.group_id, ':', k.topic_id, ':', k.of_partition)",
    "share-partition",
)

KEYS_IN_THEIR_PARTITION = AuditRule(
    name="share-partitions-in-their-partition",
    statement="The records of a share-partition are in the partition of __share_group_state that "
    "its hash chooses.",
    source="KIP-932; ShareCoordinatorService.partitionFor, SharePartitionKey.asCoordinatorKey",
    severity=DefectSeverity.WRONG,
    meaning="The share coordinator does not see these records, and delivers from another start "
    "offset.",
    remedy="Check whether the number of partitions of __share_group_state was changed, which is "
    "not supported, or whether a directory was renamed.",
    reads=_READS,
    examined=_KEYS_EXAMINED,
    defects=_KEYS_DEFECTS,
    undecided=_KEYS_UNDECIDED,
)

RULES = (STATES_ADVANCE, BATCHES_INSIDE, DELIVERIES_KEPT, KEYS_IN_THEIR_PARTITION)
