"""A snapshot and the metadata log after it give the same metadata as the log from its beginning.

Read from the disks at the end of the run: every snapshot, and every log after one, is compared at
the same offset, on all controllers. The epoch of the last record is compared with the offset,
because only then is it the same log.
Source: KIP-630, KAFKA-13357, KAFKA-14618.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import FinalMetadata

NAME = "snapshot-equals-log"


class SameDigest:
    """Tracks the first digest for each offset and epoch."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._first: dict[tuple[int, int], tuple[FinalMetadata, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process the metadata on a disk at an offset."""
        assert isinstance(event, FinalMetadata)
        self._findings.examined += event.from_offset > 0
        first, witness = self._first.setdefault(
            (event.end_offset, event.epoch), (event, envelope.event_id)
        )
        if first.digest == event.digest:
            return None
        message = (
            f"at offset {event.end_offset} {event.controller} (from {event.from_offset} on) and "
            f"{first.controller} (from {first.from_offset} on) say different things of the "
            "cluster"
        )
        return self._findings.violation(
            f"{event.end_offset}/{event.epoch}", message, witness, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A snapshot and the metadata log after it give the same metadata as the log from its "
    "beginning.",
    source="KIP-630, KAFKA-13357, KAFKA-14618",
    watches=(FinalMetadata,),
    check=SameDigest,
    examined="SELECT run, count(*) FROM final_metadata WHERE from_offset > 0 GROUP BY run",
    violations="""
        WITH first_position AS (
            SELECT run, end_offset, epoch, min(position) AS position FROM final_metadata
                GROUP BY run, end_offset, epoch
        ), first_digest AS (
            SELECT m.* FROM first_position AS f JOIN final_metadata AS m ON m.run = f.run
                AND m.position = f.position
        ), other AS (
            SELECT m.run, m.end_offset, m.epoch, min(m.position) AS position
            FROM final_metadata AS m JOIN first_digest AS f
                ON m.run = f.run AND m.end_offset = f.end_offset AND m.epoch = f.epoch
                    AND m.digest <> f.digest
            GROUP BY m.run, m.end_offset, m.epoch
        )
        SELECT
            f.run,
            concat(f.end_offset, '/', f.epoch) AS key,
            concat(
                'at offset ', f.end_offset, ' ', m.controller, ' (from ', m.from_offset,
                    ' on) and ', f.controller, ' (from ', f.from_offset,
                ' on) say different things of the cluster'
            ) AS message,
            f.position AS first_witness,
            m.position AS second_witness
        FROM other AS o
        JOIN first_digest AS f ON f.run = o.run AND f.end_offset = o.end_offset
            AND f.epoch = o.epoch
        JOIN final_metadata AS m ON m.run = o.run AND m.position = o.position
    """,
)
