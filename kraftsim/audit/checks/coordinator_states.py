"""What __transaction_state says of each transactional id: valid states, epochs that grow, one
producer id for one transactional id, records in the partition of their key, nothing overdue.

Compaction removes the older records of a transactional id and never one between two that it keeps:
it cleans a log from its beginning. So two neighbouring records of an id are compared wherever they
are. A coordinator that could not replicate a record in time continues with the state before it, and
the record stays in the log: where that is possible nothing is a defect that it explains.

Source: KIP-98, KIP-360, KIP-890; kafka.coordinator.transaction.{TransactionMetadata,
TransactionStateManager, TransactionCoordinator}.
"""

from typing import Final

from kraftsim.audit.rule import AuditRule, DefectSeverity
from kraftsim.audit.shared_sql import METADATA, best_logs, finding, homes

TOPIC: Final = "__transaction_state"
TOMBSTONE: Final = "Tombstone"
_AT_REST: Final = ("Empty", "CompleteCommit", "CompleteAbort")
ENTERED_FROM: Final[dict[str, tuple[str, ...]]] = {
    "Empty": (*_AT_REST, TOMBSTONE),
    "Ongoing": ("Ongoing", *_AT_REST),
    "PrepareCommit": ("Ongoing", "PrepareCommit"),
    "PrepareAbort": ("Ongoing", "PrepareAbort", *_AT_REST),
    "CompleteCommit": ("PrepareCommit", "CompleteCommit"),
    "CompleteAbort": ("PrepareAbort", "CompleteAbort"),
    TOMBSTONE: (*_AT_REST, TOMBSTONE),
}
"""State -> the states whose record may be the one before. A record may be there twice, if its first
append was not answered. From rest to PrepareAbort: an abort without a transaction bumps the epoch
with transaction.version 2.
"""
LAST_GIVEN_EPOCH: Final = 32766
LARGEST_STEP: Final = 2
"""Of the epoch: a fence whose record could not be written, and an end."""
PREPARED_MS: Final = 300_000
"""So long after its decision a transaction is overdue: markers take milliseconds."""
CHECKED_MS: Final = 60_000
"""A coordinator looks for transactions that are over their timeout every 10 seconds."""


def _enters(before: str, after: str) -> str:
    cases = " OR ".join(
        f"({after} = '{state}' AND {before} IN {former})" for state, former in ENTERED_FROM.items()
    )
    return f"({cases})"


def _explained(follows: str) -> str:
    """Return whether the record before, or the two before, were given up; `follows` compares with
    the record {n} places before. A completion is retried until it is written.
    """
    one, two = follows.format(n=2), follows.format(n=3)
    return (
        "(state NOT IN ('CompleteCommit', 'CompleteAbort') "
        "AND state_1 NOT IN ('CompleteCommit', 'CompleteAbort') "
        f"AND (state_2 IS NULL OR {one} OR (state_2 NOT IN ('CompleteCommit', 'CompleteAbort') "
        f"AND (state_3 IS NULL OR {two}))))"
    )


_ORDER: Final = "OVER (PARTITION BY log_dir, directory, transactional_id ORDER BY record_offset)"
_LAGS: Final = ", ".join(
    f"lag({column}, {n}) {_ORDER} AS {name}_{n}"
    for column, name in (
        ("state", "state"),
        ("producer_id", "producer_id"),
        ("producer_epoch", "epoch"),
    )
    for n in (1, 2, 3)
)
_HISTORY: Final = f"""
    WITH {METADATA}, {best_logs("state_logs", f"r.topic = '{TOPIC}'")}, shrunk AS (
        SELECT DISTINCT a.partition FROM assigned AS a
        JOIN metadata_partitions AS m ON m.topic_id = a.topic_id AND m.partition_id = a.partition
        WHERE a.topic = '{TOPIC}' AND ((m.is_change AND m.isr IS NOT NULL) OR m.partition_epoch > 0)
    ), states AS (
        SELECT t.*, CASE WHEN t.is_tombstone THEN '{TOMBSTONE}' ELSE t.status END AS state
        FROM transaction_states AS t
        JOIN state_logs AS l ON l.log_dir = t.log_dir AND l.directory = t.directory
    ), lagged AS (
        SELECT states.*, {_LAGS}, lag(record_offset) {_ORDER} AS second_offset,
            lag(file) {_ORDER} AS file_1, lag(position) {_ORDER} AS position_1,
            lag(timestamp_ms) {_ORDER} AS timestamp_1, lag(timeout_ms) {_ORDER} AS timeout_1
        FROM states
    ), history AS (
        SELECT h.*, coalesce(a.changes, 0) > 0 AS has_moved,
            NOT (coalesce(a.replica_count, 0) = 1 OR (a.replica_count IS NOT NULL
                AND s.partition IS NULL AND h.timestamp_ms - h.timestamp_1 < h.timeout_1))
                AS can_give_up
        FROM lagged AS h
        LEFT JOIN assigned AS a ON a.topic = '{TOPIC}' AND a.partition = h.partition
        LEFT JOIN shrunk AS s ON s.partition = h.partition
    )
"""
"""The records of the best copy, each with the three of its id before it.

`can_give_up`: the record before may not have been replicated in time. `has_moved`: the partition
got other replicas, which may have copied the log while it was compacted.
"""
_SECOND: Final = (
    "log_dir AS log_dir2, file_1 AS file2, position_1 AS position2, second_offset AS at_offset2"
)


