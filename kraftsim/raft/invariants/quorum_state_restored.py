"""A replica of the metadata log resumes from its stored quorum state: in no earlier epoch, and in
the same epoch with the same leader or vote.

A replica that lost its vote could vote again. One that lost its own leadership could lead that
epoch a second time without notifying anyone of the restart. One that lost its leader would start an
election while there is one. The file may contain more than the last event reported, by a vote or a
leader. A vote may be dropped once a leader is known. Hosts whose disk lost or corrupted flushed
data by a fault are not checked, and neither is a broker that migrates: it deletes its metadata log
as it starts.
Source: org.apache.kafka.raft.QuorumState.initialize, KIP-595, KAFKA-10527.
"""

from kraftsim.events.event import Event
from kraftsim.events.runs import FaultInjected
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.spoilt_disks import SPOILT_CTE, SpoiltDisks
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.migration.events import MetadataCopyForgotten
from kraftsim.raft.events import QuorumStateStored, RaftRoleChanged

NAME = "quorum-state-restored"
NO_NODE = -1


class StoredStates:
    """Tracks the last stored state of each replica, and the latest incarnation that has started."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._stored: dict[str, tuple[QuorumStateStored, str]] = {}
        self._begun: dict[str, int] = {}
        self._spoilt = SpoiltDisks()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a stored state, or the first role of an incarnation."""
        node = envelope.node
        match event:
            case FaultInjected():
                self._spoilt.learn(event)
            case MetadataCopyForgotten():
                self._stored.pop(node, None)
            case QuorumStateStored():
                self._stored[node] = (event, envelope.event_id)
            case RaftRoleChanged() if self._begun.get(node) != envelope.incarnation:
                self._begun[node] = envelope.incarnation
                if node in self._stored and not self._spoilt.has(node):
                    return self._compare(envelope, event, *self._stored[node])
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _compare(
        self, envelope: Envelope, begun: RaftRoleChanged, stored: QuorumStateStored, stored_by: str
    ) -> Violation | None:
        self._findings.examined += 1
        if begun.leader_epoch > stored.leader_epoch or (
            begun.leader_epoch == stored.leader_epoch and _knows_as_much(begun, stored)
        ):
            return None
        message = f"{envelope.node} begins with {_said(begun)}, and had stored {_said(stored)}"
        return self._findings.violation(envelope.event_id, message, stored_by, envelope.event_id)


def _knows_as_much(begun: RaftRoleChanged, stored: QuorumStateStored) -> bool:
    if stored.leader_id != NO_NODE:
        return begun.leader_id == stored.leader_id
    return (
        stored.voted_id == NO_NODE
        or begun.leader_id != NO_NODE
        or begun.voted_id == stored.voted_id
    )


def _said(state: RaftRoleChanged | QuorumStateStored) -> str:
    return f"epoch {state.leader_epoch}, leader {state.leader_id}, vote {state.voted_id}"


_BEGUN = f"""
    WITH roles AS (
        SELECT
            run, node, incarnation, n, position, leader_epoch, leader_id, voted_id,
            row_number() OVER (PARTITION BY run, node, incarnation ORDER BY position) AS turn
        FROM raft_role_changed
    ), reported AS (
        SELECT run, node, position, FALSE AS is_kept FROM roles WHERE turn = 1
        UNION ALL SELECT run, node, position, TRUE AS is_kept FROM quorum_state_stored
        UNION ALL SELECT run, node, position, TRUE AS is_kept FROM metadata_copy_forgotten
    ), known AS (
        SELECT run, position, is_kept, max(CASE WHEN is_kept THEN position END)
            OVER (PARTITION BY run, node ORDER BY position) AS kept_at FROM reported
    ), {SPOILT_CTE}, begun AS (
        SELECT
            r.run, r.node, r.incarnation, r.n, r.position, r.leader_epoch, r.leader_id, r.voted_id,
                k.kept_at AS stored_at,
            s.leader_epoch AS stored_epoch, s.leader_id AS stored_leader, s.voted_id AS stored_vote
        FROM known AS k
        JOIN roles AS r ON r.run = k.run AND r.position = k.position
        JOIN quorum_state_stored AS s ON s.run = k.run AND s.position = k.kept_at
        LEFT JOIN spoilt AS d ON d.run = r.run AND d.target = r.node AND d.position < r.position
        WHERE NOT k.is_kept AND d.position IS NULL
    )
"""
"""The last stored state before a process started; if the metadata log was deleted since, there is
no state to compare with.
"""

INVARIANT = Invariant(
    name=NAME,
    rule="A replica of the metadata log resumes from its stored quorum state.",
    source="KIP-595, KAFKA-10527",
    watches=(QuorumStateStored, RaftRoleChanged, MetadataCopyForgotten, FaultInjected),
    check=StoredStates,
    examined=f"{_BEGUN} SELECT run, count(*) FROM begun GROUP BY run",
    violations=f"""
        {_BEGUN}
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                node, ' begins with epoch ', leader_epoch, ', leader ', leader_id, ', vote ',
                    voted_id,
                ', and had stored epoch ', stored_epoch, ', leader ', stored_leader, ', vote ',
                    stored_vote
            ) AS message,
            stored_at AS first_witness,
            position AS second_witness
        FROM begun
        WHERE leader_epoch < stored_epoch OR (leader_epoch = stored_epoch AND CASE
            WHEN stored_leader <> {NO_NODE} THEN leader_id <> stored_leader
            ELSE stored_vote <> {NO_NODE} AND leader_id = {NO_NODE} AND voted_id <> stored_vote
        END)
    """,
)
