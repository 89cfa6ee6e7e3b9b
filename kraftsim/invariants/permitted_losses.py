"""What may be lost without violating an invariant: by a spoilt disk, an unclean election,
compaction, the deletion of a topic or of the records at its start, or the range check of KIP-758.

Each case is there twice, like the invariants that use it: a class that learns from events, and SQL.
"""

from kraftsim.clients.events import RecordReportedDuplicate
from kraftsim.events.event import Event
from kraftsim.events.runs import FaultInjected
from kraftsim.metadata.events import PartitionChanged, TopicDeleted
from kraftsim.partitions.events import BatchAppended, LeaderElected, LogStartMoved
from kraftsim.server.events import SegmentsCleaned

SPOIL_WHAT_WAS_FLUSHED = (
    "bit-rot",
    "lost-disk",
    "lying-flush",
    "misdirected-write",
    "old-disk-image",
)


class SpoiltDisks:
    """Tracks hosts whose disk lost or corrupted flushed data by a fault: invariants about durable
    data no longer apply to them.

    Learns them from the faults that were injected.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, None] = {}

    def learn(self, fired: FaultInjected) -> None:
        """Process a fault; faults that leave flushed data intact are ignored."""
        if fired.fault in SPOIL_WHAT_WAS_FLUSHED:
            self._hosts[fired.target] = None

    def has(self, host: str) -> bool:
        """Return whether a host has lost or corrupted flushed data."""
        return host in self._hosts


SPOILT_CTE = f"""
    spoilt AS (
        SELECT run, target, min(position) AS position FROM fault_injected
        WHERE fault IN ({", ".join(f"'{fault}'" for fault in SPOIL_WHAT_WAS_FLUSHED)}) GROUP BY run,
            target
    )
"""
"""The same in SQL: the position of the first such fault on each host (`target`)."""


RECOVERING = 1
UNCLEAN_WATCHES = (PartitionChanged, LeaderElected)
"""The event kinds that an invariant must watch to use this class."""
Log = tuple[str, int]


class UncleanElections:
    """What an unclean election may lose: every record at or above the log end offset of a leader
    that was not known to be in sync.

    Kafka gives no guarantee for them: an operator who enables unclean elections prefers
    availability. The usual guarantees hold for what the new leader has and for what is written from
    then on. No event reports in which leader epoch a record was acknowledged, so every record at or
    above the new leader's log end offset is excluded.

    Tracks unclean elections from the metadata, and the lost offsets from the new leader.

    Source: KIP-106, KIP-704 (the leader is notified of its unclean election),
    PartitionChangeBuilder.
    """

    def __init__(self) -> None:
        self._epochs: dict[Log, dict[int, None]] = {}
        self._ends: dict[Log, dict[int, int]] = {}

    def learn(self, event: Event) -> None:
        """Process an event; events unrelated to elections are ignored."""
        if isinstance(event, PartitionChanged) and event.leader_recovery_state == RECOVERING:
            self._epochs.setdefault((event.topic, event.partition), {})[event.leader_epoch] = None
        elif isinstance(event, LeaderElected):
            ends = self._ends.setdefault((event.topic, event.partition), {})
            ends[event.leader_epoch] = min(
                event.next_offset, ends.get(event.leader_epoch, event.next_offset)
            )

    def may_have_lost(self, log: Log, offset: int) -> bool:
        """Return whether a record at an offset may be lost; a record with an unknown offset (-1)
        may be as well.
        """
        epochs = self._epochs.get(log)
        if not epochs:
            return False
        return offset < 0 or any(
            offset >= end for epoch, end in self._ends.get(log, {}).items() if epoch in epochs
        )

    def has_been(self, log: Log, *, after_epoch: int, up_to_epoch: int) -> bool:
        """Return whether there was an unclean election after a leader epoch, up to a later one."""
        return any(after_epoch < epoch <= up_to_epoch for epoch in self._epochs.get(log, ()))


UNCLEAN = f"""
    unclean AS (
        SELECT DISTINCT run, topic, partition, leader_epoch FROM partition_changed
            WHERE leader_recovery_state = {RECOVERING}
    ), lost_from AS (
        SELECT e.run, e.topic, e.partition, min(e.next_offset) AS lost_offset
        FROM leader_elected AS e JOIN unclean AS u
            ON u.run = e.run AND u.topic = e.topic AND u.partition = e.partition
                AND u.leader_epoch = e.leader_epoch
        GROUP BY e.run, e.topic, e.partition
    )
"""
"""The same in SQL: the epochs, and the offset from which a partition may have lost records."""


def not_lost(row: str, offset: str) -> str:
    """Return the SQL condition that a row's record was not lost by an unclean election."""
    same = f"x.run = {row}.run AND x.topic = {row}.topic AND x.partition = {row}.partition"
    return f"""
        NOT EXISTS (SELECT 1 FROM lost_from AS x WHERE {same} AND {offset} >= x.lost_offset)
        AND NOT EXISTS (SELECT 1 FROM unclean AS x WHERE {same} AND {offset} < 0)
    """


