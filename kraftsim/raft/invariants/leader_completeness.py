"""An elected controller has every record that leaders of earlier epochs reported as committed.

The record just below the high watermark is compared: a replica that has it, with the same epoch,
has everything before it (see metadata-log-matching). Records covered by a snapshot count as
present. The order of election and commit does not matter: a leader may find out late that a
majority has what it wrote.
Source: KIP-595, the leader completeness property of Raft (Ongaro and Ousterhout 2014, section 5.4),
KAFKA-12619.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import ControllerElected
from kraftsim.raft.events import HighWatermarkMoved, LeaderLogHeld

NAME = "leader-completeness"
IN_SNAPSHOT = -1

Election = tuple[int, str, str, list[LeaderLogHeld]]
"""Leader epoch, node, event id, and the log that the node had."""


class CommittedIsHeld:
    """Compares every election with what was committed in earlier epochs, whichever is seen
    first.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._held: dict[tuple[str, int, int], list[LeaderLogHeld]] = {}
        self._elections: list[Election] = []
        self._commits: list[tuple[HighWatermarkMoved, str]] = []

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a part of a leader's log, its election, or a commit."""
        if isinstance(event, LeaderLogHeld):
            self._held.setdefault(
                (envelope.node, envelope.incarnation, event.leader_epoch), []
            ).append(event)
            return None
        if isinstance(event, ControllerElected):
            held = self._held.setdefault(
                (envelope.node, envelope.incarnation, event.leader_epoch), []
            )
            election = (event.leader_epoch, envelope.node, envelope.event_id, held)
            self._elections.append(election)
            found = [self._compare(election, commit) for commit in self._commits]
        else:
            assert isinstance(event, HighWatermarkMoved)
            if not event.is_leader or not event.high_watermark:
                return None
            commit = (event, envelope.event_id)
            self._commits.append(commit)
            found = [self._compare(election, commit) for election in self._elections]
        return next((violation for violation in found if violation is not None), None)

    def finish(self) -> Verdict:
        """Return the verdict."""
        first_epoch = min((commit.leader_epoch for commit, _ in self._commits), default=None)
        if first_epoch is not None:
            self._findings.examined = sum(
                leader_epoch > first_epoch for leader_epoch, *_ in self._elections
            )
        return self._findings.verdict()

    def _compare(
        self, election: Election, commit: tuple[HighWatermarkMoved, str]
    ) -> Violation | None:
        leader_epoch, node, election_id, held = election
        moved, commit_id = commit
        if moved.leader_epoch >= leader_epoch or any(_holds(each, moved) for each in held):
            return None
        message = (
            f"{node} won epoch {leader_epoch} without the record of epoch {moved.last_epoch} at "
            f"offset {moved.high_watermark - 1}, which was committed in epoch "
            f"{moved.leader_epoch}"
        )
        return self._findings.violation(
            f"{election_id}/{commit_id}", message, commit_id, election_id
        )


def _holds(held: LeaderLogHeld, moved: HighWatermarkMoved) -> bool:
    return held.first_offset < moved.high_watermark <= held.end_offset and held.epoch in (
        moved.last_epoch,
        IN_SNAPSHOT,
    )


INVARIANT = Invariant(
    name=NAME,
    rule="An elected controller has every record that leaders of earlier epochs reported as "
    "committed.",
    source="KIP-595, KAFKA-12619",
    watches=(LeaderLogHeld, ControllerElected, HighWatermarkMoved),
    check=CommittedIsHeld,
    examined="""
        SELECT e.run, count(*)
        FROM controller_elected AS e JOIN (
            SELECT run, min(leader_epoch) AS leader_epoch FROM high_watermark_moved WHERE is_leader
                AND high_watermark > 0 GROUP BY run
        ) AS first_commit ON e.run = first_commit.run AND e.leader_epoch > first_commit.leader_epoch
        GROUP BY e.run
    """,
    violations="""
        SELECT
            e.run,
            concat(e.node, '.', e.incarnation, '.', e.n, '/', c.node, '.', c.incarnation, '.',
                c.n) AS key,
            concat(
                e.node, ' won epoch ', e.leader_epoch, ' without the record of epoch ',
                    c.last_epoch, ' at offset ', c.high_watermark - 1,
                ', which was committed in epoch ', c.leader_epoch
            ) AS message,
            c.position AS first_witness,
            e.position AS second_witness
        FROM controller_elected AS e JOIN high_watermark_moved AS c ON c.run = e.run
            AND c.leader_epoch < e.leader_epoch
        WHERE c.is_leader AND c.high_watermark > 0 AND NOT EXISTS (
            SELECT 1 FROM leader_log_held AS h
            WHERE h.run = e.run AND h.node = e.node AND h.incarnation = e.incarnation
                AND h.leader_epoch = e.leader_epoch
                AND h.first_offset < c.high_watermark AND c.high_watermark <= h.end_offset
                    AND (h.epoch = c.last_epoch OR h.epoch = -1)
        )
    """,
    ends_run=False,
)
