"""The group offsets in __consumer_offsets: where they are, whether they are decided, and whether
they point into the log that they are about.

The newest record of a group and partition counts, by its offset. One of a transaction counts if the
first marker of its producer after it is COMMIT; until then a group's members wait for it.
Compaction keeps a marker as long as it keeps a record of its transaction.

Source: KIP-98, KIP-320, KIP-447, KIP-664; GroupMetadataManager, OffsetMetadataManager.
"""

from typing import Final

from kraftsim.audit.checks.coordinator_states import keys_in_their_partition
from kraftsim.audit.rule import AuditRule, DefectSeverity
from kraftsim.audit.shared_sql import HELD, METADATA, best_logs, finding

TOPIC: Final = "__consumer_offsets"
OPEN_MS: Final = 15 * 60_000
"""transaction.max.timeout.ms: a transaction that is open for longer hangs (KIP-664)."""

_KEYS: Final = keys_in_their_partition(
    TOPIC,
    "(SELECT log_dir, file, position, partition, record_offset, timestamp_ms, group_id "
    "FROM group_offsets UNION ALL SELECT log_dir, file, position, partition, record_offset, "
    "timestamp_ms, group_id FROM group_records WHERE group_id IS NOT NULL)",
    "k.group_id",
    "group",
)

GROUPS_IN_THEIR_PARTITION = AuditRule(
    name="groups-in-their-partition",
    statement="The records of a group are in the partition of __consumer_offsets that its hash "
    "chooses.",
    source="GroupCoordinatorService.partitionFor",
    severity=DefectSeverity.WRONG,
    meaning="The coordinator of the group does not see these offsets: its consumers start where "
    "auto.offset.reset says, and read records twice or skip them.",
    remedy="Check whether the number of partitions of __consumer_offsets was changed, which is not "
    "supported, or whether a directory was renamed. Set the offsets with "
    "`kafka-consumer-groups.sh --reset-offsets`.",
    reads=(
        "group_offsets",
        "group_records",
        "replicas",
        "metadata_records",
        "metadata_topics",
        "metadata_partitions",
    ),
    examined=_KEYS[0],
    defects=_KEYS[1],
    undecided=_KEYS[2],
)

_FOLD: Final = f"""
    WITH {METADATA}, {HELD}, {best_logs("group_logs", f"r.topic = '{TOPIC}'")}, commits AS (
        SELECT g.*, l.is_clean, l.newest_ms FROM group_offsets AS g
        JOIN group_logs AS l ON l.log_dir = g.log_dir AND l.directory = g.directory
    ), group_markers AS (
        SELECT b.log_dir, b.directory, b.base_offset, b.producer_id, b.control_type, b.max_ms
        FROM batches AS b
        JOIN group_logs AS l ON l.log_dir = b.log_dir AND l.directory = b.directory
        WHERE b.topic = '{TOPIC}' AND b.is_control AND b.control_type IN ('COMMIT', 'ABORT')
    ), ends AS (
        SELECT c.log_dir, c.directory, c.record_offset,
            min_by(m.control_type, m.base_offset) AS result
        FROM (SELECT DISTINCT log_dir, directory, record_offset, producer_id FROM commits
            WHERE is_transactional) AS c
        JOIN group_markers AS m ON m.log_dir = c.log_dir AND m.directory = c.directory
            AND m.producer_id = c.producer_id AND m.base_offset > c.record_offset
        GROUP BY c.log_dir, c.directory, c.record_offset
    ), decided AS (
        SELECT c.*, CASE WHEN NOT c.is_transactional THEN 'COMMIT'
            ELSE coalesce(e.result, 'PENDING') END AS result
        FROM commits AS c LEFT JOIN ends AS e ON e.log_dir = c.log_dir
            AND e.directory = c.directory AND e.record_offset = c.record_offset
    ), current_offsets AS (
        SELECT * FROM (
            SELECT d.*, row_number() OVER (PARTITION BY log_dir, directory, group_id, of_topic,
                of_partition ORDER BY record_offset DESC) AS newest
            FROM decided AS d WHERE result = 'COMMIT'
        ) AS ranked WHERE newest = 1 AND NOT is_tombstone
    )
"""
_READS: Final = (
    "group_offsets",
    "batches",
    "replicas",
    "log_dirs",
    "metadata_records",
    "metadata_topics",
    "metadata_partitions",
)
_SUBJECT: Final = "concat('group ', group_id)"


def _placed(query: str, message: str, condition: str, *, since: str = "commit_ms") -> str:
    found = finding(_SUBJECT, f"concat({message})", since=since)
    return f"{query} SELECT {found} FROM compared WHERE {condition}"


