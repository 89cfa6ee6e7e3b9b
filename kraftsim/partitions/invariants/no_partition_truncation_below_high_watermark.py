"""A replica of a partition never truncates its log below its high watermark.

Every possible next leader was in sync and has the records below it. Only an unclean election may
remove them, on the followers in its epoch or a later one.
Source: KIP-101, KIP-279; kafka.server.ReplicaFetcherThread.truncate.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.unclean_elections import UNCLEAN, UncleanElections
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import PartitionChanged
from kraftsim.partitions.events import PartitionTruncated

NAME = "no-partition-truncation-below-high-watermark"


class KeepsWhatIsReplicated:
    """Compares each truncation with the high watermark that the replica knew."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._unclean = UncleanElections()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a truncation, or a change of leader."""
        assert isinstance(event, PartitionTruncated | PartitionChanged)
        if isinstance(event, PartitionChanged):
            self._unclean.learn(event)
            return None
        self._findings.examined += 1
        is_given_up = self._unclean.has_been(
            (event.topic, event.partition), after_epoch=-1, up_to_epoch=event.leader_epoch
        )
        if event.log_end_offset >= event.high_watermark or is_given_up:
            return None
        message = (
            f"{event.topic}-{event.partition}: {envelope.node} cut its log at "
            f"{event.log_end_offset}, though it knew that everything before "
            f"{event.high_watermark} is replicated"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A replica of a partition never truncates its log below its high watermark.",
    source="KIP-101, KIP-279",
    watches=(PartitionTruncated, PartitionChanged),
    check=KeepsWhatIsReplicated,
    examined="SELECT run, count(*) FROM partition_truncated GROUP BY run",
    violations=f"""
        WITH {UNCLEAN}
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                topic, '-', partition, ': ', node, ' cut its log at ', log_end_offset,
                    ', though it knew that everything before ', high_watermark,
                ' is replicated'
            ) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM partition_truncated AS t WHERE log_end_offset < high_watermark AND NOT EXISTS (
            SELECT 1 FROM unclean AS u WHERE u.run = t.run AND u.topic = t.topic
                AND u.partition = t.partition AND u.leader_epoch <= t.leader_epoch
        )
    """,
)
