"""The log of a newly elected replica is its snapshot followed by increasing epochs, without gaps or
duplicates.

Source: KIP-101, KIP-595 (epochs only grow along a log), KIP-630 (a log begins where its oldest
snapshot ends).
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import LeaderLogHeld

NAME = "leader-log-contiguous"
BEFORE_EVERYTHING = (-2, 0)
"""An epoch below that of any snapshot, and the first offset of every log."""


class PieceAfterPiece:
    """Compares each part of an elected replica's log with the previous part."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._last: dict[tuple[str, int, int], tuple[int, int]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a part of the log of an elected replica."""
        assert isinstance(event, LeaderLogHeld)
        if event.first_offset == event.end_offset:
            return None  # it has no record of that epoch
        self._findings.examined += 1
        election = (envelope.node, envelope.incarnation, event.leader_epoch)
        epoch, end_offset = self._last.get(election, BEFORE_EVERYTHING)
        self._last[election] = (event.epoch, event.end_offset)
        if (
            event.epoch > epoch
            and event.first_offset == end_offset
            and event.end_offset > event.first_offset
        ):
            return None
        message = (
            f"{envelope.node} won epoch {event.leader_epoch} with records of epoch {event.epoch} "
            f"from {event.first_offset} to {event.end_offset} behind those of epoch {epoch}, "
            f"which end at {end_offset}"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="The log of a newly elected replica is its snapshot followed by increasing epochs, "
    "without gaps or duplicates.",
    source="KIP-101, KIP-595, KIP-630",
    watches=(LeaderLogHeld,),
    check=PieceAfterPiece,
    examined=(
        "SELECT run, count(*) FROM leader_log_held WHERE first_offset <> end_offset GROUP BY run"
    ),
    violations="""
        WITH ordered AS (
            SELECT
                run, node, incarnation, n, position, leader_epoch, epoch, first_offset, end_offset,
                lag(epoch, 1, -2) OVER (PARTITION BY run, node, incarnation, leader_epoch
                    ORDER BY position) AS previous_epoch,
                lag(end_offset, 1, 0) OVER (PARTITION BY run, node, incarnation, leader_epoch
                    ORDER BY position) AS previous_end
            FROM leader_log_held WHERE first_offset <> end_offset
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                node, ' won epoch ', leader_epoch, ' with records of epoch ', epoch, ' from ',
                    first_offset, ' to ', end_offset,
                ' behind those of epoch ', previous_epoch, ', which end at ', previous_end
            ) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM ordered WHERE epoch <= previous_epoch OR first_offset <> previous_end
            OR end_offset <= first_offset
    """,
)
