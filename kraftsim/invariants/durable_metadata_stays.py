"""What a replica of the metadata log has once told to be durable it still has when it is back, less what was cut since.

A replica tells first of all what it has read back. A loss of power takes what was not flushed, and nothing else; a disk that loses or changes what it
has flushed is another matter: of a host that a fault did that to nothing is expected any more. A broker that migrates deletes its copy as it starts.
Source: KIP-595 (a voter acknowledges what it has flushed), the persistent state of Raft (Ongaro and Ousterhout 2014, figure 2).
"""

from kraftsim.events.event import Event
from kraftsim.events.migration import MetadataCopyForgotten
from kraftsim.events.raft import MetadataFlushed, MetadataTruncated, SnapshotLoaded
from kraftsim.events.runs import FaultFired
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.spoilt_disks import SPOILT_CTE, SpoiltDisks
from kraftsim.invariants.verdict import Verdict, Violation

NAME = "durable-metadata-stays"


class ToldToBeDurable:
    """Remembers for each node up to where its log is durable, and which of its processes have said what they found."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._durable: dict[str, tuple[int, str]] = {}
        self._incarnations: dict[str, int] = {}
        self._spoilt = SpoiltDisks()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Take in what is durable, what was cut, or that a disk is not to be believed."""
        node = envelope.node
        before = self._durable.get(node)
        match event:
            case FaultFired():
                self._spoilt.learn(event)
            case SnapshotLoaded(end_offset=end_offset):
                self._durable[node] = (end_offset, envelope.event_id)
            case MetadataCopyForgotten():
                self._durable[node] = (0, envelope.event_id)
            case MetadataTruncated(end_offset=end_offset) if before is not None:
                self._durable[node] = (min(end_offset, before[0]), before[1])
            case MetadataFlushed(end_offset=end_offset):
                self._durable[node] = (end_offset, envelope.event_id)
                is_back = self._incarnations.get(node) != envelope.incarnation
                self._incarnations[node] = envelope.incarnation
                if is_back and before is not None and not self._spoilt.has(node):
                    return self._compare(envelope, end_offset, *before)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _compare(self, envelope: Envelope, end_offset: int, told: int, told_by: str) -> Violation | None:
        self._findings.examined += 1
        if end_offset >= told:
            return None
        message = f"{envelope.node} is back with everything before {end_offset}, and had told that everything before {told} was durable"
        return self._findings.violation(envelope.event_id, message, told_by, envelope.event_id)


_BACK = f"""
    WITH told AS (
        SELECT
            run, node, incarnation, n, position, end_offset, 1 AS is_anew,
            row_number() OVER (PARTITION BY run, node, incarnation ORDER BY position) AS turn
        FROM metadata_flushed
        UNION ALL SELECT run, node, incarnation, n, position, end_offset, 1 AS is_anew, 0 AS turn FROM snapshot_loaded
        UNION ALL SELECT run, node, incarnation, n, position, 0 AS end_offset, 1 AS is_anew, 0 AS turn FROM metadata_copy_forgotten
        UNION ALL SELECT run, node, incarnation, n, position, end_offset, 0 AS is_anew, 0 AS turn FROM metadata_truncated
    ), staged AS (
        SELECT *, sum(is_anew) OVER (PARTITION BY run, node ORDER BY position) AS stage FROM told
    ), state AS (
        SELECT
            *,
            min(end_offset) OVER (PARTITION BY run, node, stage ORDER BY position) AS durable,
            min(position) OVER (PARTITION BY run, node, stage) AS told_position
        FROM staged WHERE stage > 0
    ), ordered AS (
        SELECT
            *,
            lag(durable) OVER (PARTITION BY run, node ORDER BY position) AS durable_before,
            lag(told_position) OVER (PARTITION BY run, node ORDER BY position) AS told_before
        FROM state
    ), {SPOILT_CTE}, back AS (
        SELECT o.run, o.node, o.incarnation, o.n, o.position, o.end_offset, o.durable_before, o.told_before
        FROM ordered AS o LEFT JOIN spoilt AS s ON s.run = o.run AND s.target = o.node AND s.position < o.position
        WHERE o.turn = 1 AND o.durable_before IS NOT NULL AND s.position IS NULL
    )
"""
"""Between two flushes or snapshots the lowest cut counts."""

INVARIANT = Invariant(
    name=NAME,
    rule="What a replica of the metadata log has told to be durable it still has when it is back.",
    source="KIP-595",
    watches=(MetadataFlushed, MetadataTruncated, SnapshotLoaded, MetadataCopyForgotten, FaultFired),
    check=ToldToBeDurable,
    examined=f"{_BACK} SELECT run, count(*) FROM back GROUP BY run",
    violations=f"""
        {_BACK}
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                node, ' is back with everything before ', end_offset, ', and had told that everything before ', durable_before, ' was durable'
            ) AS message,
            told_before AS first_witness,
            position AS second_witness
        FROM back WHERE end_offset < durable_before
    """,
)
