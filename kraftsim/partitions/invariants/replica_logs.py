"""The logs of a partition's replicas agree: on offsets, on epochs, and at the end on every record.

The controller elects one leader for each epoch, from the in-sync replicas. A leader appends without
gaps, and followers replicate what they fetch. So an offset and an epoch identify a batch
everywhere, and a new leader has what was committed before it.
"""

from collections.abc import Iterator
from typing import Final

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.permitted_losses import (
    CLEANED_WATCHES,
    UNCLEAN,
    CleanedLogs,
    UncleanElections,
    cleaned,
)
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import PartitionChanged
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    FinalBatch,
    FinalLog,
    LeaderElected,
    PartitionHighWatermarkMoved,
    ReplicaInSync,
)
from kraftsim.raft.events import LeaderLogHeld
from kraftsim.server.events import SegmentsCleaned
from kraftsim.zookeeper.events import ZookeeperControllerElected

WRITTEN: Final = (BatchAppended, BatchReplicated, SegmentsCleaned)
FOUND_AT_END: Final = (FinalBatch, FinalLog, ReplicaInSync, SegmentsCleaned)
"""Tuples, because a union would be built again for each event."""
BEFORE_EVERYTHING = (-2, 0)
"""An epoch below that of any snapshot, and the first offset of every log."""


