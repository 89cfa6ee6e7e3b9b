"""In virtual time a candidate's election ends within its timeout, and its backoff lasts at most as
long as drawn and grows with each defeat.

A candidate that waits longer leaves the cluster without a leader for longer than its settings
allow. A candidate whose backoff does not grow with its defeats collides with the same rivals again
and again. Times are checked until a fault is injected that may delay a node, such as a pause or a
slow disk. Virtual time does not advance while nodes compute, so nothing else delays them, not by a
millisecond. Over sockets the machine itself causes delays, and only the number of defeats is
checked.
Source: KIP-595 (controller.quorum.election.timeout.ms, controller.quorum.election.backoff.max.ms,
binary exponential backoff).
"""

from typing import Final

from kraftsim.events.event import Event
from kraftsim.events.runs import FaultInjected, RunStarted
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import ElectionLost, ElectionOpened, QuorumTimersSet, RaftRoleChanged

NAME = "election-timeouts-respected"
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
    """Keeps the last two steps of each process."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
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
INVARIANT = Invariant(
    name=NAME,
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