_PENDING: Final = f"""
    {_FOLD}, producers AS (
        SELECT producer_id, producer_epoch, max(CASE WHEN status NOT IN ('PrepareCommit',
                'PrepareAbort') THEN last_update_ms END) AS rest_ms,
            max(CASE WHEN status IN ('CompleteCommit', 'CompleteAbort') THEN last_update_ms END)
                AS completed_ms
        FROM transaction_states WHERE NOT is_tombstone GROUP BY producer_id, producer_epoch
    ), settled AS (
        SELECT d.log_dir, d.directory, d.record_offset, max(p.rest_ms) AS settled_ms
        FROM decided AS d JOIN producers AS p ON p.producer_id = d.producer_id
        WHERE d.result = 'PENDING' AND (
            (p.producer_epoch > d.producer_epoch AND p.rest_ms IS NOT NULL)
            OR (p.producer_epoch = d.producer_epoch AND p.completed_ms > d.timestamp_ms + 60000))
        GROUP BY d.log_dir, d.directory, d.record_offset
    ), newest_in_log AS (
        SELECT log_dir, directory, max(timestamp_ms) AS newest_record_ms FROM (
            SELECT log_dir, directory, timestamp_ms FROM commits
            UNION ALL SELECT log_dir, directory, max_ms FROM group_markers
        ) AS in_log GROUP BY log_dir, directory
    ), compared AS (
        SELECT d.*, s.settled_ms, n.newest_record_ms, c.partition IS NOT NULL AS is_certain,
            coalesce(s.settled_ms < n.newest_record_ms, false) AS goes_on
        FROM decided AS d
        JOIN newest_in_log AS n ON n.log_dir = d.log_dir AND n.directory = d.directory
        LEFT JOIN settled AS s ON s.log_dir = d.log_dir AND s.directory = d.directory
            AND s.record_offset = d.record_offset
        LEFT JOIN certain AS c ON c.topic = d.topic AND c.partition = d.partition
        WHERE d.result = 'PENDING'
    )
"""
_PENDING_MESSAGE: Final = (
    "'group ', group_id, ' has a pending offset ', committed_offset, ' of ', of_topic, '-', "
    "of_partition, ' in a transaction of producer id ', producer_id, ', epoch ', producer_epoch, "
    "', without a marker in ', topic, '-', partition"
)
_PENDING_IS_DEFECT: Final = (
    "((settled_ms IS NOT NULL AND (is_certain OR goes_on)) "
    f"OR newest_record_ms > timestamp_ms + {OPEN_MS})"
)

OFFSETS_DECIDED = AuditRule(
    name="transactional-offsets-decided",
    statement="A group offset that was committed in a transaction is followed by the transaction's "
    "marker in the same partition of __consumer_offsets.",
    source="KIP-98, KIP-447, KIP-664",
    severity=DefectSeverity.DEGRADED,
    meaning="Members of the group that join or restart wait for a stable offset "
    "(UNSTABLE_OFFSET_COMMIT) and do not read.",
    remedy="Find the transaction with `kafka-transactions.sh find-hanging` and end it with "
    "`kafka-transactions.sh abort`. If the coordinator had completed it, set the offset with "
    "`kafka-consumer-groups.sh --reset-offsets` afterwards.",
    reads=(*_READS, "transaction_states"),
    examined=f"{_FOLD} SELECT count(*) FROM decided WHERE is_transactional",
    defects=_placed(
        _PENDING,
        _PENDING_MESSAGE + ", CASE WHEN settled_ms IS NOT NULL THEN ', and the coordinator had "
        "completed it' ELSE ', for longer than any transaction may be open' END",
        _PENDING_IS_DEFECT,
        since="timestamp_ms",
    ),
    undecided=_placed(
        _PENDING,
        _PENDING_MESSAGE + ", '; it was open when the copy was taken, or the marker came later'",
        f"NOT {_PENDING_IS_DEFECT} AND (settled_ms IS NOT NULL "
        f"OR newest_ms > timestamp_ms + {OPEN_MS})",
        since="timestamp_ms",
    ),
)


_ENDS: Final = f"""
    {_FOLD}, partition_ends AS (
        SELECT r.topic, r.partition, max(r.end_offset) AS end_offset,
            min(coalesce(r.log_start_offset, r.first_segment_offset)) AS start_offset,
            max(r.log_dir) AS user_dir
        FROM replicas AS r WHERE NOT coalesce(r.is_future, false) GROUP BY r.topic, r.partition
    ), compared AS (
        SELECT o.*, e.end_offset, e.start_offset, k.partition IS NOT NULL AS is_certain
        FROM current_offsets AS o
        JOIN partition_ends AS e ON e.topic = o.of_topic AND e.partition = o.of_partition
        LEFT JOIN certain AS k ON k.topic = o.of_topic AND k.partition = o.of_partition
    )
"""
_OFFSET_MESSAGE: Final = (
    "'group ', group_id, ' has committed offset ', committed_offset, ' of ', of_topic, '-', "
    "of_partition, ', which "
)