CLEANED_WATCHES = (SegmentsCleaned,)
"""The event kinds that an invariant must watch to use this class."""
TRANSACTION_TOPIC = "__transaction_state"


class CleanedLogs:
    """What compaction may remove: below a replica's cleaned offset, any record with a later record
    of the same key.

    Each replica cleans its log independently, so below that offset two replicas may hold different
    records.

    Tracks the highest cleaned offset of each partition over all its replicas.

    Source: kafka.log.LogCleaner; the guarantee of log compaction in Apache Kafka's design document.
    """

    def __init__(self) -> None:
        self._until: dict[Log, int] = {}

    def learn(self, event: Event) -> None:
        """Process an event; events unrelated to cleaning are ignored."""
        if isinstance(event, SegmentsCleaned):
            log = (event.topic, event.partition)
            self._until[log] = max(event.next_offset, self._until.get(log, 0))

    def has_passed(self, log: Log, offset: int) -> bool:
        """Return whether a log was cleaned at an offset."""
        return offset < self._until.get(log, 0)

    def may_lack_between(self, log: Log, offset: int, later: int) -> bool:
        """Return whether compaction may have removed records of a key between two of its
        records.
        """
        return later > offset + 1 and self.has_passed(log, offset + 1)

    def may_have_dropped(self, log: Log, offset: int, offsets_of_key: list[int]) -> bool:
        """Return whether compaction may have removed the record at an offset because the log
        contains a later one of its key.
        """
        return self.has_passed(log, offset) and any(later > offset for later in offsets_of_key)


CLEANED_UNTIL = """
    cleaned_until AS (
        SELECT run, topic, partition, max(next_offset) AS cleaned_offset FROM segments_cleaned
            GROUP BY run, topic, partition
    )
"""
"""The same in SQL, for joins where `cleaned` would be inside a subquery: Spark resolves outer
columns one query level up only.
"""


def cleaned(row: str, offset: str, *, before: str | None = None) -> str:
    """Return the SQL condition that a row's log was cleaned at an offset; `before` limits it to a
    position in the history.
    """
    by_then = "" if before is None else f" AND c.position < {before}"
    return f"""
        EXISTS (
            SELECT 1 FROM segments_cleaned AS c WHERE c.run = {row}.run AND c.topic = {row}.topic
                AND c.partition = {row}.partition
                AND c.next_offset > {offset}{by_then}
        )
    """


DELETED_WATCHES = (TopicDeleted,)
"""The event kinds that an invariant must watch to use this class."""


class DeletedTopics:
    """Tracks topics that were deleted: their records are gone, and a new topic of the same name has
    other records at the same offsets.

    No event of a client says to which of them it belongs, so none of the topic is checked.

    Source: KIP-516 (a topic that is created again has another id).
    """

    def __init__(self) -> None:
        self._topics: dict[str, None] = {}

    def learn(self, event: Event) -> None:
        """Process an event; others than deletions are ignored."""
        if isinstance(event, TopicDeleted):
            self._topics[event.topic] = None

    def has(self, topic: str) -> bool:
        """Return whether a topic of this name was deleted."""
        return topic in self._topics


def not_deleted(row: str) -> str:
    """Return the SQL condition that no topic with the name of a row's topic was deleted."""
    return (
        f"NOT EXISTS (SELECT 1 FROM topic_deleted AS d WHERE d.run = {row}.run "
        f"AND d.topic = {row}.topic)"
    )


class TopicNames:
    """Which events are about a name that may belong to several topics: those after a topic of that
    name was deleted.

    Brokers learn of the deletion at different times, and no event says which topic it is about: no
    invariant examines them. `not_ambiguous` is the same in SQL.
    """

    def __init__(self) -> None:
        self._deleted: dict[str, None] = {}
        self.has_deleted = False
        """Whether a topic was deleted; if not, no event is ambiguous."""

    def is_ambiguous(self, event: Event) -> bool:
        """Return whether an event is about a deleted topic; a deletion itself is not."""
        if type(event) is TopicDeleted:
            self._deleted[event.topic] = None
            self.has_deleted = True
            return False
        return self.has_deleted and getattr(event, "topic", "") in self._deleted


def not_ambiguous(row: str) -> str:
    """Return the SQL condition that no topic with the name of a row's topic was deleted before."""
    return (
        f"NOT EXISTS (SELECT 1 FROM topic_deleted AS d WHERE d.run = {row}.run "
        f"AND d.topic = {row}.topic AND d.position < {row}.position)"
    )


REMOVED_WATCHES = (LogStartMoved,)
"""The event kinds that an invariant must watch to use this class."""


