"""The records of a share-partition only advance, and a coordinator loads what another one has
stored.

The order is that of the records in the log of `__share_group_state`. What a load finds is a record,
too: its coordinator may have been killed before it could report it.
Source: KIP-932; org.apache.kafka.coordinator.share.ShareCoordinatorShard.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation
from kraftsim.share_groups.events_states import (
    CoordinatedShareDeleted,
    CoordinatedShareLoaded,
    CoordinatedShareStored,
)

ADVANCE: Final = "share-states-only-advance"
EQUAL: Final = "loaded-share-states-equal-stored"
INITIALIZED: Final = "initialized"
SharePlace = tuple[int, str, str, int]
"""Partition of `__share_group_state`, group, topic id, partition."""
Content = tuple[int, int, int, int]
"""Snapshot epoch, state epoch, leader epoch, start offset."""


class StateEntry(NamedTuple):
    """A record of a share-partition. Of one that was loaded only, the cause is unknown: empty; of
    a tombstone there is no content.
    """

    cause: str
    is_snapshot: bool
    content: Content | None
    coordinator: tuple[str, int] | None
    """Node and incarnation that have written it; None if it was loaded only."""
    event_id: str


def _place(
    event: CoordinatedShareStored | CoordinatedShareLoaded | CoordinatedShareDeleted,
) -> SharePlace:
    return event.coordinator_partition, event.group_id, event.topic_id, event.partition


def _content(event: CoordinatedShareStored | CoordinatedShareLoaded) -> Content:
    return event.snapshot_epoch, event.state_epoch, event.leader_epoch, event.start_offset


class StatesOnlyAdvance:
    """No epoch falls and no start offset goes back, but for a state that begins again; snapshots
    are counted one by one.
    """

    def __init__(self) -> None:
        self._findings = Findings(ADVANCE)
        self._written: dict[SharePlace, dict[int, StateEntry]] = {}
        self._loaded: dict[SharePlace, dict[int, StateEntry]] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Collect the records."""
        writer = (envelope.node, envelope.incarnation)
        match event:
            case CoordinatedShareStored():
                entry = StateEntry(
                    event.cause, event.is_snapshot, _content(event), writer, envelope.event_id
                )
                self._written.setdefault(_place(event), {}).setdefault(event.record_offset, entry)
            case CoordinatedShareDeleted():
                entry = StateEntry("", False, None, writer, envelope.event_id)
                self._written.setdefault(_place(event), {}).setdefault(event.record_offset, entry)
            case CoordinatedShareLoaded():
                entry = StateEntry("", False, _content(event), None, envelope.event_id)
                self._loaded.setdefault(_place(event), {}).setdefault(event.record_offset, entry)
        return None

    def finish(self) -> Verdict:
        """Compare each record with the one before it."""
        for place in {**self._written, **self._loaded}:
            former: StateEntry | None = None
            for record_offset, entry in self._records(place):
                if former is not None and former.content and entry.content:
                    self._findings.examined += 1
                    if _goes_back(former, entry):
                        _, group_id, topic_id, partition = place
                        self._findings.violation(
                            f"{group_id}/{topic_id}/{partition}/{record_offset}",
                            f"{group_id}: the state of {topic_id}-{partition} goes back at offset "
                            f"{record_offset}",
                            former.event_id,
                            entry.event_id,
                        )
                former = entry
        return self._findings.verdict()

    def _records(self, place: SharePlace) -> Iterator[tuple[int, StateEntry]]:
        found = {**self._loaded.get(place, {}), **self._written.get(place, {})}
        yield from sorted(found.items(), key=lambda each: each[0])


def _goes_back(former: StateEntry, entry: StateEntry) -> bool:
    assert former.content is not None and entry.content is not None, "tombstones are left out"
    snapshot_before, state_before, leader_before, start_before = former.content
    snapshot_epoch, state_epoch, leader_epoch, start_offset = entry.content
    if state_epoch < state_before or snapshot_epoch < snapshot_before:
        return True
    if entry.coordinator is None:
        return False
    if entry.coordinator == former.coordinator and (
        snapshot_epoch != snapshot_before + entry.is_snapshot
    ):
        return True
    return entry.cause != INITIALIZED and (
        leader_epoch < leader_before or start_offset < start_before
    )


