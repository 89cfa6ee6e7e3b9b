"""How a replica of the metadata log changes its role and its epoch.

An epoch never goes back, not by a restart and not by a request of a former leader. Elections and
resignations follow the time-outs: too late, and the cluster has no leader for longer than it
should; too early, and it elects without need.
"""

from typing import Final

from kraftsim.events.event import Event
from kraftsim.events.runs import FaultInjected, RunStarted
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.permitted_losses import SPOILT_CTE, SpoiltDisks
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.migration.events import MetadataCopyForgotten
from kraftsim.raft.events import (
    CheckQuorumFailed,
    ElectionLost,
    ElectionOpened,
    LaterEpochAnswered,
    QuorumStateStored,
    QuorumTimersSet,
    RaftRoleChanged,
)

NO_NODE = -1


class StoredStates:
    """A replica of the metadata log resumes from its stored quorum state: in no earlier epoch, and
    in the same epoch with the same leader or vote.

    A replica that lost its vote could vote again. One that lost its own leadership could lead that
    epoch a second time without notifying anyone of the restart. One that lost its leader would
    start an election while there is one. The file may contain more than the last event reported, by
    a vote or a leader. A vote may be dropped once a leader is known. Hosts whose disk lost or
    corrupted flushed data by a fault are not checked, and neither is a broker that migrates: it
    deletes its metadata log as it starts.

    Tracks the last stored state of each replica, and the latest incarnation that has started.

    Source: org.apache.kafka.raft.QuorumState.initialize, KIP-595, KAFKA-10527.
    """

    def __init__(self) -> None:
        self._findings = Findings("quorum-state-restored")
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

