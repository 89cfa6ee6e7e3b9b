"""The quorum wastes neither epochs nor snapshots.

A candidate raises the highest epoch by one, so that epochs count elections. A replica writes a
snapshot only when its log has grown since the last one.
Source: KafkaRaftClient.transitionToCandidate; KIP-630, SnapshotGenerator.
"""

from typing import Final

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import (
    ElectionOpened,
    QuorumStateStored,
    RaftRoleChanged,
    SnapshotWritten,
)

EPOCHS: Final = "quorum-epochs-step-by-one"
SNAPSHOTS: Final = "snapshots-have-new-records"


class EpochsStepByOne:
    """Compares the epoch of each election with the highest one before."""

    def __init__(self) -> None:
        self._findings = Findings(EPOCHS)
        self._highest: tuple[int, str] | None = None

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an epoch."""
        assert isinstance(event, ElectionOpened | QuorumStateStored | RaftRoleChanged)
        before = self._highest
        epoch = event.leader_epoch
        if before is None or epoch > before[0]:
            self._highest = epoch, envelope.event_id
        if before is None or not isinstance(event, ElectionOpened):
            return None
        self._findings.examined += 1
        if epoch <= before[0] + 1:
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{envelope.node} started an election in epoch {epoch}, after epoch {before[0]}",
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_EPOCHS = """
    seen AS (
        SELECT run, node, incarnation, n, leader_epoch, position, 1 AS elections
        FROM election_opened
        UNION ALL
        SELECT run, node, incarnation, n, leader_epoch, position, 0 AS elections
        FROM quorum_state_stored
        UNION ALL
        SELECT run, node, incarnation, n, leader_epoch, position, 0 AS elections
        FROM raft_role_changed
    ), step AS (
        SELECT *, max(leader_epoch) OVER (PARTITION BY run ORDER BY position
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
        FROM seen
    )
"""

QUORUM_EPOCHS_STEP_BY_ONE = Invariant(
    name=EPOCHS,
    within_metadata_log=True,
    rule="A candidate's epoch is at most one above the highest epoch that any replica of the "
    "metadata log had.",
    source="KafkaRaftClient.transitionToCandidate",
    watches=(ElectionOpened, QuorumStateStored, RaftRoleChanged),
    check=EpochsStepByOne,
    examined=f"""
        WITH {_EPOCHS} SELECT run, count(*) FROM step
        WHERE elections = 1 AND highest IS NOT NULL GROUP BY run
    """,
    violations=f"""
        WITH {_EPOCHS}
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(node, ' started an election in epoch ', leader_epoch, ', after epoch ', highest)
                AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM step WHERE elections = 1 AND leader_epoch > highest + 1
    """,
)


class SnapshotsGrow:
    """Compares each snapshot with the last one of the same incarnation."""

    def __init__(self) -> None:
        self._findings = Findings(SNAPSHOTS)
        self._ends: dict[tuple[str, int], tuple[int, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a snapshot."""
        assert isinstance(event, SnapshotWritten)
        self._findings.examined += 1
        replica = (envelope.node, envelope.incarnation)
        before = self._ends.get(replica)
        self._ends[replica] = event.end_offset, envelope.event_id
        if before is None or event.end_offset > before[0]:
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{envelope.node} wrote a snapshot up to offset {event.end_offset}, after one up to "
            f"{before[0]}",
            before[1],
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_SNAPSHOTS = """
    step AS (
        SELECT *,
            lag(end_offset) OVER (PARTITION BY run, node, incarnation ORDER BY position)
                AS end_before,
            lag(position) OVER (PARTITION BY run, node, incarnation ORDER BY position)
                AS position_before
        FROM snapshot_written
    )
"""

SNAPSHOTS_HAVE_NEW_RECORDS = Invariant(
    name=SNAPSHOTS,
    within_metadata_log=True,
    rule="A replica of the metadata log writes a snapshot only after new records, each up to a "
    "later offset.",
    source="KIP-630",
    watches=(SnapshotWritten,),
    check=SnapshotsGrow,
    examined="SELECT run, count(*) FROM snapshot_written GROUP BY run",
    violations=f"""
        WITH {_SNAPSHOTS}
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(node, ' wrote a snapshot up to offset ', end_offset, ', after one up to ',
                end_before) AS message,
            position_before AS first_witness,
            position AS second_witness
        FROM step WHERE end_offset <= end_before
    """,
)

INVARIANTS = (QUORUM_EPOCHS_STEP_BY_ONE, SNAPSHOTS_HAVE_NEW_RECORDS)
