"""Within one leader epoch the high watermark of a partition leader never decreases.

A follower's high watermark may decrease under a leader that knows a lower one; but a client that
reads from the leader must never see it decrease.
Source: kafka.cluster.Partition.maybeIncrementLeaderHW; KIP-207.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import PartitionHighWatermarkMoved

NAME = "partition-high-watermark-monotonic"


class PartitionAlwaysHigher:
    """Tracks the latest high watermark of each leader in each of its epochs."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._latest: dict[tuple[str, int, str, int, int], tuple[int, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a high watermark."""
        assert isinstance(event, PartitionHighWatermarkMoved)
        if not event.is_leader:
            return None
        self._findings.examined += 1
        leadership = (
            envelope.node,
            envelope.incarnation,
            event.topic,
            event.partition,
            event.leader_epoch,
        )
        before, self._latest[leadership] = (
            self._latest.get(leadership),
            (event.high_watermark, envelope.event_id),
        )
        if before is None or event.high_watermark > before[0]:
            return None
        message = (
            f"{event.topic}-{event.partition}: the high watermark of {envelope.node}, leader in "
            f"epoch {event.leader_epoch}, went from {before[0]} to {event.high_watermark}"
        )
        return self._findings.violation(envelope.event_id, message, before[1], envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_LEADER_EPOCH = (
    "PARTITION BY run, node, incarnation, topic, partition, leader_epoch ORDER BY position"
)

INVARIANT = Invariant(
    name=NAME,
    rule="Within one leader epoch the high watermark of a partition leader never decreases.",
    source="KIP-207",
    watches=(PartitionHighWatermarkMoved,),
    check=PartitionAlwaysHigher,
    examined=(
        "SELECT run, count(*) FROM partition_high_watermark_moved WHERE is_leader GROUP BY run"
    ),
    violations=f"""
        WITH ordered AS (
            SELECT
                run, node, incarnation, n, position, topic, partition, leader_epoch, high_watermark,
                lag(high_watermark) OVER ({_LEADER_EPOCH}) AS previous_high_watermark,
                lag(position) OVER ({_LEADER_EPOCH}) AS previous_position
            FROM partition_high_watermark_moved WHERE is_leader
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                topic, '-', partition, ': the high watermark of ', node, ', leader in epoch ',
                    leader_epoch, ', went from ',
                previous_high_watermark, ' to ', high_watermark
            ) AS message,
            previous_position AS first_witness,
            position AS second_witness
        FROM ordered WHERE high_watermark <= previous_high_watermark
    """,
)
