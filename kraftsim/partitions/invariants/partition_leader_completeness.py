"""A new partition leader has every record below the high watermark of any leader of an earlier
epoch.

A high watermark is visible to consumers and to producers with acks=all; a new leader whose log ends
below it has lost records that they saw. It applies to a later leader even if an earlier leader that
did not know of that one reports it afterwards. After an unclean election, earlier high watermarks
no longer apply.
Source: KIP-101, KIP-966; leader completeness of Raft (Ongaro and Ousterhout 2014, section 5.4).
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.unclean_elections import UNCLEAN, UncleanElections
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import PartitionChanged
from kraftsim.partitions.events import LeaderElected, PartitionHighWatermarkMoved

NAME = "partition-leader-completeness"
Log = tuple[str, int]


class HasEarlierRecords:
    """Tracks the high watermark of each leader epoch, and the log end offset with which each leader
    started.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
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

INVARIANT = Invariant(
    name=NAME,
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