class LoadedEqualStored:
    """The state that a load ends with at a record is the one that the record led to."""

    def __init__(self) -> None:
        self._findings = Findings(EQUAL)
        self._stored: dict[tuple[SharePlace, int], dict[Content, str]] = {}
        self._loads: list[tuple[CoordinatedShareLoaded, str]] = []

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Collect the records and the loads."""
        match event:
            case CoordinatedShareStored():
                contents = self._stored.setdefault((_place(event), event.record_offset), {})
                contents.setdefault(_content(event), envelope.event_id)
            case CoordinatedShareLoaded():
                self._loads.append((event, envelope.event_id))
        return None

    def finish(self) -> Verdict:
        """Compare each load with the records."""
        for event, event_id in self._loads:
            contents = self._stored.get((_place(event), event.record_offset))
            if contents is None:
                continue
            self._findings.examined += 1
            if _content(event) not in contents:
                self._findings.violation(
                    f"{event.group_id}/{event.topic_id}/{event.partition}/{event_id}",
                    f"{event.group_id}: the state of {event.topic_id}-{event.partition} at offset "
                    f"{event.record_offset} is loaded with other content",
                    next(iter(contents.values())),
                    event_id,
                )
        return self._findings.verdict()


_CONTENT: Final = "snapshot_epoch, state_epoch, leader_epoch, start_offset"
_PLACE: Final = "run, coordinator_partition, group_id, topic_id, partition"
_FORMER: Final = f"OVER (PARTITION BY {_PLACE} ORDER BY record_offset)"
_STEPS: Final = f"""
    entry AS (
        SELECT {_PLACE}, record_offset, position, {_CONTENT}, 1 AS has_content, 1 AS is_written,
            cause, CAST(is_snapshot AS INT) AS snapshots, concat(node, '.', incarnation) AS writer
        FROM coordinated_share_stored
        UNION ALL
        SELECT {_PLACE}, record_offset, position, 0 AS snapshot_epoch, 0 AS state_epoch,
            0 AS leader_epoch, 0 AS start_offset, 0 AS has_content, 1 AS is_written, '' AS cause,
            0 AS snapshots, concat(node, '.', incarnation) AS writer
        FROM coordinated_share_deleted
        UNION ALL
        SELECT {_PLACE}, record_offset, position, {_CONTENT}, 1 AS has_content, 0 AS is_written,
            '' AS cause, 0 AS snapshots, '' AS writer
        FROM coordinated_share_loaded
    ), numbered AS (
        SELECT *, row_number() OVER (PARTITION BY {_PLACE}, record_offset
            ORDER BY is_written DESC, position) AS nth
        FROM entry
    ), step AS (
        SELECT *,
            lag(has_content) {_FORMER} AS had_content,
            lag(writer) {_FORMER} AS former_writer,
            lag(position) {_FORMER} AS former_position,
            lag(snapshot_epoch) {_FORMER} AS snapshot_before,
            lag(state_epoch) {_FORMER} AS state_before,
            lag(leader_epoch) {_FORMER} AS leader_before,
            lag(start_offset) {_FORMER} AS start_before
        FROM numbered WHERE nth = 1
    )
"""
"""`step`: each record with the one before it."""
_COMPARED: Final = "FROM step WHERE has_content = 1 AND had_content = 1"

SHARE_STATES_ONLY_ADVANCE = Invariant(
    name=ADVANCE,
    rule="The epochs and the start offset of a share-partition never go back in the log of its "
    "coordinator, but where the state begins again, and each snapshot has the next epoch.",
    source="KIP-932, ShareCoordinatorShard",
    watches=(CoordinatedShareStored, CoordinatedShareLoaded, CoordinatedShareDeleted),
    check=StatesOnlyAdvance,
    examined=f"WITH {_STEPS} SELECT run, count(*) {_COMPARED} GROUP BY run",
    violations=f"""
        WITH {_STEPS}
        SELECT
            run,
            concat(group_id, '/', topic_id, '/', partition, '/', record_offset) AS key,
            concat(group_id, ': the state of ', topic_id, '-', partition, ' goes back at offset ',
                record_offset) AS message,
            former_position AS first_witness,
            position AS second_witness
        {_COMPARED} AND (
            state_epoch < state_before OR snapshot_epoch < snapshot_before
            OR (is_written = 1 AND writer = former_writer
                AND snapshot_epoch <> snapshot_before + snapshots)
            OR (is_written = 1 AND cause <> '{INITIALIZED}'
                AND (leader_epoch < leader_before OR start_offset < start_before))
        )
    """,
)
_LOADS: Final = f"""
    stored AS (
        SELECT {_PLACE}, record_offset, {_CONTENT}, min(position) AS position
        FROM coordinated_share_stored GROUP BY {_PLACE}, record_offset, {_CONTENT}
    ), compared AS (
        SELECT l.run, l.coordinator_partition, l.group_id, l.topic_id, l.partition,
            l.record_offset, l.position, l.node, l.incarnation, l.n,
            min(s.position) AS first_position,
            max(CASE WHEN s.snapshot_epoch = l.snapshot_epoch AND s.state_epoch = l.state_epoch
                AND s.leader_epoch = l.leader_epoch AND s.start_offset = l.start_offset
                THEN 1 ELSE 0 END) AS is_equal
        FROM coordinated_share_loaded AS l JOIN stored AS s ON s.run = l.run
            AND s.coordinator_partition = l.coordinator_partition AND s.group_id = l.group_id
            AND s.topic_id = l.topic_id AND s.partition = l.partition
            AND s.record_offset = l.record_offset
        GROUP BY l.run, l.coordinator_partition, l.group_id, l.topic_id, l.partition,
            l.record_offset, l.position, l.node, l.incarnation, l.n
    )
"""
"""`compared`: each load of a record that was reported as stored."""

LOADED_SHARE_STATES_EQUAL_STORED = Invariant(
    name=EQUAL,
    rule="A share coordinator that loads its partition has, at each record, the state that the "
    "record led to when it was stored.",
    source="KIP-932, ShareCoordinatorShard.replay",
    watches=(CoordinatedShareStored, CoordinatedShareLoaded),
    check=LoadedEqualStored,
    examined=f"WITH {_LOADS} SELECT run, count(*) FROM compared GROUP BY run",
    violations=f"""
        WITH {_LOADS}
        SELECT
            run,
            concat(group_id, '/', topic_id, '/', partition, '/', node, '.', incarnation, '.', n)
                AS key,
            concat(group_id, ': the state of ', topic_id, '-', partition, ' at offset ',
                record_offset, ' is loaded with other content') AS message,
            first_position AS first_witness,
            position AS second_witness
        FROM compared WHERE is_equal = 0
    """,
)

INVARIANTS = (SHARE_STATES_ONLY_ADVANCE, LOADED_SHARE_STATES_EQUAL_STORED)
