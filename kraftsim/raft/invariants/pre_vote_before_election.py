"""From 4.0 on a voter sends pre-vote requests before each election it starts; earlier releases
never do.

A voter that starts an election without a pre-vote raises the epoch of every voter that it reaches,
and deposes a leader that a majority follows. A voter that finds other voters without pre-vote
support (before 4.0) has sent its requests, and proceeds without their responses.
Source: KIP-996, KAFKA-16164.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import QuorumTimersSet, RaftRoleChanged

NAME = "pre-vote-before-election"
ASKING, CANDIDATE = "Prospective", "Candidate"


class AskedBefore:
    """Tracks the roles of each process that has reported whether it uses pre-vote. Its first role
    is not checked: its previous incarnation may have been a candidate.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._asks: dict[tuple[str, int], bool] = {}
        self._roles: dict[tuple[str, int], tuple[RaftRoleChanged, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process whether a process uses pre-vote, or its next role."""
        process = (envelope.node, envelope.incarnation)
        if isinstance(event, QuorumTimersSet):
            self._asks[process] = event.has_pre_vote
            return None
        assert isinstance(event, RaftRoleChanged)
        before = self._roles.get(process)
        self._roles[process] = (event, envelope.event_id)
        asks = self._asks.get(process)
        if before is None or asks is None:
            return None
        former, witness = before
        is_asking = event.role == ASKING and former.role != ASKING
        is_candidate = event.role == CANDIDATE and event.leader_epoch > former.leader_epoch
        if not is_asking and not is_candidate:
            return None
        self._findings.examined += 1
        if is_asking and not asks:
            message = (
                f"{envelope.node} asked before an election in epoch {event.leader_epoch}, which "
                "its release does not know"
            )
        elif is_candidate and asks and former.role != ASKING:
            message = f"{envelope.node} opened epoch {event.leader_epoch} and had not asked"
        else:
            return None
        return self._findings.violation(envelope.event_id, message, witness, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_STEPS = f"""
        WITH rule AS (
            SELECT run, node, incarnation, min(position) AS position,
                max(CAST(has_pre_vote AS INT)) AS asks
            FROM quorum_timers_set GROUP BY run, node, incarnation
        ), ordered AS (
            SELECT
                run, node, incarnation, n, position, role, leader_epoch,
                lag(role) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS former_role,
                lag(leader_epoch) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS former_epoch,
                lag(position) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS former_position
            FROM raft_role_changed
        ), step AS (
            SELECT o.run, o.node, o.incarnation, o.n, o.position, o.role, o.leader_epoch,
                o.former_role, o.former_position, r.asks
            FROM ordered AS o JOIN rule AS r ON r.run = o.run AND r.node = o.node
                AND r.incarnation = o.incarnation AND r.position < o.position
            WHERE (o.role = '{ASKING}' AND o.former_role <> '{ASKING}') OR (o.role = '{CANDIDATE}'
                AND o.leader_epoch > o.former_epoch)
        )
"""
INVARIANT = Invariant(
    name=NAME,
    rule="From 4.0 on a voter sends pre-vote requests before each election it starts; earlier "
    "releases never do.",
    source="KIP-996",
    watches=(QuorumTimersSet, RaftRoleChanged),
    check=AskedBefore,
    examined=f"{_STEPS} SELECT run, count(*) FROM step GROUP BY run",
    violations=f"""
        {_STEPS}
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            CASE WHEN role = '{ASKING}'
                THEN concat(node, ' asked before an election in epoch ', leader_epoch,
                    ', which its release does not know')
                ELSE concat(node, ' opened epoch ', leader_epoch,
                    ' and had not asked') END AS message,
            former_position AS first_witness,
            position AS second_witness
        FROM step WHERE (role = '{ASKING}' AND asks = 0) OR (role = '{CANDIDATE}' AND asks = 1
            AND former_role <> '{ASKING}')
    """,
)
