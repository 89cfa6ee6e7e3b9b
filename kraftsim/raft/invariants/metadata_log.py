"""The replicas of the metadata log have the same records, and keep what they flushed.

Each of them grows at its end and is truncated where it differs from the leader's. What two of them
have at the same offset and epoch is equal, an elected leader has all that was committed, and what
is on disk is there after a restart. These are the log properties of Raft (Ongaro and Ousterhout
2014).
"""

from kraftsim.events.event import Event
from kraftsim.events.runs import FaultInjected
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.permitted_losses import SPOILT_CTE, SpoiltDisks
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.metadata.events import ControllerElected, MetadataAppended
from kraftsim.migration.events import MetadataCopyForgotten
from kraftsim.raft.events import (
    FinalMetadataLog,
    HighWatermarkMoved,
    LeaderLogHeld,
    MetadataFlushed,
    MetadataReplicated,
    MetadataTruncated,
    MetadataWritten,
    SnapshotFetched,
    SnapshotLoaded,
)


class WhereItEnds:
    """A replica appends to its metadata log at the end offset, and a truncation removes at least
    one record.

    A leader sends a truncation offset because it does not have the follower's last record. A
    follower that truncates nothing would receive the same offset forever. The end offset from
    before a restart is not compared: a power loss may have removed the tail of the log.

    Tracks the log end offset of each process, once it is known.

    Source: KIP-595 (diverging epochs), the consistency check of Raft's AppendEntries (Ongaro and
    Ousterhout 2014, section 5.3).
    """

    def __init__(self) -> None:
        self._findings = Findings("metadata-log-contiguous")
        self._ends: dict[tuple[str, int], tuple[int, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a batch that was written, a truncation, or a snapshot that replaces the log."""
        process = (envelope.node, envelope.incarnation)
        before = self._ends.get(process)
        if isinstance(event, SnapshotLoaded):
            self._ends[process] = (event.end_offset, envelope.event_id)
            return None
        self._findings.examined += 1
        if isinstance(event, MetadataWritten):
            self._ends[process] = (event.last_offset + 1, envelope.event_id)
            is_wrong = before is not None and event.first_offset != before[0]
            message = f"{envelope.node} wrote a batch at {event.first_offset}"
        else:
            assert isinstance(event, MetadataTruncated)
            self._ends[process] = (event.end_offset, envelope.event_id)
            is_wrong = before is not None and event.end_offset >= before[0]
            message = f"{envelope.node} was to cut its log at {event.end_offset}"
        if before is None or not is_wrong:
            return None
        return self._findings.violation(
            envelope.event_id,
            f"{message}, and it ended at {before[0]}",
            before[1],
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


METADATA_LOG_CONTIGUOUS = Invariant(
    name="metadata-log-contiguous",
    within_metadata_log=True,
    rule="A replica appends to its metadata log at the end offset, and a truncation removes at "
    "least one record.",
    source="KIP-595",
    watches=(MetadataWritten, MetadataTruncated, SnapshotLoaded),
    check=WhereItEnds,
    examined="""
        SELECT run, count(*) FROM (SELECT run FROM metadata_written UNION ALL SELECT run
            FROM metadata_truncated) AS step GROUP BY run
    """,
    violations="""
        WITH step AS (
            SELECT run, node, incarnation, n, position, first_offset AS from_offset,
                last_offset + 1 AS end_offset, 'written' AS kind
            FROM metadata_written
            UNION ALL SELECT run, node, incarnation, n, position, end_offset AS from_offset,
                end_offset, 'cut' AS kind FROM metadata_truncated
            UNION ALL SELECT run, node, incarnation, n, position, end_offset AS from_offset,
                end_offset, 'begun' AS kind FROM snapshot_loaded
        ), ordered AS (
            SELECT
                run, node, incarnation, n, position, from_offset, kind,
                lag(end_offset) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS previous_end,
                lag(position) OVER (PARTITION BY run, node, incarnation
                    ORDER BY position) AS previous_position
            FROM step
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(
                node, CASE WHEN kind = 'written' THEN ' wrote a batch at '
                    ELSE ' was to cut its log at ' END, from_offset,
                ', and it ended at ', previous_end
            ) AS message,
            previous_position AS first_witness,
            position AS second_witness
        FROM ordered WHERE (kind = 'written' AND from_offset <> previous_end) OR (kind = 'cut'
            AND from_offset >= previous_end)
    """,
)


class FirstWriting:
    """If two replicas of the metadata log have a batch at the same offset and epoch, the batches
    and everything before them are equal.

    A batch is identified by its checksum and its last offset. The epoch of the record before it
    represents everything before: two logs that agree on it at every batch agree on the whole
    prefix. A batch counts even if the replica lost it later, because it may have been read
    (KAFKA-10527).

    Tracks the first batch that any replica wrote at each offset and epoch.

    Source: KIP-595, the log matching property of Raft (Ongaro and Ousterhout 2014, section 5.3).
    """

    def __init__(self) -> None:
        self._findings = Findings("metadata-log-matching")
        self._batches: dict[tuple[int, int], tuple[MetadataWritten, str, str]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a batch that was written."""
        assert isinstance(event, MetadataWritten)
        self._findings.examined += 1
        known = self._batches.setdefault(
            (event.epoch, event.first_offset), (event, envelope.node, envelope.event_id)
        )
        first, node, witness = known
        if (first.last_offset, first.previous_epoch, first.crc) == (
            event.last_offset,
            event.previous_epoch,
            event.crc,
        ):
            return None
        message = (
            f"the batch of epoch {event.epoch} at offset {event.first_offset} that "
            f"{envelope.node} wrote is not the one that {node} wrote first"
        )
        return self._findings.violation(
            f"{event.epoch}/{event.first_offset}", message, witness, envelope.event_id
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


METADATA_LOG_MATCHING = Invariant(
    name="metadata-log-matching",
    within_metadata_log=True,
    rule="If two replicas of the metadata log have a batch at the same offset and epoch, the "
    "batches and everything before them are equal.",
    source="KIP-595",
    watches=(MetadataWritten,),
    check=FirstWriting,
    examined="SELECT run, count(*) FROM metadata_written GROUP BY run",
    violations="""
        WITH first_position AS (
            SELECT run, epoch, first_offset, min(position) AS position FROM metadata_written
                GROUP BY run, epoch, first_offset
        ), first_batch AS (
            SELECT w.* FROM first_position AS f JOIN metadata_written AS w ON w.run = f.run
                AND w.position = f.position
        ), other AS (
            SELECT w.run, w.epoch, w.first_offset, min(w.position) AS position
            FROM metadata_written AS w JOIN first_batch AS f ON w.run = f.run AND w.epoch = f.epoch
                AND w.first_offset = f.first_offset
            WHERE w.last_offset <> f.last_offset OR w.previous_epoch <> f.previous_epoch
                OR w.crc <> f.crc
            GROUP BY w.run, w.epoch, w.first_offset
        )
        SELECT
            f.run,
            concat(f.epoch, '/', f.first_offset) AS key,
            concat(
                'the batch of epoch ', f.epoch, ' at offset ', f.first_offset, ' that ', w.node,
                    ' wrote is not the one that ', f.node, ' wrote first'
            ) AS message,
            f.position AS first_witness,
            w.position AS second_witness
        FROM other AS o
        JOIN first_batch AS f ON f.run = o.run AND f.epoch = o.epoch
            AND f.first_offset = o.first_offset
        JOIN metadata_written AS w ON w.run = o.run AND w.position = o.position
    """,
)


IN_SNAPSHOT = -1

Election = tuple[int, str, str, list[LeaderLogHeld]]
"""Leader epoch, node, event id, and the log that the node had."""


class CommittedIsHeld:
    """An elected controller has every record that leaders of earlier epochs reported as committed.

    The record just below the high watermark is compared: a replica that has it, with the same
    epoch, has everything before it (see metadata-log-matching). Records covered by a snapshot count
    as present. The order of election and commit does not matter: a leader may find out late that a
    majority has what it wrote.

    Compares every election with what was committed in earlier epochs, whichever is seen first.

    Source: KIP-595, the leader completeness property of Raft (Ongaro and Ousterhout 2014, section
    5.4), KAFKA-12619.
    """

    def __init__(self) -> None:
        self._findings = Findings("leader-completeness")
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
        if self._findings.verdict().violation_count:
            self._keep_the_earliest()
        return self._findings.verdict()

    def _keep_the_earliest(self) -> None:
        """Keep the violations of the earliest commits, of which an election may be seen late."""
        examined, self._findings = self._findings.examined, Findings("leader-completeness")
        self._findings.examined = examined
        for commit in self._commits:
            for election in sorted(self._elections, key=lambda election: election[2]):
                self._compare(election, commit)

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


LEADER_COMPLETENESS = Invariant(
    name="leader-completeness",
    within_metadata_log=True,
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


class ReportedEnds:
    """A voter emits an event for every metadata record that it makes durable, appended as leader or
    replicated, in order and without gaps.

    Elections and commits are checked, and faults are triggered, by the events that report how a
    voter obtained each record. An event log that reported a record twice, not at all, or without
    the record existing would go unnoticed. Observers need not report; for a new voter the check
    starts at the log that it has then.

    Tracks the end offset up to which each process has reported how it obtained its records.

    Source: KIP-595: a voter's log grows by what it appends as leader, and by what its Fetch brings.
    """

    def __init__(self) -> None:
        self._findings = Findings("flushed-metadata-has-origin")
        self._ends: dict[tuple[str, int], int] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process an append, a replicated batch, a truncation or a flush."""
        process = (envelope.node, envelope.incarnation)
        before = self._ends.get(process)
        match event:
            case MetadataAppended() | MetadataReplicated():
                self._findings.examined += 1
                self._ends[process] = event.last_offset + 1
                if before is not None and event.first_offset != before:
                    message = (
                        f"{envelope.node} goes on at {event.first_offset}, and had reported of "
                        f"everything before {before}"
                    )
                    return self._findings.violation(envelope.event_id, message, envelope.event_id)
            case MetadataTruncated() | SnapshotLoaded():
                self._ends[process] = event.end_offset
            case MetadataFlushed(is_voter=True):
                self._findings.examined += 1
                self._ends[process] = (
                    event.end_offset if before is None else max(before, event.end_offset)
                )
                if before is not None and event.end_offset > before:
                    message = (
                        f"{envelope.node} has made everything before {event.end_offset} durable, "
                        f"and reported only of what is before {before}"
                    )
                    return self._findings.violation(envelope.event_id, message, envelope.event_id)
            case _:
                self._ends.pop(process, None)
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


FLUSHED_METADATA_HAS_ORIGIN = Invariant(
    name="flushed-metadata-has-origin",
    within_metadata_log=True,
    rule="A voter emits an event for every metadata record that it makes durable, appended as "
    "leader or replicated, without gaps.",
    source="KIP-595",
    watches=(
        MetadataAppended,
        MetadataReplicated,
        MetadataTruncated,
        SnapshotLoaded,
        MetadataFlushed,
    ),
    check=ReportedEnds,
    examined="""
        SELECT run, count(*)
        FROM (
            SELECT run FROM metadata_appended
            UNION ALL SELECT run FROM metadata_replicated
            UNION ALL SELECT run FROM metadata_flushed WHERE is_voter
        ) AS reported
        GROUP BY run
    """,
    # A flush by a voter only raises the reported end; every other event sets it, or makes it
    # unknown.
    violations="""
        WITH step AS (
            SELECT run, node, incarnation, n, position, first_offset, last_offset + 1 AS end_offset,
                1 AS is_restart, 'goes' AS kind
            FROM metadata_appended
            UNION ALL
            SELECT run, node, incarnation, n, position, first_offset, last_offset + 1 AS end_offset,
                1 AS is_restart, 'goes' AS kind
            FROM metadata_replicated
            UNION ALL
            SELECT run, node, incarnation, n, position, CAST(NULL AS BIGINT) AS first_offset,
                end_offset, 1 AS is_restart, 'set' AS kind
            FROM metadata_truncated
            UNION ALL
            SELECT run, node, incarnation, n, position, CAST(NULL AS BIGINT) AS first_offset,
                end_offset, 1 AS is_restart, 'set' AS kind
            FROM snapshot_loaded
            UNION ALL
            SELECT
                run, node, incarnation, n, position, CAST(NULL AS BIGINT) AS first_offset, CASE
                    WHEN is_voter THEN end_offset END AS end_offset,
                CASE WHEN is_voter THEN 0 ELSE 1 END AS is_restart, CASE WHEN is_voter THEN 'flush'
                    ELSE 'set' END AS kind
            FROM metadata_flushed
        ), staged AS (
            SELECT *, sum(is_restart) OVER (PARTITION BY run, node, incarnation
                ORDER BY position) AS stage FROM step
        ), known AS (
            SELECT *, max(end_offset) OVER (PARTITION BY run, node, incarnation, stage
                ORDER BY position) AS reported FROM staged
        ), ordered AS (
            SELECT *, lag(reported) OVER (PARTITION BY run, node, incarnation
                ORDER BY position) AS reported_before FROM known
        )
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            CASE
                WHEN kind = 'goes' THEN concat(node, ' goes on at ', first_offset,
                    ', and had reported of everything before ', reported_before)
                ELSE concat(node, ' has made everything before ', end_offset,
                    ' durable, and reported only of what is before ', reported_before)
            END AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM ordered WHERE (kind = 'goes' AND first_offset <> reported_before) OR (kind = 'flush'
            AND end_offset > reported_before)
    """,
)


class DurableEnds:
    """Metadata that a replica reported as durable, and did not truncate since, is still there after
    a restart and at the end of the run.

    A replica first reports what it has read back after a restart. At the end of the run its disk is
    read, up to the first gap in the log. A snapshot that was fetched completely counts as
    everything it covers, whether or not it has replaced the log yet. A power loss removes what was
    not flushed, and nothing else. Hosts whose disk lost or corrupted flushed data by a fault are
    not checked from then on. A broker that migrates deletes its metadata log as it starts.

    Tracks the durable end offset of each node, and which incarnations have reported what they
    recovered.

    Source: KIP-595 (a voter acknowledges what it has flushed), KIP-630, the persistent state of
    Raft (Ongaro and Ousterhout 2014, figure 2).
    """

    def __init__(self) -> None:
        self._findings = Findings("flushed-metadata-retained")
        self._durable: dict[str, tuple[int, str]] = {}
        self._incarnations: dict[str, int] = {}
        self._spoilt = SpoiltDisks()

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a flush, a snapshot, a truncation, or a fault that makes a disk unreliable."""
        node = envelope.node
        before = self._durable.get(node)
        match event:
            case FaultInjected():
                self._spoilt.learn(event)
            case SnapshotFetched(end_offset=end_offset) | SnapshotLoaded(end_offset=end_offset):
                self._durable[node] = (end_offset, envelope.event_id)
            case MetadataCopyForgotten():
                self._durable[node] = (0, envelope.event_id)
            case MetadataTruncated(end_offset=end_offset) if before is not None:
                self._durable[node] = (min(end_offset, before[0]), before[1])
            case MetadataFlushed(end_offset=end_offset):
                self._durable[node] = (end_offset, envelope.event_id)
                is_back = self._incarnations.get(node) != envelope.incarnation
                self._incarnations[node] = envelope.incarnation
                if is_back and before is not None and not self._spoilt.has(node):
                    return self._compare(envelope, f"{node} is back with", end_offset, *before)
            case FinalMetadataLog(controller=controller, end_offset=end_offset) if (
                controller in self._durable and not self._spoilt.has(controller)
            ):
                reported = self._durable[controller]
                self._durable[controller] = (end_offset, envelope.event_id)
                return self._compare(
                    envelope, f"the disk of {controller} has", end_offset, *reported
                )
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()

    def _compare(
        self, envelope: Envelope, found: str, end_offset: int, reported: int, reported_by: str
    ) -> Violation | None:
        self._findings.examined += 1
        if end_offset >= reported:
            return None
        message = (
            f"{found} everything before {end_offset}, and everything before {reported} had been "
            "reported to be durable"
        )
        return self._findings.violation(envelope.event_id, message, reported_by, envelope.event_id)


_BACK = f"""
    WITH reported AS (
        SELECT
            run, node, concat(node, '.', incarnation, '.', n) AS key, concat(node,
                ' is back with') AS found, position, end_offset, 1 AS is_restart,
            row_number() OVER (PARTITION BY run, node, incarnation ORDER BY position) AS turn
        FROM metadata_flushed
        UNION ALL SELECT run, node, '' AS key, '' AS found, position, end_offset, 1 AS is_restart,
            0 AS turn FROM snapshot_fetched
        UNION ALL SELECT run, node, '' AS key, '' AS found, position, end_offset, 1 AS is_restart,
            0 AS turn FROM snapshot_loaded
        UNION ALL SELECT run, node, '' AS key, '' AS found, position, 0 AS end_offset,
            1 AS is_restart, 0 AS turn FROM metadata_copy_forgotten
        UNION ALL SELECT run, node, '' AS key, '' AS found, position, end_offset, 0 AS is_restart,
            0 AS turn FROM metadata_truncated
        UNION ALL SELECT
            run, controller AS node, concat(node, '.', incarnation, '.', n) AS key,
                concat('the disk of ', controller, ' has') AS found,
            position, end_offset, 1 AS is_restart, 1 AS turn
        FROM final_metadata_log
    ), staged AS (
        SELECT *, sum(is_restart) OVER (PARTITION BY run, node ORDER BY position) AS stage
            FROM reported
    ), state AS (
        SELECT
            *,
            min(end_offset) OVER (PARTITION BY run, node, stage ORDER BY position) AS durable,
            min(position) OVER (PARTITION BY run, node, stage) AS reported_position
        FROM staged WHERE stage > 0
    ), ordered AS (
        SELECT
            *,
            lag(durable) OVER (PARTITION BY run, node ORDER BY position) AS durable_before,
            lag(reported_position) OVER (PARTITION BY run, node
                ORDER BY position) AS reported_before
        FROM state
    ), {SPOILT_CTE}, back AS (
        SELECT o.run, o.key, o.found, o.position, o.end_offset, o.durable_before, o.reported_before
        FROM ordered AS o LEFT JOIN spoilt AS s ON s.run = o.run AND s.target = o.node
            AND s.position < o.position
        WHERE o.turn = 1 AND o.durable_before IS NOT NULL AND s.position IS NULL
    )
"""
"""Between two flushes or snapshots, the lowest truncation offset applies."""

FLUSHED_METADATA_RETAINED = Invariant(
    name="flushed-metadata-retained",
    within_metadata_log=True,
    rule="Metadata that a replica reported as durable, and did not truncate, is still there after "
    "a restart and at the end of the run.",
    source="KIP-595",
    watches=(
        MetadataFlushed,
        MetadataTruncated,
        SnapshotFetched,
        SnapshotLoaded,
        MetadataCopyForgotten,
        FinalMetadataLog,
        FaultInjected,
    ),
    check=DurableEnds,
    examined=f"{_BACK} SELECT run, count(*) FROM back GROUP BY run",
    violations=f"""
        {_BACK}
        SELECT
            run,
            key,
            concat(found, ' everything before ', end_offset, ', and everything before ',
                durable_before,
                ' had been reported to be durable') AS message,
            reported_before AS first_witness,
            position AS second_witness
        FROM back WHERE end_offset < durable_before
    """,
)


INVARIANTS = (
    METADATA_LOG_CONTIGUOUS,
    METADATA_LOG_MATCHING,
    LEADER_COMPLETENESS,
    FLUSHED_METADATA_HAS_ORIGIN,
    FLUSHED_METADATA_RETAINED,
)