QUORUM_STATE_RESTORED = Invariant(
    name="quorum-state-restored",
    within_metadata_log=True,
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


class RefusedOrNot:
    """A replica rejects every request with an epoch older than its own.

    The sender is behind: it receives the current epoch, and must find the leader of that epoch
    before any of its requests or responses count.

    Checks the error code of each response that has a later epoch than its request.

    Source: KIP-595 (FENCED_LEADER_EPOCH of Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and
    FetchSnapshot), KafkaRaftClient.validateLeaderOnlyRequest.
    """

    def __init__(self) -> None:
        self._findings = Findings("stale-epochs-refused")

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a response."""
        assert isinstance(event, LaterEpochAnswered)
        self._findings.examined += 1
        if event.error_code:
            return None
        message = (
            f"node {event.asked_node_id} is in epoch {event.leader_epoch}, and served "
            f"{envelope.node} in epoch {event.asked_epoch}"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


STALE_EPOCHS_REFUSED = Invariant(
    name="stale-epochs-refused",
    rule="A replica rejects every request with an epoch older than its own.",
    source="KIP-595",
    watches=(LaterEpochAnswered,),
    check=RefusedOrNot,
    examined="SELECT run, count(*) FROM later_epoch_answered GROUP BY run",
    violations="""
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat('node ', asked_node_id, ' is in epoch ', leader_epoch, ', and served ', node,
                ' in epoch ', asked_epoch) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM later_epoch_answered WHERE error_code = 0
    """,
)


SIM: Final = "sim"
PROMPT: Final = (
    "partition",
    "isolate-leader",
    "restart",
    "kill",
    "cut-connection",
    "old-epoch-answer",
)
"""Faults that do not delay the nodes that are running."""
CANDIDATE, LOST, OTHER = "Candidate", "lost", "other"
NS_PER_MS: Final = 1_000_000


class ElectionStep:
    """One step of a process: a role change or a defeat."""

    __slots__ = ("defeats", "event_id", "kind", "leader_epoch", "pause_ms", "t_ns")

    def __init__(self, envelope: Envelope, event: RaftRoleChanged | ElectionLost) -> None:
        is_lost = isinstance(event, ElectionLost)
        self.kind = (
            LOST
            if is_lost
            else CANDIDATE
            if isinstance(event, RaftRoleChanged) and event.role == CANDIDATE
            else OTHER
        )
        self.defeats, self.pause_ms = (
            (event.defeats, event.pause_ms) if isinstance(event, ElectionLost) else (0, 0)
        )
        self.leader_epoch, self.t_ns, self.event_id = (
            event.leader_epoch,
            envelope.t_ns,
            envelope.event_id,
        )


class KeptTimes:
    """In virtual time a candidate's election ends within its timeout, and its backoff lasts at most
    as long as drawn and grows with each defeat.

    A candidate that waits longer leaves the cluster without a leader for longer than its settings
    allow. A candidate whose backoff does not grow with its defeats collides with the same rivals
    again and again. Times are checked until a fault is injected that may delay a node, such as a
    pause or a slow disk. Virtual time does not advance while nodes compute, so nothing else delays
    them, not by a millisecond. Over sockets the machine itself causes delays, and only the number
    of defeats is checked.

    Keeps the last two steps of each process.

    Source: KIP-595 (controller.quorum.election.timeout.ms,
    controller.quorum.election.backoff.max.ms, binary exponential backoff).
    """

    def __init__(self) -> None:
        self._findings = Findings("election-timeouts-respected")
        self._has_begun = False
        self._is_disturbed = False
        self._timers: dict[tuple[str, int], QuorumTimersSet] = {}
        self._timeouts: dict[tuple[str, int, int], int] = {}
        self._steps: dict[tuple[str, int], tuple[ElectionStep, ...]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process the mode of the run, a fault, timeouts, or the next step of a process."""
        process = (envelope.node, envelope.incarnation)
        match event:
            case RunStarted(mode=mode):
                self._has_begun = self._has_begun or mode == SIM
            case FaultInjected(fault=fault):
                self._is_disturbed = self._is_disturbed or fault not in PROMPT
            case QuorumTimersSet():
                self._timers[process] = event
            case ElectionOpened(leader_epoch=leader_epoch, timeout_ms=timeout_ms):
                self._timeouts[*process, leader_epoch] = timeout_ms
            case RaftRoleChanged() | ElectionLost():
                step = ElectionStep(envelope, event)
                before = self._steps.get(process, ())
                self._steps[process] = (*before[-1:], step)
                if before:
                    late = self._examine_time(process, before[-1], step)
                    return self._examine_count(envelope.node, before, step) or late
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _examine_time(
        self, process: tuple[str, int], before: ElectionStep, step: ElectionStep
    ) -> Violation | None:
        timers = self._timers.get(process)
        if not self._has_begun or self._is_disturbed or timers is None or before.kind == OTHER:
            return None
        self._findings.examined += 1
        longest_ms = (
            2 * timers.election_timeout_ms - 1
            if before.kind == CANDIDATE
            else timers.election_backoff_max_ms
        )
        drawn_ms = (
            self._timeouts.get((*process, before.leader_epoch), longest_ms)
            if before.kind == CANDIDATE
            else before.pause_ms
        )
        limit_ms = min(longest_ms, drawn_ms)
        took_ms = (step.t_ns - before.t_ns) // NS_PER_MS
        if took_ms <= limit_ms:
            return None
        what = "stood for election" if before.kind == CANDIDATE else "paused"
        message = (
            f"{process[0]} {what} in epoch {before.leader_epoch} for {took_ms} ms, and "
            f"{limit_ms} ms is the longest"
        )
        return self._findings.violation(step.event_id, message, before.event_id, step.event_id)

    def _examine_count(
        self, node: str, before: tuple[ElectionStep, ...], step: ElectionStep
    ) -> Violation | None:
        if [each.kind for each in (*before, step)] != [LOST, CANDIDATE, LOST]:
            return None
        self._findings.examined += 1
        lost = before[0]
        if step.defeats == lost.defeats + 1:
            return None
        message = (
            f"{node} lost epoch {lost.leader_epoch} as defeat {lost.defeats} in a row, and epoch "
            f"{step.leader_epoch} as defeat {step.defeats}"
        )
        return self._findings.violation(
            f"{step.event_id}/defeats", message, lost.event_id, step.event_id
        )


_STEPS = f"""
        WITH timed AS (
            SELECT s.run, s.position AS from_position, min(f.position) AS to_position
            FROM (SELECT run, min(position) AS position FROM run_started WHERE mode = '{SIM}'
                GROUP BY run) AS s
            LEFT JOIN fault_injected AS f ON f.run = s.run AND f.fault NOT IN {PROMPT}
            GROUP BY s.run, s.position
        ), timers AS (
            SELECT
                run, node, incarnation, min(position) AS position,
                    max(election_timeout_ms) AS election_timeout_ms,
                max(election_backoff_max_ms) AS election_backoff_max_ms
            FROM quorum_timers_set GROUP BY run, node, incarnation
        ), opened AS (
            SELECT run, node, incarnation, leader_epoch, max(timeout_ms) AS timeout_ms
            FROM election_opened GROUP BY run, node, incarnation, leader_epoch
        ), step AS (
            SELECT
                run, node, incarnation, n, position, t_ns, leader_epoch, 0 AS defeats,
                    0 AS pause_ms,
                CASE WHEN role = '{CANDIDATE}' THEN '{CANDIDATE}' ELSE '{OTHER}' END AS step
            FROM raft_role_changed
            UNION ALL SELECT run, node, incarnation, n, position, t_ns, leader_epoch, defeats,
                pause_ms, '{LOST}' AS step FROM election_lost
        ), ordered AS (
            SELECT
                run, node, incarnation, n, position, t_ns, leader_epoch, defeats, step,
                lag(step) OVER (PARTITION BY run, node, incarnation ORDER BY position) AS former,
                lag(position) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS former_position,
                lag(pause_ms) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS former_pause_ms,
                lag(t_ns) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS former_t_ns,
                lag(leader_epoch) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS former_epoch,
                lag(step, 2) OVER (PARTITION BY run, node, incarnation ORDER BY position) AS second,
                lag(position, 2) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS second_position,
                lag(leader_epoch, 2) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS second_epoch,
                lag(defeats, 2) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS second_defeats
            FROM step
        ), late AS (
            SELECT
                o.*,
                floor((o.t_ns - o.former_t_ns) / {NS_PER_MS}) AS took,
                CASE WHEN o.former = '{CANDIDATE}'
                    THEN least(2 * t.election_timeout_ms - 1, coalesce(e.timeout_ms,
                        2 * t.election_timeout_ms - 1))
                    ELSE least(t.election_backoff_max_ms, o.former_pause_ms) END AS limit_ms
            FROM ordered AS o
            JOIN timed AS w ON w.run = o.run AND w.from_position < o.position
                AND (w.to_position IS NULL OR o.position < w.to_position)
            JOIN timers AS t ON t.run = o.run AND t.node = o.node AND t.incarnation = o.incarnation
                AND t.position < o.position
            LEFT JOIN opened AS e
                ON e.run = o.run AND e.node = o.node AND e.incarnation = o.incarnation
                    AND e.leader_epoch = o.former_epoch
            WHERE o.former IN ('{CANDIDATE}', '{LOST}')
        ), counted AS (
            SELECT * FROM ordered WHERE step = '{LOST}' AND former = '{CANDIDATE}'
                AND second = '{LOST}'
        )
"""
ELECTION_TIMEOUTS_RESPECTED = Invariant(
    name="election-timeouts-respected",
    rule="A candidate wins or gives up within its election timeout, backs off at most as long as "
    "drawn, and counts its consecutive defeats.",
    source="KIP-595",
    watches=(
        RunStarted,
        FaultInjected,
        QuorumTimersSet,
        ElectionOpened,
        RaftRoleChanged,
        ElectionLost,
    ),
    check=KeptTimes,
    examined=f"""
        {_STEPS}
        SELECT run, count(*) FROM (SELECT run FROM late UNION ALL SELECT run
            FROM counted) AS looked_at GROUP BY run
    """,
    violations=f"""
        {_STEPS}
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                node, CASE WHEN former = '{CANDIDATE}' THEN ' stood for election'
                    ELSE ' paused' END, ' in epoch ', former_epoch, ' for ',
                CAST(took AS BIGINT), ' ms, and ', limit_ms, ' ms is the longest'
            ) AS message,
            former_position AS first_witness,
            position AS second_witness
        FROM late WHERE took > limit_ms
        UNION ALL
        SELECT
            run,
            concat(node, '.', incarnation, '.', n, '/defeats') AS key,
            concat(
                node, ' lost epoch ', second_epoch, ' as defeat ', second_defeats,
                    ' in a row, and epoch ', leader_epoch, ' as defeat ', defeats
            ) AS message,
            second_position AS first_witness,
            position AS second_witness
        FROM counted WHERE defeats <> second_defeats + 1
    """,
)


class TooFewFetched:
    """A leader resigns for lack of fetches only if fewer than a majority of the voters, itself
    included, fetched within the timeout.

    A leader that resigns while a majority follows it causes a needless election at each check, as
    long as another voter is away. Checked only for static voters: with voters in the log, the
    majority may have been of another voter set shortly before.

    Compares the number of voters that fetched with a majority.

    Source: KAFKA-15489, org.apache.kafka.raft.LeaderState.timeUntilCheckQuorumExpires.
    """

    def __init__(self) -> None:
        self._findings = Findings("resignation-only-below-majority")

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process the resignation of a leader."""
        assert isinstance(event, CheckQuorumFailed)
        if event.kraft_version:
            return None
        self._findings.examined += 1
        if 2 * event.reachable_count <= event.voter_count:
            return None
        message = (
            f"{envelope.node} gave epoch {event.leader_epoch} up, though it heard "
            f"{event.reachable_count} of {event.voter_count} voters"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


RESIGNATION_ONLY_BELOW_MAJORITY = Invariant(
    name="resignation-only-below-majority",
    rule="A leader resigns for lack of fetches only if fewer than a majority of the voters "
    "fetched.",
    source="KAFKA-15489",
    watches=(CheckQuorumFailed,),
    check=TooFewFetched,
    examined="SELECT run, count(*) FROM check_quorum_failed WHERE kraft_version = 0 GROUP BY run",
    violations="""
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(node, ' gave epoch ', leader_epoch, ' up, though it heard ', reachable_count,
                ' of ', voter_count, ' voters') AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM check_quorum_failed WHERE kraft_version = 0 AND 2 * reachable_count > voter_count
    """,
)


INVARIANTS = (
    QUORUM_STATE_RESTORED,
    STALE_EPOCHS_REFUSED,
    ELECTION_TIMEOUTS_RESPECTED,
    RESIGNATION_ONLY_BELOW_MAJORITY,
)