_REASON: Final = (
    ", '; the record before may not have been replicated in time, or the partition was moved'"
)


def _of_history(message: str, wrong: str, explained: str, *, is_defect: bool) -> str:
    decided = f"(has_moved OR (can_give_up AND {explained}))"
    return f"""
        {_HISTORY}
        SELECT concat('transactional id ', transactional_id) AS subject,
            concat({message}{"" if is_defect else _REASON}) AS message,
            timestamp_ms AS since_ms, log_dir, file, position, record_offset AS at_offset, {_SECOND}
        FROM history
        WHERE state_1 IS NOT NULL AND {wrong} AND {"NOT " if is_defect else ""}{decided}
    """


_WRONG_STATE: Final = f"NOT {_enters('state_1', 'state')}"
_STATE_MESSAGE: Final = (
    "transactional_id, ': ', state, ' at offset ', record_offset, ' follows ', state_1, "
    "' at offset ', second_offset, ', and no coordinator writes that'"
)
_STATE_EXPLAINED: Final = _explained(_enters("state_{n}", "state"))

STATES_VALID = AuditRule(
    name="transaction-states-valid",
    statement="Each record of a transactional id in __transaction_state may follow the one before.",
    source="KIP-98; TransactionState.validPreviousStates",
    severity=DefectSeverity.LOSS,
    meaning="A record of the transaction coordinator is missing or is of another time. A decision "
    "may have been lost: markers in partitions and the state of the id may disagree.",
    remedy="Keep copies of all replicas of this partition of __transaction_state and look for one "
    "that has the missing record. Compare the markers of the producer id in its partitions before "
    "you trust what the application committed.",
    reads=(
        "transaction_states",
        "replicas",
        "log_dirs",
        "batches",
        "metadata_records",
        "metadata_topics",
        "metadata_partitions",
    ),
    examined=f"{_HISTORY} SELECT count(state_1) FROM history",
    defects=_of_history(_STATE_MESSAGE, _WRONG_STATE, _STATE_EXPLAINED, is_defect=True),
    undecided=_of_history(_STATE_MESSAGE, _WRONG_STATE, _STATE_EXPLAINED, is_defect=False),
)


_ADVANCES: Final = (
    "((producer_id = producer_id_{n} AND producer_epoch >= epoch_{n} "
    f"AND producer_epoch <= epoch_{{n}} + {LARGEST_STEP}) "
    f"OR (producer_id <> producer_id_{{n}} AND epoch_{{n}} >= {LAST_GIVEN_EPOCH}))"
)
_WRONG_PRODUCER: Final = (
    f"state <> '{TOMBSTONE}' AND state_1 <> '{TOMBSTONE}' AND NOT {_ADVANCES.format(n=1)}"
)
_PRODUCER_MESSAGE: Final = """transactional_id, ': at offset ', record_offset,
    CASE WHEN producer_id <> producer_id_1 THEN concat(' its producer id changes from ',
        producer_id_1, ' to ', producer_id, ' although epoch ', epoch_1, ' was not the last one')
    WHEN producer_epoch < epoch_1 THEN concat(' the epoch of producer id ', producer_id,
        ' goes back from ', epoch_1, ' to ', producer_epoch)
    ELSE concat(' the epoch of producer id ', producer_id, ' goes from ', epoch_1, ' to ',
        producer_epoch, ' in one step: records between them are missing') END"""

