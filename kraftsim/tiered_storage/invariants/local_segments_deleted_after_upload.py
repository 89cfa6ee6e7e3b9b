"""A local segment of a tiered log is deleted only after it was copied completely to remote storage.

Records of a segment that is deleted earlier were acknowledged and are lost. Source: KIP-405;
UnifiedLog.deletableSegments (highestOffsetInRemoteStorage).
"""

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.tiered_storage.events import LocalLogStartMoved, RemoteCopyFinished

NAME = "local-segments-deleted-after-upload"
NOTHING = -1


class CopiedToRemoteStorage:
    """Tracks the highest offset of each partition in remote storage."""

    def __init__(self) -> None:
        self._findings = Findings(NAME)
        self._end: dict[tuple[str, int], int] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a completed copy to remote storage, or an advanced local log start offset."""
        assert isinstance(event, RemoteCopyFinished | LocalLogStartMoved)
        key = (event.topic, event.partition)
        end = self._end.get(key, NOTHING)
        if isinstance(event, RemoteCopyFinished):
            self._end[key] = max(end, event.last_offset)
            return None
        if event.local_start_offset <= event.log_start_offset:
            return None
        self._findings.examined += 1
        if event.local_start_offset <= end + 1:
            return None
        message = (
            f"{event.topic}-{event.partition}: the local log of {envelope.node} begins at "
            f"{event.local_start_offset}, and the remote one ends at {end}"
        )
        return self._findings.violation(envelope.event_id, message, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name=NAME,
    rule="A local segment of a tiered log is deleted only after it was copied completely to "
    "remote storage.",
    source="KIP-405",
    watches=(RemoteCopyFinished, LocalLogStartMoved),
    check=CopiedToRemoteStorage,
    examined="SELECT run, count(*) FROM local_log_start_moved WHERE local_start_offset > "
    "log_start_offset GROUP BY run",
    violations=f"""
        WITH reached AS (
            SELECT m.run, m.position, max(f.last_offset) AS copied
            FROM local_log_start_moved AS m
            JOIN remote_copy_finished AS f ON f.run = m.run AND f.topic = m.topic
                AND f.partition = m.partition AND f.position < m.position
            GROUP BY m.run, m.position
        )
        SELECT
            m.run,
            concat(m.node, '.', m.incarnation, '.', m.n) AS key,
            concat(
                m.topic, '-', m.partition, ': the local log of ', m.node, ' begins at ',
                    m.local_start_offset,
                ', and the remote one ends at ', coalesce(r.copied, {NOTHING})
            ) AS message,
            m.position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM local_log_start_moved AS m LEFT JOIN reached AS r ON r.run = m.run
            AND r.position = m.position
        WHERE m.local_start_offset > m.log_start_offset
            AND m.local_start_offset > coalesce(r.copied, {NOTHING}) + 1
    """,
)
