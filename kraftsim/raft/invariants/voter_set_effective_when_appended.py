"""A replica that writes a voter-set record to its log, as leader or follower, uses that voter set
from then on, committed or not.

A replica that still used the previous voter set could be elected, or commit, with a majority that
the other replicas do not recognise. The voter set that it reported before it wrote the record is
checked.
Source: KIP-853; Ongaro, Consensus: Bridging Theory and Practice (2014), section 4.1: the latest
configuration in a server's log counts.
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import MetadataAppended
from kraftsim.raft.events import MetadataWritten, VotersChanged

NAME = "voter-set-effective-when-appended"
VOTERS = "Voters"


class UsesWrittenVoters:
    """Tracks the offsets of voter-set records, and the voter set that each process uses."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
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

INVARIANT = Invariant(
    name=NAME,
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
