"""If two replicas of a partition have a batch at the same offset and leader epoch, the batches are
equal.

Followers replicate what the leader of an epoch appended. A batch is identified by its last offset
and its checksum. A batch counts even if the replica truncated it later, because it may have been
read. A batch that was replicated from a cleaned log is what compaction left of it, and is not
checked. A topic that is deleted and created again under its name would be another topic: no
scenario does that.
Source: KIP-101, KIP-279; the log matching property of Raft (Ongaro and Ousterhout 2014, section
5.3).
"""

from kraftsim.events.event import Event
from kraftsim.invariants.cleaned_logs import CLEANED_WATCHES, CleanedLogs, cleaned
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.partitions.events import BatchAppended, BatchReplicated
from kraftsim.server.events import SegmentsCleaned

NAME = "partition-log-matching"


class FirstWritingOfPartition:
    """Tracks the first batch that any replica wrote at each offset and leader epoch."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._cleaned = CleanedLogs()
        self._batches: dict[tuple[str, int, int, int], tuple[int, int, str, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a batch that was written."""
        assert isinstance(event, BatchAppended | BatchReplicated | SegmentsCleaned)
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
_SAME = " AND ".join(f"w.{column} = f.{column}" for column in _PLACE.split(", "))

INVARIANT = Invariant(
    name=NAME,
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
            FROM written AS w JOIN first_batch AS f ON {_SAME}
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
        JOIN first_batch AS f ON {_SAME.replace("w.", "o.")}
        JOIN written AS w ON w.run = o.run AND w.position = o.position
    """,
)