class RemovedRecords:
    """What retention and DeleteRecords may remove: records below a log start offset.

    Tracks the highest log start offset that any replica of a partition reported.

    Source: KIP-107; org.apache.kafka.storage.internals.log.UnifiedLog.maybeIncrementLogStartOffset.
    """

    def __init__(self) -> None:
        self._starts: dict[Log, int] = {}

    def learn(self, event: Event) -> None:
        """Process an event; others than moved log start offsets are ignored."""
        if isinstance(event, LogStartMoved):
            log = (event.topic, event.partition)
            self._starts[log] = max(event.log_start_offset, self._starts.get(log, 0))

    def has(self, log: Log, offset: int) -> bool:
        """Return whether the record at an offset may be removed."""
        return offset < self._starts.get(log, 0)


def not_removed(row: str, offset: str) -> str:
    """Return the SQL condition that a row's record is not below a log start offset."""
    return (
        f"NOT EXISTS (SELECT 1 FROM log_start_moved AS m WHERE m.run = {row}.run "
        f"AND m.topic = {row}.topic AND m.partition = {row}.partition "
        f"AND m.log_start_offset > {offset})"
    )


OVERTAKEN_WATCHES = (BatchAppended, RecordReportedDuplicate)
"""The event kinds that an invariant must watch to use this class."""
SEQUENCES = 2**31
BEHIND_MAX = 2**30
"""A sequence precedes another one if it is at most this far behind it; sequences wrap."""


class OvertakenBeginnings:
    """What the range check of KIP-758 may lose: batches before the first one that a leader appended
    from an unknown producer.

    Since 2.5 a leader appends the first batch of an unknown producer at any sequence (KIP-360). If
    a later batch of a producer arrives before its first one, the sequences before it were never in
    the log, and the range check of KIP-758 still returns DUPLICATE_SEQUENCE_NUMBER for them. The
    shipped rule returns OUT_OF_ORDER_SEQUENCE_NUMBER, and the producer retries them. No other
    record that is reported as a duplicate may be missing.

    Tracks the first sequence of each producer epoch in each partition, and the sequences of records
    that were reported as duplicates.

    Source: KIP-758 (never adopted), KIP-360, ProducerAppendInfo.checkSequence.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, int, int, int], int] = {}
        self._called: dict[tuple[str, int, str], list[tuple[int, int, int]]] = {}

    def learn(self, event: Event) -> None:
        """Process an event; unrelated events are ignored."""
        if isinstance(event, BatchAppended):
            if event.producer_id >= 0:
                producer_epoch = (
                    event.topic,
                    event.partition,
                    event.producer_id,
                    event.producer_epoch,
                )
                self._first.setdefault(producer_epoch, event.base_sequence)
        elif isinstance(event, RecordReportedDuplicate):
            called = self._called.setdefault((event.topic, event.partition, event.record_key), [])
            called.append((event.producer_id, event.producer_epoch, event.base_sequence))

    def may_have_lost(self, log: Log, record_key: str, offset: int) -> bool:
        """Return whether a record acknowledged without an offset was reported as a duplicate at a
        sequence before the producer's first.
        """
        return offset < 0 and any(
            (*log, producer_id, producer_epoch) in self._first
            and 0
            < (self._first[*log, producer_id, producer_epoch] - base_sequence) % SEQUENCES
            <= BEHIND_MAX
            for producer_id, producer_epoch, base_sequence in self._called.get(
                (*log, record_key), ()
            )
        )


OVERTAKEN = f"""
    first_append AS (
        SELECT b.run, b.topic, b.partition, b.producer_id, b.producer_epoch,
            b.base_sequence AS first_sequence
        FROM batch_appended AS b JOIN (
            SELECT run, topic, partition, producer_id, producer_epoch, min(position) AS position
            FROM batch_appended WHERE producer_id >= 0 GROUP BY run, topic, partition, producer_id,
                producer_epoch
        ) AS m ON b.run = m.run AND b.position = m.position
    ), overtaken AS (
        SELECT DISTINCT c.run, c.topic, c.partition, c.record_key
        FROM record_reported_duplicate AS c JOIN first_append AS m
            ON c.run = m.run AND c.topic = m.topic AND c.partition = m.partition
                AND c.producer_id = m.producer_id AND c.producer_epoch = m.producer_epoch
        WHERE c.base_sequence <> m.first_sequence
            AND (m.first_sequence - c.base_sequence + {SEQUENCES}) % {SEQUENCES} <= {BEHIND_MAX}
    )
"""
"""The same in SQL: the keys of the records that may have been lost."""


def not_overtaken(row: str, offset: str) -> str:
    """Return the condition that a row's record may not be gone."""
    same = (
        f"x.run = {row}.run AND x.topic = {row}.topic AND x.partition = {row}.partition AND "
        f"x.record_key = {row}.record_key"
    )
    return f"NOT EXISTS (SELECT 1 FROM overtaken AS x WHERE {same} AND {offset} < 0)"
