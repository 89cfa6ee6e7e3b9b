"""A replica that truncates a voter-set record from its log reverts to the previous voter set before
it writes anything else.

A voter-set record takes effect as soon as it is written, committed or not. A deposed leader may
therefore use a voter set that no other replica has received. When it follows the next leader, that
record is truncated; if the replica kept the voter set, it would count majorities, or request votes,
among the wrong voters.
Source: KIP-853; Ongaro, Consensus: Bridging Theory and Practice (2014), section 4.1: a server falls
back to the configuration before.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.raft.events import MetadataTruncated, MetadataWritten, VotersChanged

NAME = "truncated-voters-record-reverted"


class RevertsVoters:
    """Tracks the voter-set record that each process uses, and the truncations that removed it
    without a fallback since.
    """

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._followed: dict[tuple[str, int], int] = {}
        self._truncations: dict[tuple[str, int], list[tuple[int, str]]] = {}
        """Process -> truncation offsets, each with its event."""

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a new voter set, a truncation, or a later write."""
        process = (envelope.node, envelope.incarnation)
        match event:
            case VotersChanged(offset=offset):
                self._followed[process] = offset
                self._truncations[process] = [
                    truncation
                    for truncation in self._truncations.get(process, [])
                    if truncation[0] <= offset
                ]
            case MetadataTruncated(end_offset=end_offset) if (
                process in self._followed and end_offset <= self._followed[process]
            ):
                self._findings.examined += 1
                self._truncations.setdefault(process, []).append((end_offset, envelope.event_id))
            case MetadataWritten():
                return self._not_answered_for(envelope, self._truncations.pop(process, []))
            case _:
                pass
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _not_answered_for(
        self, envelope: Envelope, truncations: list[tuple[int, str]]
    ) -> Violation | None:
        violation: Violation | None = None
        for end_offset, truncated_by in truncations:
            message = (
                f"{envelope.node} cut its log at {end_offset}, and writes on by voters that "
                "stood behind that"
            )
            violation = (
                self._findings.violation(truncated_by, message, truncated_by, envelope.event_id)
                or violation
            )
        return violation


_TRUNCATIONS = """
    WITH followed AS (
        SELECT t.run, t.node, t.incarnation, t.n, t.position, t.end_offset,
            max(v.position) AS voters_at
        FROM metadata_truncated AS t
        JOIN voters_changed AS v ON v.run = t.run AND v.node = t.node
            AND v.incarnation = t.incarnation AND v.position < t.position
        GROUP BY t.run, t.node, t.incarnation, t.n, t.position, t.end_offset
    ), cuts AS (
        SELECT f.run, f.node, f.incarnation, f.n, f.position, f.end_offset
        FROM followed AS f JOIN voters_changed AS v ON v.run = f.run AND v.position = f.voters_at
        WHERE v.offset >= f.end_offset
    )
"""

INVARIANT = Invariant(
    name=NAME,
    rule="A replica that truncates a voter-set record from its log reverts to the previous voter "
    "set before it writes anything else.",
    source="KIP-853",
    watches=(VotersChanged, MetadataTruncated, MetadataWritten),
    check=RevertsVoters,
    examined=f"{_TRUNCATIONS} SELECT run, count(*) FROM cuts GROUP BY run",
    violations=f"""
        {_TRUNCATIONS}, written AS (
            SELECT c.run, c.position, min(w.position) AS written_at
            FROM cuts AS c
            JOIN metadata_written AS w ON w.run = c.run AND w.node = c.node
                AND w.incarnation = c.incarnation AND w.position > c.position
            GROUP BY c.run, c.position
        )
        SELECT
            c.run,
            concat(c.node, '.', c.incarnation, '.', c.n) AS key,
            concat(c.node, ' cut its log at ', c.end_offset,
                ', and writes on by voters that stood behind that') AS message,
            c.position AS first_witness,
            w.written_at AS second_witness
        FROM cuts AS c JOIN written AS w ON w.run = c.run AND w.position = c.position
        WHERE NOT EXISTS (
            SELECT 1 FROM voters_changed AS v
            WHERE v.run = c.run AND v.node = c.node AND v.incarnation = c.incarnation
                AND v.offset < c.end_offset AND v.position > c.position
                    AND v.position < w.written_at
        )
    """,
)
