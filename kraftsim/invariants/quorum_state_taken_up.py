"""A replica of the metadata log goes on where its quorum-state says that it stopped: in no earlier epoch, and in that one with that leader or vote.

Whoever forgot a vote could give it again; who forgot that it led would lead that epoch a second time, and tell nobody that it was gone; who forgot
whom it followed would stand for election while there is a leader. What the file says may have grown since it was last told of, by a vote or a leader.
A vote may be forgotten once a leader is known. A disk that loses or changes what it has flushed is another matter, and so is a broker that migrates:
it deletes its copy as it starts.
Source: org.apache.kafka.raft.QuorumState.initialize, KIP-595, KAFKA-10527.
"""

from kraftsim.events.event import Event
from kraftsim.events.migration import MetadataCopyForgotten
from kraftsim.events.raft import QuorumStateStored, RaftRoleChanged
from kraftsim.events.runs import FaultFired
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.spoilt_disks import SPOILT_CTE, SpoiltDisks
from kraftsim.invariants.verdict import Verdict, Violation

NAME = "quorum-state-taken-up"
NOBODY = -1


class StoredStates:
    """Remembers what each replica stored last, and which of its processes have begun."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._stored: dict[str, tuple[QuorumStateStored, str]] = {}
        self._begun: dict[str, int] = {}
        self._spoilt = SpoiltDisks()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Take in what was stored, or how a replica begins."""
        node = envelope.node
        match event:
            case FaultFired():
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

    def _compare(self, envelope: Envelope, begun: RaftRoleChanged, stored: QuorumStateStored, stored_by: str) -> Violation | None:
        self._findings.examined += 1
        if begun.leader_epoch > stored.leader_epoch or (begun.leader_epoch == stored.leader_epoch and _knows_as_much(begun, stored)):
            return None
        message = f"{envelope.node} begins with {_said(begun)}, and had stored {_said(stored)}"
        return self._findings.violation(envelope.event_id, message, stored_by, envelope.event_id)


def _knows_as_much(begun: RaftRoleChanged, stored: QuorumStateStored) -> bool:
    if stored.leader_id != NOBODY:
        return begun.leader_id == stored.leader_id
    return stored.voted_id == NOBODY or begun.leader_id != NOBODY or begun.voted_id == stored.voted_id


def _said(state: RaftRoleChanged | QuorumStateStored) -> str:
    return f"epoch {state.leader_epoch}, leader {state.leader_id}, vote {state.voted_id}"


_BEGUN = f"""
    WITH roles AS (
        SELECT
            run, node, incarnation, n, position, leader_epoch, leader_id, voted_id,
            row_number() OVER (PARTITION BY run, node, incarnation ORDER BY position) AS turn
        FROM raft_role_changed
    ), told AS (
        SELECT run, node, position, FALSE AS is_kept FROM roles WHERE turn = 1
        UNION ALL SELECT run, node, position, TRUE AS is_kept FROM quorum_state_stored
        UNION ALL SELECT run, node, position, TRUE AS is_kept FROM metadata_copy_forgotten
    ), known AS (
        SELECT run, position, is_kept, max(CASE WHEN is_kept THEN position END) OVER (PARTITION BY run, node ORDER BY position) AS kept_at FROM told
    ), {SPOILT_CTE}, begun AS (
        SELECT
            r.run, r.node, r.incarnation, r.n, r.position, r.leader_epoch, r.leader_id, r.voted_id, k.kept_at AS stored_at,
            s.leader_epoch AS stored_epoch, s.leader_id AS stored_leader, s.voted_id AS stored_vote
        FROM known AS k
        JOIN roles AS r ON r.run = k.run AND r.position = k.position
        JOIN quorum_state_stored AS s ON s.run = k.run AND s.position = k.kept_at
        LEFT JOIN spoilt AS d ON d.run = r.run AND d.target = r.node AND d.position < r.position
        WHERE NOT k.is_kept AND d.position IS NULL
    )
"""
"""The last that was kept before a process began; where that is a copy that was thrown away, there is no state to compare with."""

INVARIANT = Invariant(
    name=NAME,
    rule="A replica of the metadata log goes on where its quorum-state says that it stopped.",
    source="KIP-595, KAFKA-10527",
    watches=(QuorumStateStored, RaftRoleChanged, MetadataCopyForgotten, FaultFired),
    check=StoredStates,
    examined=f"{_BEGUN} SELECT run, count(*) FROM begun GROUP BY run",
    violations=f"""
        {_BEGUN}
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                node, ' begins with epoch ', leader_epoch, ', leader ', leader_id, ', vote ', voted_id,
                ', and had stored epoch ', stored_epoch, ', leader ', stored_leader, ', vote ', stored_vote
            ) AS message,
            stored_at AS first_witness,
            position AS second_witness
        FROM begun
        WHERE leader_epoch < stored_epoch OR (leader_epoch = stored_epoch AND CASE
            WHEN stored_leader <> {NOBODY} THEN leader_id <> stored_leader
            ELSE stored_vote <> {NOBODY} AND leader_id = {NOBODY} AND voted_id <> stored_vote
        END)
    """,
)