PRODUCERS_ADVANCE = AuditRule(
    name="transactional-producers-advance",
    statement="The epoch of a transactional id's producer grows in steps of at most two, and the "
    "producer id changes only when its epochs are used up.",
    source="KIP-360, KIP-890; TransactionMetadata.{prepareIncrementProducerEpoch, "
    "prepareFenceProducerEpoch, prepareProducerIdRotation}",
    severity=DefectSeverity.WRONG,
    meaning="A producer that was fenced may be accepted again, or records of the coordinator are "
    "missing.",
    remedy="Stop the application of this transactional id, and compare all replicas of this "
    "partition of __transaction_state. Start it again only with one instance.",
    reads=STATES_VALID.reads,
    examined=f"{_HISTORY} SELECT count(state_1) FROM history WHERE state <> '{TOMBSTONE}' "
    f"AND state_1 <> '{TOMBSTONE}'",
    defects=_of_history(_PRODUCER_MESSAGE, _WRONG_PRODUCER, _explained(_ADVANCES), is_defect=True),
    undecided=_of_history(
        _PRODUCER_MESSAGE, _WRONG_PRODUCER, _explained(_ADVANCES), is_defect=False
    ),
)


ONE_ID_EACH = AuditRule(
    name="one-transactional-id-per-producer-id",
    statement="A producer id belongs to one transactional id.",
    source="KIP-98, KIP-730; ProducerIdManager.generateProducerId",
    severity=DefectSeverity.WRONG,
    meaning="Two applications share a producer id: each fences the other, sequence numbers of one "
    "look like duplicates of the other, and a marker of one can end the transaction of the other.",
    remedy="Stop both applications. Give each a new transactional id, and look in the metadata log "
    "for the block that was allocated twice.",
    reads=("transaction_states",),
    examined="SELECT count(DISTINCT producer_id) FROM transaction_states WHERE producer_id >= 0",
    defects="""
        WITH firsts AS (
            SELECT * FROM (
                SELECT t.*, row_number() OVER (PARTITION BY producer_id, transactional_id
                    ORDER BY timestamp_ms, record_offset, log_dir) AS place
                FROM transaction_states AS t WHERE producer_id >= 0
            ) AS ranked WHERE place = 1
        ), numbered AS (
            SELECT firsts.*, row_number() OVER (PARTITION BY producer_id
                ORDER BY timestamp_ms, transactional_id) AS turn FROM firsts
        )
        SELECT concat('producer id ', b.producer_id) AS subject,
            concat('producer id ', b.producer_id, ' belongs to transactional id ',
                a.transactional_id, ' and to ', b.transactional_id) AS message,
            b.timestamp_ms AS since_ms, a.log_dir, a.file, a.position, a.record_offset AS at_offset,
            b.log_dir AS log_dir2, b.file AS file2, b.position AS position2,
            b.record_offset AS at_offset2
        FROM numbered AS a JOIN numbered AS b ON b.producer_id = a.producer_id
            AND b.turn = a.turn + 1
    """,
)


def keys_in_their_partition(
    topic: str, table: str, key: str, what: str, *, condition: str = "1 = 1"
) -> tuple[str, str, str]:
    """Return `examined`, `defects` and `undecided` of a rule: the keys of a coordinator's topic are
    in the partition of their hash. `key` is an expression of a row `k` of the table.
    """
    keys = f"SELECT DISTINCT {key} AS key FROM {table} AS k WHERE {condition}"
    rows = f"""
        WITH {METADATA}, {homes(topic, keys)}, placed AS (
            SELECT * FROM (
                SELECT k.*, {key} AS key, row_number() OVER (PARTITION BY {key}, k.partition
                    ORDER BY k.record_offset, k.log_dir) AS place
                FROM {table} AS k WHERE {condition}
            ) AS ranked WHERE place = 1
        ), astray AS (
            SELECT p.*, h.home, h.is_known FROM placed AS p JOIN homes AS h ON h.key = p.key
            WHERE h.home IS NOT NULL
        )
    """
    message = (
        f"concat('{what} ', key, ' is in partition ', partition, ' of {topic}, and its coordinator "
        "reads partition ', home"
    )
    found = finding(f"concat('{what} ', key)", message + ")", since="timestamp_ms")
    unsure = finding(
        f"concat('{what} ', key)",
        message + ", ' if the topic has no more partitions than directories are there')",
        since="timestamp_ms",
    )
    return (
        f"{rows} SELECT count(*) FROM astray",
        f"{rows} SELECT {found} FROM astray WHERE home <> partition AND is_known = 1",
        f"{rows} SELECT {unsure} FROM astray WHERE home <> partition AND is_known = 0",
    )


_IDS_EXAMINED, _IDS_DEFECTS, _IDS_UNDECIDED = keys_in_their_partition(
    TOPIC, "transaction_states", "k.transactional_id", "transactional id"
)

