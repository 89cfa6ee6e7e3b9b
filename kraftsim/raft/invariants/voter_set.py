"""The voter set changes with the log (KIP-853): with a record from the moment it is appended, and
back with its truncation.

A replica that used another set would count majorities among the wrong voters, and two majorities
that share no voter may elect two leaders.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import MetadataAppended
from kraftsim.raft.events import MetadataTruncated, MetadataWritten, VotersChanged

VOTERS = "Voters"


class UsesWrittenVoters:
    """A replica that writes a voter-set record to its log, as leader or follower, uses that voter
    set from then on, committed or not.

    A replica that still used the previous voter set could be elected, or commit, with a majority
    that the other replicas do not recognise. The voter set that it reported before it wrote the
    record is checked.

    Tracks the offsets of voter-set records, and the voter set that each process uses.

    Source: KIP-853; Ongaro, Consensus: Bridging Theory and Practice (2014), section 4.1: the latest
    configuration in a server's log counts.
    """

    def __init__(self) -> None:
        self._findings = Findings("voter-set-effective-when-appended")
        self._records: dict[tuple[int, int], None] = {}
        """Leader epoch and offset."""
        self._followed: dict[tuple[str, int, int], None] = {}
        """Node, incarnation, and the offset of the record."""

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a record that a leader appended, a new voter set, or a batch that was written."""
        match event:
            case MetadataAppended() if event.record_kinds == VOTERS:
                self._records[event.leader_epoch, event.first_offset] = None
            case VotersChanged():
                self._followed[envelope.node, envelope.incarnation, event.offset] = None
            case MetadataWritten() if (event.epoch, event.first_offset) in self._records:
                self._findings.examined += 1
                if (envelope.node, envelope.incarnation, event.first_offset) not in self._followed:
                    message = (
                        f"{envelope.node} wrote the voters of epoch {event.epoch} at offset "
                        f"{event.first_offset} and does not go by them"
                    )
                    return self._findings.violation(envelope.event_id, message, envelope.event_id)
            case _:
                pass
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


_WRITTEN = """
    SELECT w.run, w.node, w.incarnation, w.n, w.position, w.epoch, w.first_offset
    FROM metadata_written AS w
    WHERE EXISTS (
        SELECT 1 FROM metadata_appended AS a
        WHERE a.run = w.run AND a.leader_epoch = w.epoch AND a.first_offset = w.first_offset
            AND a.record_kinds = 'Voters' AND a.position < w.position
    )
"""

VOTER_SET_EFFECTIVE_WHEN_APPENDED = Invariant(
    name="voter-set-effective-when-appended",
    within_metadata_log=True,
    rule="A replica that writes a voter-set record to its log uses that voter set from then on, "
    "committed or not.",
    source="KIP-853",
    watches=(MetadataAppended, VotersChanged, MetadataWritten),
    check=UsesWrittenVoters,
    examined=f"SELECT run, count(*) FROM ({_WRITTEN}) AS written GROUP BY run",
    violations=f"""
        WITH written AS ({_WRITTEN})
        SELECT
            w.run,
            concat(w.node, '.', w.incarnation, '.', w.n) AS key,
            concat(w.node, ' wrote the voters of epoch ', w.epoch, ' at offset ', w.first_offset,
                ' and does not go by them') AS message,
            w.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM written AS w
        WHERE NOT EXISTS (
            SELECT 1 FROM voters_changed AS v
            WHERE v.run = w.run AND v.node = w.node AND v.incarnation = w.incarnation
                AND v.offset = w.first_offset AND v.position < w.position
        )
    """,
)


class RevertsVoters:
    """A replica that truncates a voter-set record from its log reverts to the previous voter set
    before it writes anything else.

    A voter-set record takes effect as soon as it is written, committed or not. A deposed leader may
    therefore use a voter set that no other replica has received. When it follows the next leader,
    that record is truncated; if the replica kept the voter set, it would count majorities, or
    request votes, among the wrong voters.

    Tracks the voter-set record that each process uses, and the truncations that removed it without
    a fallback since.

    Source: KIP-853; Ongaro, Consensus: Bridging Theory and Practice (2014), section 4.1: a server
    falls back to the configuration before.
    """

    def __init__(self) -> None:
        self._findings = Findings("truncated-voters-record-reverted")
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

TRUNCATED_VOTERS_RECORD_REVERTED = Invariant(
    name="truncated-voters-record-reverted",
    within_metadata_log=True,
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


INVARIANTS = (
    VOTER_SET_EFFECTIVE_WHEN_APPENDED,
    TRUNCATED_VOTERS_RECORD_REVERTED,
)