class PieceAfterPiece:
    """The log of a newly elected replica is its snapshot followed by increasing epochs, without
    gaps or duplicates.

    Compares each part of an elected replica's log with the previous part.

    Source: KIP-101, KIP-595 (epochs only grow along a log), KIP-630 (a log begins where its oldest
    snapshot ends).
    """

    def __init__(self) -> None:
        self._findings = Findings("leader-log-contiguous")
        self._last: dict[tuple[str, int, int], tuple[int, int]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a part of the log of an elected replica."""
        assert isinstance(event, LeaderLogHeld)
        if event.first_offset == event.end_offset:
            return None  # it has no record of that epoch
        self._findings.examined += 1
        election = (envelope.node, envelope.incarnation, event.leader_epoch)
        epoch, end_offset = self._last.get(election, BEFORE_EVERYTHING)
        self._last[election] = (event.epoch, event.end_offset)
        if (
            event.epoch > epoch
            and event.first_offset == end_offset
            and event.end_offset > event.first_offset
        ):
            return None
        message = (
            f"{envelope.node} won epoch {event.leader_epoch} with records of epoch {event.epoch} "
            f"from {event.first_offset} to {event.end_offset} behind those of epoch {epoch}, "
            f"which end at {end_offset}"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


LEADER_LOG_CONTIGUOUS = Invariant(
    name="leader-log-contiguous",
    rule="The log of a newly elected replica is its snapshot followed by increasing epochs, "
    "without gaps or duplicates.",
    source="KIP-101, KIP-595, KIP-630",
    watches=(LeaderLogHeld,),
    check=PieceAfterPiece,
    examined=(
        "SELECT run, count(*) FROM leader_log_held WHERE first_offset <> end_offset GROUP BY run"
    ),
    violations="""
        WITH ordered AS (
            SELECT
                run, node, incarnation, n, position, leader_epoch, epoch, first_offset, end_offset,
                lag(epoch, 1, -2) OVER (PARTITION BY run, node, incarnation, leader_epoch
                    ORDER BY position) AS previous_epoch,
                lag(end_offset, 1, 0) OVER (PARTITION BY run, node, incarnation, leader_epoch
                    ORDER BY position) AS previous_end
            FROM leader_log_held WHERE first_offset <> end_offset
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                node, ' won epoch ', leader_epoch, ' with records of epoch ', epoch, ' from ',
                    first_offset, ' to ', end_offset,
                ' behind those of epoch ', previous_epoch, ', which end at ', previous_end
            ) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM ordered WHERE epoch <= previous_epoch OR first_offset <> previous_end
            OR end_offset <= first_offset
    """,
)


class FirstWritingOfPartition:
    """If two replicas of a partition have a batch at the same offset and leader epoch, the batches
    are equal.

    Followers replicate what the leader of an epoch appended. A batch is identified by its last
    offset and its checksum. A batch counts even if the replica truncated it later, because it may
    have been read. A batch that was replicated from a cleaned log is what compaction left of it,
    and is not checked. A topic that is deleted and created again under its name would be another
    topic: no scenario does that.

    Tracks the first batch that any replica wrote at each offset and leader epoch.

    Source: KIP-101, KIP-279; the log matching property of Raft (Ongaro and Ousterhout 2014, section
    5.3).
    """

    def __init__(self) -> None:
        self._findings = Findings("partition-log-matching")
        self._cleaned = CleanedLogs()
        self._batches: dict[tuple[str, int, int, int], tuple[int, int, str, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a batch that was written."""
        assert isinstance(event, WRITTEN)
        self._cleaned.learn(event)
        if isinstance(event, SegmentsCleaned) or (
            isinstance(event, BatchReplicated) and self._is_from_a_cleaned_log(event)
        ):
            return None
        self._findings.examined += 1
        place = (event.topic, event.partition, event.leader_epoch, event.first_offset)
        known = self._batches.setdefault(
            place, (event.last_offset, event.crc, envelope.node, envelope.event_id)
        )
        last_offset, crc, node, witness = known
        if (last_offset, crc) == (event.last_offset, event.crc):
            return None
        message = (
            f"{event.topic}-{event.partition}: the batch of epoch {event.leader_epoch} at offset "
            f"{event.first_offset} that {envelope.node} wrote is not the one that {node} wrote "
            "first"
        )
        return self._findings.violation(
            "/".join(map(str, place)), message, witness, envelope.event_id
        )

    def _is_from_a_cleaned_log(self, event: BatchReplicated) -> bool:
        return self._cleaned.has_passed((event.topic, event.partition), event.first_offset)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_PLACE = "run, topic, partition, leader_epoch, first_offset"
_WRITTEN = f"""
    written AS (
        SELECT {_PLACE}, last_offset, crc, node, position FROM batch_appended
        UNION ALL SELECT {_PLACE}, last_offset, crc, node, position FROM batch_replicated AS r
        WHERE NOT {cleaned("r", "r.first_offset", before="r.position")}
    )
"""
_SAME_PLACE = " AND ".join(f"w.{column} = f.{column}" for column in _PLACE.split(", "))

PARTITION_LOG_MATCHING = Invariant(
    name="partition-log-matching",
    rule="If two replicas of a partition have a batch at the same offset and leader epoch, the "
    "batches are equal.",
    source="KIP-101, KIP-279",
    watches=(BatchAppended, BatchReplicated, *CLEANED_WATCHES),
    check=FirstWritingOfPartition,
    examined=f"WITH {_WRITTEN} SELECT run, count(*) FROM written GROUP BY run",
    # Only offsets with two different batches are compared: none in a clean run.
    violations=f"""
        WITH {_WRITTEN}, torn AS (
            SELECT {_PLACE}, min(position) AS position FROM written GROUP BY {_PLACE}
            HAVING min(last_offset) <> max(last_offset) OR min(crc) <> max(crc)
        ), first_batch AS (
            SELECT w.* FROM torn AS f JOIN written AS w ON w.run = f.run AND w.position = f.position
        ), other AS (
            SELECT w.run, w.topic, w.partition, w.leader_epoch, w.first_offset,
                min(w.position) AS position
            FROM written AS w JOIN first_batch AS f ON {_SAME_PLACE}
            WHERE w.last_offset <> f.last_offset OR w.crc <> f.crc
            GROUP BY w.run, w.topic, w.partition, w.leader_epoch, w.first_offset
        )
        SELECT
            f.run,
            concat(f.topic, '/', f.partition, '/', f.leader_epoch, '/', f.first_offset) AS key,
            concat(
                f.topic, '-', f.partition, ': the batch of epoch ', f.leader_epoch, ' at offset ',
                    f.first_offset, ' that ', w.node,
                ' wrote is not the one that ', f.node, ' wrote first'
            ) AS message,
            f.position AS first_witness,
            w.position AS second_witness
        FROM other AS o
        JOIN first_batch AS f ON {_SAME_PLACE.replace("w.", "o.")}
        JOIN written AS w ON w.run = o.run AND w.position = o.position
    """,
)


class FirstLeader:
    """Each leader epoch of a partition has at most one leader, and one incarnation of it.

    Two leaders would write different records at the same offsets, and no follower could tell which
    to replicate. So would a leader that has lost records in a crash, and leads on in its epoch: a
    controller removes the former incarnation of a broker before it unfences the next one.

    A controller in ZooKeeper mode that is elected after the broker is back does not know that there
    was another incarnation: where there is one, only the broker is compared.

    Tracks the first leader in each epoch of each partition.

    Source: KIP-101, KIP-631 (PartitionChangeRecord), KAFKA-18106;
    ReplicationControlManager.handleBrokerUncleanShutdown.
    """

    def __init__(self) -> None:
        self._findings = Findings("one-partition-leader-per-epoch")
        self._leaders: dict[tuple[str, int, int], tuple[str, int, str]] = {}
        self._has_zookeeper = False

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process the election of a partition leader, or of a controller in ZooKeeper mode."""
        if isinstance(event, ZookeeperControllerElected):
            self._has_zookeeper = True
            return None
        assert isinstance(event, LeaderElected)
        self._findings.examined += 1
        epoch = (event.topic, event.partition, event.leader_epoch)
        node, incarnation, witness = self._leaders.setdefault(
            epoch, (envelope.node, envelope.incarnation, envelope.event_id)
        )
        if node == envelope.node and (incarnation == envelope.incarnation or self._has_zookeeper):
            return None
        message = (
            f"{event.topic}-{event.partition}: epoch {event.leader_epoch} is led by {node} "
            f"(incarnation {incarnation}) and by {envelope.node} (incarnation "
            f"{envelope.incarnation})"
        )
        return self._findings.violation(
            "/".join(map(str, epoch)), message, witness, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_EPOCH = "run, topic, partition, leader_epoch"
_SAME_EPOCH = " AND ".join(f"e.{column} = w.{column}" for column in _EPOCH.split(", "))

ONE_PARTITION_LEADER_PER_EPOCH = Invariant(
    name="one-partition-leader-per-epoch",
    rule="Each leader epoch of a partition has at most one leader, in KRaft one incarnation of it.",
    source="KIP-101, KIP-631",
    watches=(LeaderElected, ZookeeperControllerElected),
    check=FirstLeader,
    examined="SELECT run, count(*) FROM leader_elected GROUP BY run",
    violations=f"""
        WITH zookeeper_since AS (
            SELECT run, min(position) AS since FROM zookeeper_controller_elected GROUP BY run
        ), first_election AS (
            SELECT {_EPOCH}, min(position) AS position FROM leader_elected GROUP BY {_EPOCH}
        ), winner AS (
            SELECT e.* FROM first_election AS f JOIN leader_elected AS e ON e.run = f.run
                AND e.position = f.position
        ), rival AS (
            SELECT e.run, e.topic, e.partition, e.leader_epoch, min(e.position) AS position
            FROM leader_elected AS e JOIN winner AS w ON {_SAME_EPOCH}
            LEFT JOIN zookeeper_since AS z ON z.run = e.run
            WHERE e.node <> w.node OR (e.incarnation <> w.incarnation
                AND NOT coalesce(z.since < e.position, false))
            GROUP BY e.run, e.topic, e.partition, e.leader_epoch
        )
        SELECT
            w.run,
            concat(w.topic, '/', w.partition, '/', w.leader_epoch) AS key,
            concat(w.topic, '-', w.partition, ': epoch ', w.leader_epoch, ' is led by ', w.node,
                ' (incarnation ', w.incarnation, ') and by ', e.node, ' (incarnation ',
                e.incarnation, ')') AS message,
            w.position AS first_witness,
            e.position AS second_witness
        FROM rival AS r
        JOIN winner AS w ON {_SAME_EPOCH.replace("e.", "r.")}
        JOIN leader_elected AS e ON e.run = r.run AND e.position = r.position
    """,
)


Log = tuple[str, int]


class HasEarlierRecords:
    """A new partition leader has every record below the high watermark of any leader of an earlier
    epoch.

    A high watermark is visible to consumers and to producers with acks=all; a new leader whose log
    ends below it has lost records that they saw. It applies to a later leader even if an earlier
    leader that did not know of that one reports it afterwards. After an unclean election, earlier
    high watermarks no longer apply.

    Tracks the high watermark of each leader epoch, and the log end offset with which each leader
    started.

    Source: KIP-101, KIP-966; leader completeness of Raft (Ongaro and Ousterhout 2014, section 5.4).
    """

    def __init__(self) -> None:
        self._findings = Findings("partition-leader-completeness")
        self._high_watermarks: dict[Log, dict[int, int]] = {}
        self._begun: dict[Log, list[tuple[int, int, str, str]]] = {}
        self._unclean = UncleanElections()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a leader's high watermark, or a new leader."""
        assert isinstance(event, LeaderElected | PartitionHighWatermarkMoved | PartitionChanged)
        self._unclean.learn(event)
        if isinstance(event, PartitionChanged):
            return None
        log = (event.topic, event.partition)
        if isinstance(event, LeaderElected):
            begun = (event.leader_epoch, event.next_offset, envelope.node, envelope.event_id)
            self._begun.setdefault(log, []).append(begun)
            high_watermarks = self._high_watermarks.get(log, {}).items()
            return (
                self._lacks(log, begun)
                if any(
                    self._binds(log, epoch, begun) and offset > begun[1]
                    for epoch, offset in high_watermarks
                )
                else None
            )
        if not event.is_leader:
            return None
        of_log = self._high_watermarks.setdefault(log, {})
        of_log[event.leader_epoch] = max(event.high_watermark, of_log.get(event.leader_epoch, 0))
        first = None
        for begun in self._begun.get(log, []):
            if self._binds(log, event.leader_epoch, begun) and event.high_watermark > begun[1]:
                first = self._lacks(log, begun) or first
        return first

    def finish(self) -> Verdict:
        """Count the leaders whose predecessors reported a high watermark, and return the
        verdict.
        """
        for log, leaders in self._begun.items():
            self._findings.examined += sum(
                any(self._binds(log, epoch, leader) for epoch in self._high_watermarks.get(log, {}))
                for leader in leaders
            )
        return self._findings.verdict()

    def _binds(self, log: Log, epoch: int, begun: tuple[int, int, str, str]) -> bool:
        """Return whether the high watermark of an epoch applies to a leader."""
        return epoch < begun[0] and not self._unclean.has_been(
            log, after_epoch=epoch, up_to_epoch=begun[0]
        )

    def _lacks(self, log: Log, begun: tuple[int, int, str, str]) -> Violation | None:
        leader_epoch, next_offset, node, event_id = begun
        message = (
            f"{log[0]}-{log[1]}: {node} leads in epoch {leader_epoch} with a log that ends at "
            f"{next_offset}, and a leader before it knew more to be replicated"
        )
        return self._findings.violation(event_id, message, event_id)


_HIGH_WATERMARKS = """
    reported AS (
        SELECT run, topic, partition, leader_epoch, max(high_watermark) AS high_watermark
        FROM partition_high_watermark_moved WHERE is_leader GROUP BY run, topic, partition,
            leader_epoch
    ), elected AS (
        SELECT
            e.run, e.topic, e.partition, e.leader_epoch, e.next_offset, e.node, e.incarnation, e.n,
                e.position,
            max(u.leader_epoch) AS unclean_epoch
        FROM leader_elected AS e LEFT JOIN unclean AS u
            ON u.run = e.run AND u.topic = e.topic AND u.partition = e.partition
                AND u.leader_epoch <= e.leader_epoch
        GROUP BY e.run, e.topic, e.partition, e.leader_epoch, e.next_offset, e.node, e.incarnation,
            e.n, e.position
    )
"""
_EARLIER = """
    reported.run = e.run AND reported.topic = e.topic AND reported.partition = e.partition
        AND reported.leader_epoch < e.leader_epoch
        AND (e.unclean_epoch IS NULL OR reported.leader_epoch >= e.unclean_epoch)
"""

PARTITION_LEADER_COMPLETENESS = Invariant(
    name="partition-leader-completeness",
    rule="A new partition leader has every record below the high watermark of any leader of an "
    "earlier epoch.",
    source="KIP-101, KIP-966",
    watches=(LeaderElected, PartitionHighWatermarkMoved, PartitionChanged),
    check=HasEarlierRecords,
    examined=f"""
        WITH {UNCLEAN}, {_HIGH_WATERMARKS} SELECT e.run, count(*) FROM elected AS e
            WHERE EXISTS (SELECT 1 FROM reported WHERE {_EARLIER}) GROUP BY e.run
    """,
    violations=f"""
        WITH {UNCLEAN}, {_HIGH_WATERMARKS}
        SELECT
            e.run,
            concat(e.node, '.', e.incarnation, '.', e.n) AS key,
            concat(
                e.topic, '-', e.partition, ': ', e.node, ' leads in epoch ', e.leader_epoch,
                    ' with a log that ends at ', e.next_offset,
                ', and a leader before it knew more to be replicated'
            ) AS message,
            e.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM elected AS e WHERE EXISTS (SELECT 1 FROM reported WHERE {_EARLIER}
            AND reported.high_watermark > e.next_offset)
    """,
)


Difference = tuple[int, str, str, str]
"""(index of the batch among all final batches, key, message, event id)."""


class SameBatches:
    """The final logs of in-sync replicas have the same batches, with the same offsets and bytes,
    wherever both have records.

    A log may start later or end earlier than another one. A checksum represents the bytes that it
    covers: all but the offset and the leader epoch. Cleaned parts of compacted logs are not
    compared, because each replica cleans its log independently.

    Collects the final logs of the in-sync replicas; compares them at the end of the run.

    Source: KIP-101; kafka.tools.ReplicaVerificationTool.
    """

    def __init__(self) -> None:
        self._findings = Findings("replicas-equal")
        self._in_sync: dict[Log, list[str]] = {}
        self._extent: dict[tuple[Log, str], tuple[int, int]] = {}
        self._cleaned = CleanedLogs()
        self._batches: dict[tuple[Log, str], dict[tuple[int, int, int], tuple[int, str]]] = {}
        """(log, broker) -> (first offset, last offset, checksum) -> (index, event id) of the first
        such batch.
        """
        self._batch_count = 0

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an in-sync replica, its final log or one of its batches."""
        assert isinstance(event, FOUND_AT_END)
        self._cleaned.learn(event)
        log = (event.topic, event.partition)
        if isinstance(event, ReplicaInSync):
            known = self._in_sync.setdefault(log, [])
            if event.broker not in known:
                known.append(event.broker)
        elif isinstance(event, FinalLog):
            self._extent[log, event.broker] = event.log_start_offset, event.next_offset
        elif isinstance(event, FinalBatch):
            batches = self._batches.setdefault((log, event.broker), {})
            self._batch_count += 1
            batches.setdefault(
                (event.first_offset, event.last_offset, event.crc),
                (self._batch_count, envelope.event_id),
            )
        return None

    def finish(self) -> Verdict:
        """Compare, and return the verdict.

        Like the SQL, it keeps the violations whose batches were emitted first.
        """
        breaches: list[Difference] = []
        for log, brokers in self._in_sync.items():
            for broker in brokers:
                for other in brokers:
                    if other != broker and (log, other) in self._extent:
                        breaches += self._compare(log, broker, other)
        for _, key, message, event_id in sorted(breaches):
            self._findings.violation(key, message, event_id)
        return self._findings.verdict()

    def _compare(self, log: Log, broker: str, other: str) -> Iterator[Difference]:
        begins_at, ends_at = self._extent[log, other]
        others = self._batches.get((log, other), {})
        for (first_offset, last_offset, crc), (place, event_id) in self._batches.get(
            (log, broker), {}
        ).items():
            if (
                first_offset < begins_at
                or last_offset >= ends_at
                or self._cleaned.has_passed(log, first_offset)
            ):
                continue
            self._findings.examined += 1
            if (first_offset, last_offset, crc) not in others:
                message = (
                    f"{log[0]}-{log[1]}: the batch of {broker} at offset {first_offset} is not "
                    f"in the log of {other}"
                )
                yield place, f"{log[0]}/{log[1]}/{broker}/{other}/{first_offset}", message, event_id


_PAIR = f"""
    batch AS (
        SELECT run, topic, partition, broker, first_offset, last_offset, crc,
            min(position) AS position
        FROM final_batch GROUP BY run, topic, partition, broker, first_offset, last_offset, crc
    ), replica AS (
        SELECT DISTINCT run, topic, partition, broker FROM replica_in_sync
    ), pair AS (
        SELECT a.run, a.topic, a.partition, a.broker, other.broker AS other, a.first_offset,
            a.last_offset, a.crc, a.position
        FROM batch AS a
        JOIN replica AS own ON a.run = own.run AND a.topic = own.topic
            AND a.partition = own.partition AND a.broker = own.broker
        JOIN replica AS other ON a.run = other.run AND a.topic = other.topic
            AND a.partition = other.partition AND a.broker <> other.broker
        JOIN final_log AS log
            ON log.run = other.run AND log.topic = other.topic AND log.partition = other.partition
                AND log.broker = other.broker
        WHERE a.first_offset >= log.log_start_offset AND a.last_offset < log.next_offset
            AND NOT {cleaned("a", "a.first_offset")}
    )
"""

REPLICAS_EQUAL = Invariant(
    name="replicas-equal",
    decides_without_nodes=True,
    rule="The final logs of in-sync replicas have the same batches wherever both have records.",
    source="KIP-101",
    watches=(ReplicaInSync, FinalLog, FinalBatch, *CLEANED_WATCHES),
    check=SameBatches,
    examined=f"WITH {_PAIR} SELECT run, count(*) FROM pair GROUP BY run",
    violations=f"""
        WITH {_PAIR}
        SELECT
            a.run,
            concat(a.topic, '/', a.partition, '/', a.broker, '/', a.other, '/',
                a.first_offset) AS key,
            concat(
                a.topic, '-', a.partition, ': the batch of ', a.broker, ' at offset ',
                    a.first_offset, ' is not in the log of ', a.other
            ) AS message,
            min(a.position) AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM pair AS a
        WHERE NOT EXISTS (
            SELECT 1 FROM batch AS b
            WHERE b.run = a.run AND b.topic = a.topic AND b.partition = a.partition
                AND b.broker = a.other
                AND b.first_offset = a.first_offset AND b.last_offset = a.last_offset
                    AND b.crc = a.crc
        )
        GROUP BY a.run, a.topic, a.partition, a.broker, a.other, a.first_offset
    """,
)


INVARIANTS = (
    LEADER_LOG_CONTIGUOUS,
    PARTITION_LOG_MATCHING,
    ONE_PARTITION_LEADER_PER_EPOCH,
    PARTITION_LEADER_COMPLETENESS,
    REPLICAS_EQUAL,
)
