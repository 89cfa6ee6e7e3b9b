"""If two replicas of the metadata log have a batch at the same offset and epoch, the batches and
everything before them are equal.

A batch is identified by its checksum and its last offset. The epoch of the record before it
represents everything before: two logs that agree on it at every batch agree on the whole prefix. A
batch counts even if the replica lost it later, because it may have been read (KAFKA-10527).
Source: KIP-595, the log matching property of Raft (Ongaro and Ousterhout 2014, section 5.3).
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import MetadataWritten

NAME = "metadata-log-matching"


class FirstWriting:
    """Tracks the first batch that any replica wrote at each offset and epoch."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._batches: dict[tuple[int, int], tuple[MetadataWritten, str, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a batch that was written."""
        assert isinstance(event, MetadataWritten)
        self._findings.examined += 1
        known = self._batches.setdefault(
            (event.epoch, event.first_offset), (event, envelope.node, envelope.event_id)
        )
        first, node, witness = known
        if (first.last_offset, first.previous_epoch, first.crc) == (
            event.last_offset,
            event.previous_epoch,
            event.crc,
        ):
            return None
        message = (
            f"the batch of epoch {event.epoch} at offset {event.first_offset} that "
            f"{envelope.node} wrote is not the one that {node} wrote first"
        )
        return self._findings.violation(
            f"{event.epoch}/{event.first_offset}", message, witness, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="If two replicas of the metadata log have a batch at the same offset and epoch, the "
    "batches and everything before them are equal.",
    source="KIP-595",
    watches=(MetadataWritten,),
    check=FirstWriting,
    examined="SELECT run, count(*) FROM metadata_written GROUP BY run",
    violations="""
        WITH first_position AS (
            SELECT run, epoch, first_offset, min(position) AS position FROM metadata_written
                GROUP BY run, epoch, first_offset
        ), first_batch AS (
            SELECT w.* FROM first_position AS f JOIN metadata_written AS w ON w.run = f.run
                AND w.position = f.position
        ), other AS (
            SELECT w.run, w.epoch, w.first_offset, min(w.position) AS position
            FROM metadata_written AS w JOIN first_batch AS f ON w.run = f.run AND w.epoch = f.epoch
                AND w.first_offset = f.first_offset
            WHERE w.last_offset <> f.last_offset OR w.previous_epoch <> f.previous_epoch
                OR w.crc <> f.crc
            GROUP BY w.run, w.epoch, w.first_offset
        )
        SELECT
            f.run,
            concat(f.epoch, '/', f.first_offset) AS key,
            concat(
                'the batch of epoch ', f.epoch, ' at offset ', f.first_offset, ' that ', w.node,
                    ' wrote is not the one that ', f.node, ' wrote first'
            ) AS message,
            f.position AS first_witness,
            w.position AS second_witness
        FROM other AS o
        JOIN first_batch AS f ON f.run = o.run AND f.epoch = o.epoch
            AND f.first_offset = o.first_offset
        JOIN metadata_written AS w ON w.run = o.run AND w.position = o.position
    """,
)
