"""The high watermark that a leader sends is never below one that a leader of an earlier epoch sent
before.

A new leader may know a lower high watermark than its predecessor sent. It must not send one until
the record that starts its epoch is committed. Apache Kafka's replicas fail on a high watermark
below their own.
Source: KIP-595, org.apache.kafka.raft.LeaderState.updateHighWatermark and
FollowerState.updateHighWatermark.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import HighWatermarkReported

NAME = "high-watermark-monotonic-across-epochs"


class SentInOrder:
    """Compares the first high watermark that is sent in each epoch with all that were sent in
    earlier epochs.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._sent: list[tuple[int, int, str]] = []
        self._epochs: set[int] = set()  # for membership only, never iterated

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a high watermark that a leader sent."""
        assert isinstance(event, HighWatermarkReported)
        self._findings.examined += 1
        higher = None
        if event.leader_epoch not in self._epochs:
            higher = next(
                (
                    each
                    for each in self._sent
                    if each[0] < event.leader_epoch and each[1] > event.high_watermark
                ),
                None,
            )
        self._epochs.add(event.leader_epoch)
        self._sent.append((event.leader_epoch, event.high_watermark, envelope.event_id))
        if higher is None:
            return None
        message = (
            f"{envelope.node} reported {event.high_watermark} in epoch {event.leader_epoch}, and "
            f"{higher[1]} had been reported in epoch {higher[0]}"
        )
        return self._findings.violation(
            str(event.leader_epoch), message, higher[2], envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="The high watermark that a leader sends is never below one that a leader of an earlier "
    "epoch sent before.",
    source="KIP-595",
    watches=(HighWatermarkReported,),
    check=SentInOrder,
    examined="SELECT run, count(*) FROM high_watermark_reported GROUP BY run",
    violations="""
        WITH beginning AS (
            SELECT run, leader_epoch, min(position) AS position FROM high_watermark_reported
                GROUP BY run, leader_epoch
        ), breach AS (
            SELECT f.run, f.position, min(h.position) AS higher_position
            FROM beginning AS b
            JOIN high_watermark_reported AS f ON f.run = b.run AND f.position = b.position
            JOIN high_watermark_reported AS h
                ON h.run = f.run AND h.position < f.position AND h.leader_epoch < f.leader_epoch
                    AND h.high_watermark > f.high_watermark
            GROUP BY f.run, f.position
        )
        SELECT
            f.run,
            CAST(f.leader_epoch AS STRING) AS key,
            concat(
                f.node, ' reported ', f.high_watermark, ' in epoch ', f.leader_epoch,
                ', and ', h.high_watermark, ' had been reported in epoch ', h.leader_epoch
            ) AS message,
            h.position AS first_witness,
            f.position AS second_witness
        FROM breach AS b
        JOIN high_watermark_reported AS f ON f.run = b.run AND f.position = b.position
        JOIN high_watermark_reported AS h ON h.run = b.run AND h.position = b.higher_position
    """,
)
