"""Metadata that a replica reported as durable, and did not truncate since, is still there after a
restart and at the end of the run.

A replica first reports what it has read back after a restart. At the end of the run its disk is
read, up to the first gap in the log. A snapshot that was fetched completely counts as everything it
covers, whether or not it has replaced the log yet. A power loss removes what was not flushed, and
nothing else. Hosts whose disk lost or corrupted flushed data by a fault are not checked from then
on. A broker that migrates deletes its metadata log as it starts.
Source: KIP-595 (a voter acknowledges what it has flushed), KIP-630, the persistent state of Raft
(Ongaro and Ousterhout 2014, figure 2).
"""

from kraftsim.events.event import Event
from kraftsim.events.runs import FaultInjected
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.spoilt_disks import SPOILT_CTE, SpoiltDisks
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.migration.events import MetadataCopyForgotten
from kraftsim.raft.events import (
    FinalMetadataLog,
    MetadataFlushed,
    MetadataTruncated,
    SnapshotFetched,
    SnapshotLoaded,
)

NAME = "flushed-metadata-retained"


class DurableEnds:
    """Tracks the durable end offset of each node, and which incarnations have reported what they
    recovered.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._durable: dict[str, tuple[int, str]] = {}
        self._incarnations: dict[str, int] = {}
        self._spoilt = SpoiltDisks()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a flush, a snapshot, a truncation, or a fault that makes a disk unreliable."""
        node = envelope.node
        before = self._durable.get(node)
        match event:
            case FaultInjected():
                self._spoilt.learn(event)
            case SnapshotFetched(end_offset=end_offset) | SnapshotLoaded(end_offset=end_offset):
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
                    return self._compare(envelope, f"{node} is back with", end_offset, *before)
            case FinalMetadataLog(controller=controller, end_offset=end_offset) if (
                controller in self._durable and not self._spoilt.has(controller)
            ):
                reported = self._durable[controller]
                self._durable[controller] = (end_offset, envelope.event_id)
                return self._compare(
                    envelope, f"the disk of {controller} has", end_offset, *reported
                )
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _compare(
        self, envelope: Envelope, found: str, end_offset: int, reported: int, reported_by: str
    ) -> Violation | None:
        self._findings.examined += 1
        if end_offset >= reported:
            return None
        message = (
            f"{found} everything before {end_offset}, and everything before {reported} had been "
            "reported to be durable"
        )
        return self._findings.violation(envelope.event_id, message, reported_by, envelope.event_id)


_BACK = f"""
    WITH reported AS (
        SELECT
            run, node, concat(node, '.', incarnation, '.', n) AS key, concat(node,
                ' is back with') AS found, position, end_offset, 1 AS is_restart,
            row_number() OVER (PARTITION BY run, node, incarnation ORDER BY position) AS turn
        FROM metadata_flushed
        UNION ALL SELECT run, node, '' AS key, '' AS found, position, end_offset, 1 AS is_restart,
            0 AS turn FROM snapshot_fetched
        UNION ALL SELECT run, node, '' AS key, '' AS found, position, end_offset, 1 AS is_restart,
            0 AS turn FROM snapshot_loaded
        UNION ALL SELECT run, node, '' AS key, '' AS found, position, 0 AS end_offset,
            1 AS is_restart, 0 AS turn FROM metadata_copy_forgotten
        UNION ALL SELECT run, node, '' AS key, '' AS found, position, end_offset, 0 AS is_restart,
            0 AS turn FROM metadata_truncated
        UNION ALL SELECT
            run, controller AS node, concat(node, '.', incarnation, '.', n) AS key,
                concat('the disk of ', controller, ' has') AS found,
            position, end_offset, 1 AS is_restart, 1 AS turn
        FROM final_metadata_log
    ), staged AS (
        SELECT *, sum(is_restart) OVER (PARTITION BY run, node ORDER BY position) AS stage
            FROM reported
    ), state AS (
        SELECT
            *,
            min(end_offset) OVER (PARTITION BY run, node, stage ORDER BY position) AS durable,
            min(position) OVER (PARTITION BY run, node, stage) AS reported_position
        FROM staged WHERE stage > 0
    ), ordered AS (
        SELECT
            *,
            lag(durable) OVER (PARTITION BY run, node ORDER BY position) AS durable_before,
            lag(reported_position) OVER (PARTITION BY run, node
                ORDER BY position) AS reported_before
        FROM state
    ), {SPOILT_CTE}, back AS (
        SELECT o.run, o.key, o.found, o.position, o.end_offset, o.durable_before, o.reported_before
        FROM ordered AS o LEFT JOIN spoilt AS s ON s.run = o.run AND s.target = o.node
            AND s.position < o.position
        WHERE o.turn = 1 AND o.durable_before IS NOT NULL AND s.position IS NULL
    )
"""
"""Between two flushes or snapshots, the lowest truncation offset applies."""

INVARIANT = Invariant(
    name=NAME,
    rule="Metadata that a replica reported as durable, and did not truncate, is still there after "
    "a restart and at the end of the run.",
    source="KIP-595",
    watches=(
        MetadataFlushed,
        MetadataTruncated,
        SnapshotFetched,
        SnapshotLoaded,
        MetadataCopyForgotten,
        FinalMetadataLog,
        FaultInjected,
    ),
    check=DurableEnds,
    examined=f"{_BACK} SELECT run, count(*) FROM back GROUP BY run",
    violations=f"""
        {_BACK}
        SELECT
            run,
            key,
            concat(found, ' everything before ', end_offset, ', and everything before ',
                durable_before,
                ' had been reported to be durable') AS message,
            reported_before AS first_witness,
            position AS second_witness
        FROM back WHERE end_offset < durable_before
    """,
)
