"""A replica of a partition never cuts off what it knows to be on all replicas that are in sync.

Whoever leads next was in sync and has it. Only an unclean election may take it away, which no story here allows.
Source: KIP-101, KIP-279; kafka.server.ReplicaFetcherThread.truncate.
"""

from kraftsim.events.event import Event
from kraftsim.events.partitions import PartitionTruncated
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

NAME = "no-partition-truncation-below-high-watermark"


class KeepsWhatIsReplicated:
    """Looks at each cut and what the replica knew before it."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Take in a cut."""
        assert isinstance(event, PartitionTruncated)
        self._findings.examined += 1
        if event.log_end_offset >= event.high_watermark:
            return None
        message = (
            f"{event.topic}-{event.partition}: {envelope.node} cut its log at {event.log_end_offset}, "
            f"though it knew that everything before {event.high_watermark} is replicated"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A replica of a partition is never cut below its high watermark.",
    source="KIP-101, KIP-279",
    watches=(PartitionTruncated,),
    check=KeepsWhatIsReplicated,
    examined="SELECT run, count(*) FROM partition_truncated GROUP BY run",
    violations="""
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                topic, '-', partition, ': ', node, ' cut its log at ', log_end_offset, ', though it knew that everything before ', high_watermark,
                ' is replicated'
            ) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM partition_truncated WHERE log_end_offset < high_watermark
    """,
)