IDS_IN_THEIR_PARTITION = AuditRule(
    name="transactional-ids-in-their-partition",
    statement="The records of a transactional id are in the partition of __transaction_state that "
    "its hash chooses.",
    source="KIP-98; TransactionStateManager.partitionFor",
    severity=DefectSeverity.WRONG,
    meaning="The coordinator of this id does not see these records: the id starts with another "
    "producer id there, and two producers can be active with it.",
    remedy="Check whether the number of partitions of __transaction_state was changed, which is "
    "not supported, or whether a directory was renamed or copied to another partition.",
    reads=(
        "transaction_states",
        "replicas",
        "metadata_records",
        "metadata_topics",
        "metadata_partitions",
    ),
    examined=_IDS_EXAMINED,
    defects=_IDS_DEFECTS,
    undecided=_IDS_UNDECIDED,
)


_OVERDUE: Final = f"""
    WITH {best_logs("state_logs", f"r.topic = '{TOPIC}'")}, states AS (
        SELECT t.*, l.newest_ms, row_number() OVER (PARTITION BY t.log_dir, t.directory,
                t.transactional_id ORDER BY t.record_offset DESC) AS newest,
            max(t.leader_epoch) OVER (PARTITION BY t.log_dir, t.directory) AS last_epoch
        FROM transaction_states AS t
        JOIN state_logs AS l ON l.log_dir = t.log_dir AND l.directory = t.directory
    ), running AS (
        SELECT log_dir, directory, min(timestamp_ms) AS from_ms, max(timestamp_ms) AS until_ms
        FROM states WHERE leader_epoch = last_epoch GROUP BY log_dir, directory
    ), unfinished AS (
        SELECT s.*, r.from_ms, r.until_ms, CASE WHEN s.status = 'Ongoing'
            THEN s.start_ms + s.timeout_ms ELSE s.last_update_ms + {PREPARED_MS} END AS due_ms,
            CASE WHEN s.status = 'Ongoing' THEN s.start_ms ELSE s.last_update_ms END AS begun_ms
        FROM states AS s
        JOIN running AS r ON r.log_dir = s.log_dir AND r.directory = s.directory
        WHERE s.newest = 1 AND s.status IN ('Ongoing', 'PrepareCommit', 'PrepareAbort')
    ), overdue AS (
        SELECT *, until_ms - greatest(due_ms, from_ms) > {CHECKED_MS} AS was_running
        FROM unfinished
        WHERE until_ms - greatest(due_ms, from_ms) > {CHECKED_MS}
            OR newest_ms - due_ms > {CHECKED_MS}
    )
"""
_OVERDUE_MESSAGE: Final = """transactional_id, ' of producer id ', producer_id, ', epoch ',
    producer_epoch, ', is ', status, ' for ',
    CAST(floor((greatest(until_ms, newest_ms) - begun_ms) / 1000) AS BIGINT), ' seconds',
    CASE WHEN status = 'Ongoing' THEN concat(', and its timeout is ', timeout_ms, ' ms')
        ELSE ', and its markers are not written everywhere' END"""

TRANSACTIONS_END = AuditRule(
    name="transactions-end-in-time",
    statement="A coordinator aborts a transaction after its timeout, and completes its decisions.",
    source="KIP-98, KIP-664; TransactionCoordinator.abortTimedOutTransactions",
    severity=DefectSeverity.DEGRADED,
    meaning="The last stable offset of the partitions in this transaction does not advance: "
    "consumers with read_committed wait, and the logs are not compacted.",
    remedy="Look in the log of the coordinator for its marker channel and for partitions without "
    "a leader. Find the open transaction with `kafka-transactions.sh find-hanging`; abort it with "
    "`kafka-transactions.sh abort` if its producer is gone.",
    reads=("transaction_states", "replicas", "log_dirs", "batches"),
    examined=f"{_OVERDUE} SELECT count(*) FROM unfinished",
    defects=f"""
        {_OVERDUE} SELECT {
        finding(
            "concat('transactional id ', transactional_id)",
            f"concat({_OVERDUE_MESSAGE})",
            since="begun_ms",
        )
    } FROM overdue WHERE was_running
    """,
    undecided=f"""
        {_OVERDUE} SELECT {
        finding(
            "concat('transactional id ', transactional_id)",
            f"concat({_OVERDUE_MESSAGE}, ', but nothing shows that its coordinator was running')",
            since="begun_ms",
        )
    } FROM overdue WHERE NOT was_running
    """,
)

RULES = (
    STATES_VALID,
    PRODUCERS_ADVANCE,
    ONE_ID_EACH,
    IDS_IN_THEIR_PARTITION,
    TRANSACTIONS_END,
)
