"""While a replica of the metadata log runs, its high watermark only grows.

Whoever was told that something is committed must never be told otherwise.   Source: KIP-595, org.apache.kafka.raft.LogOffsetMetadata,
RaftEventSimulationTest.MonotonicHighWatermark.
"""

from kraftsim.events.event import Event
from kraftsim.events.raft import HighWatermarkMoved
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME = "high-watermark-monotonic"


class AlwaysHigher:
    """Remembers the latest high watermark of each process. A restart begins without one."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._latest: dict[tuple[str, int], tuple[int, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Take in a high watermark."""
        assert isinstance(event, HighWatermarkMoved)
        self._findings.examined += 1
        process = (envelope.node, envelope.incarnation)
        before, self._latest[process] = self._latest.get(process), (event.high_watermark, envelope.event_id)
        if before is None or event.high_watermark > before[0]:
            return None
        message = f"the high watermark of {envelope.node} went from {before[0]} to {event.high_watermark}"
        return self._findings.violation(envelope.event_id, message, before[1], envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="While a replica of the metadata log runs, its high watermark only grows.",
    source="KIP-595",
    watches=(HighWatermarkMoved,),
    check=AlwaysHigher,
    examined="SELECT run, count(*) FROM high_watermark_moved GROUP BY run",
    violations="""
        WITH ordered AS (
            SELECT
                run, node, incarnation, n, position, high_watermark,
                lag(high_watermark) OVER (PARTITION BY run, node, incarnation ORDER BY position) AS previous_high_watermark,
                lag(position) OVER (PARTITION BY run, node, incarnation ORDER BY position) AS previous_position
            FROM high_watermark_moved
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat('the high watermark of ', node, ' went from ', previous_high_watermark, ' to ', high_watermark) AS message,
            previous_position AS first_witness,
            position AS second_witness
        FROM ordered WHERE high_watermark <= previous_high_watermark
    """,
)