OFFSETS_EXIST = AuditRule(
    name="committed-offsets-not-beyond-end",
    statement="The offset that a group committed is not beyond the end of the partition.",
    source="KIP-101, KIP-320",
    severity=DefectSeverity.LOSS,
    meaning="The group consumed records that are not there any more, or the offset was set by "
    "hand. "
    "Its consumers get OFFSET_OUT_OF_RANGE and start where auto.offset.reset says.",
    remedy="Look for an unclean leader election of the partition in the metadata log and for a "
    "replica with a longer log. Then set the offset with "
    "`kafka-consumer-groups.sh --reset-offsets`.",
    reads=_READS,
    examined=f"{_ENDS} SELECT count(*) FROM compared",
    defects=_placed(
        _ENDS,
        _OFFSET_MESSAGE + "ends at ', end_offset",
        "committed_offset > end_offset AND is_certain",
    ),
    undecided=_placed(
        _ENDS,
        _OFFSET_MESSAGE
        + "ends at ', end_offset, ' here, but not all its replicas are here or a broker was not "
        "stopped cleanly'",
        "committed_offset > end_offset AND NOT is_certain",
    ),
)

OFFSETS_RETAINED = AuditRule(
    name="committed-offsets-not-below-start",
    statement="The offset that a group committed is not below the start of the partition's log.",
    source="KIP-107; auto.offset.reset",
    severity=DefectSeverity.NOTICE,
    is_alarm=False,
    meaning="Records were deleted by retention or DeleteRecords before the group consumed them. "
    "When it continues it starts where auto.offset.reset says.",
    remedy="If the group is still used, give the topic a longer retention or the group more "
    "consumers. If not, delete it with `kafka-consumer-groups.sh --delete`.",
    reads=_READS,
    examined=f"{_ENDS} SELECT count(*) FROM compared WHERE is_certain",
    defects=_placed(
        _ENDS,
        _OFFSET_MESSAGE + "begins at ', start_offset",
        "committed_offset < start_offset AND is_certain",
    ),
)


_EPOCHS: Final = f"""
    {_FOLD}, log_epochs AS (
        SELECT topic, partition, max(leader_epoch) AS leader_epoch FROM (
            SELECT topic, partition, leader_epoch FROM batches
            UNION ALL SELECT topic, partition, leader_epoch FROM leader_epochs
        ) AS epochs GROUP BY topic, partition
    ), metadata_epochs AS (
        SELECT a.topic, a.partition, max(m.registered_leader_epoch)
            + sum(CASE WHEN m.is_change THEN 1 ELSE 0 END) AS leader_epoch
        FROM assigned AS a JOIN metadata_best AS b ON b.log_dir = a.log_dir
        JOIN metadata_partitions AS m ON m.log_dir = b.log_dir AND m.topic_id = a.topic_id
            AND m.partition_id = a.partition
        GROUP BY a.topic, a.partition
    ), compared AS (
        SELECT o.*, greatest(coalesce(l.leader_epoch, -1), e.leader_epoch) AS newest_epoch
        FROM current_offsets AS o
        JOIN certain AS k ON k.topic = o.of_topic AND k.partition = o.of_partition
        JOIN metadata_epochs AS e ON e.topic = o.of_topic AND e.partition = o.of_partition
        LEFT JOIN log_epochs AS l ON l.topic = o.of_topic AND l.partition = o.of_partition
        WHERE o.committed_leader_epoch >= 0
    )
"""

OFFSET_EPOCHS_KNOWN = AuditRule(
    name="committed-epochs-known",
    statement="The leader epoch in a group's offset is one that the partition has had.",
    source="KIP-320",
    severity=DefectSeverity.WRONG,
    meaning="The offset is about another history of the partition: the metadata log lost an "
    "election, or the offset is of another cluster. Consumers report a truncation, or wait for "
    "metadata of an epoch that never comes.",
    remedy="Compare the leader epochs of the partition on all replicas. Set the offset with "
    "`kafka-consumer-groups.sh --reset-offsets`.",
    reads=(*_READS, "leader_epochs"),
    examined=f"{_EPOCHS} SELECT count(*) FROM compared",
    defects=_placed(
        _EPOCHS,
        "'group ', group_id, ' has committed offset ', committed_offset, ' of ', of_topic, '-', "
        "of_partition, ' with leader epoch ', committed_leader_epoch, ', and the newest epoch of "
        "the partition is at most ', newest_epoch",
        "committed_leader_epoch > newest_epoch",
    ),
)

RULES = (
    GROUPS_IN_THEIR_PARTITION,
    OFFSETS_DECIDED,
    OFFSETS_EXIST,
    OFFSETS_RETAINED,
    OFFSET_EPOCHS_KNOWN,
)
