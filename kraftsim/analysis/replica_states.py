"""The state of each replica of a log at one event of a run: log end offset, flushed offset, high
watermark, leader epoch.

Each figure is what the last event before that moment says that sets it, so only the last event of
each kind per node is read in full. A figure that a node has not logged since it last started is
unknown: nodes keep it in memory.   Source: KIP-101, KIP-595.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kraftsim.analysis.columns import POSITION
from kraftsim.analysis.places import Where
from kraftsim.analysis.store import read_events

METADATA_TOPIC: Final = "__cluster_metadata"
Row: TypeAlias = Mapping[str, int | str | bool | None]


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    """One replica. Offsets and epoch are null where no event of this incarnation has them."""

    node: str
    role: str
    leader_epoch: int | None
    log_end_offset: int | None
    flushed_offset: int | None
    high_watermark: int | None


class _Fold(msgspec.Struct, frozen=True):
    """Which field of which kind sets a figure, and what is added to it."""

    log_end: Mapping[str, tuple[str, int]]
    flushed: Mapping[str, tuple[str, int]]
    high_watermark: Mapping[str, tuple[str, int]]
    leader_epoch: Mapping[str, tuple[str, int]]

    @property
    def kinds(self) -> set[str]:
        """All kinds that set a figure."""
        return {*self.log_end, *self.flushed, *self.high_watermark, *self.leader_epoch}


_PARTITION: Final = _Fold(
    log_end={
        "BatchAppended": ("last_offset", 1),
        "BatchReplicated": ("last_offset", 1),
        "MarkerAppended": ("offset", 1),
        "PartitionTruncated": ("log_end_offset", 0),
        "LeaderElected": ("next_offset", 0),
        "LeaderFollowed": ("log_end_offset", 0),
        "LogRecovered": ("next_offset", 0),
    },
    flushed={},
    high_watermark={
        "PartitionHighWatermarkMoved": ("high_watermark", 0),
        "LastStableOffsetMoved": ("high_watermark", 0),
    },
    leader_epoch={
        "LeaderElected": ("leader_epoch", 0),
        "LeaderFollowed": ("leader_epoch", 0),
        "LeadershipLost": ("leader_epoch", 0),
        "PartitionHighWatermarkMoved": ("leader_epoch", 0),
    },
)
_METADATA: Final = _Fold(
    log_end={
        "MetadataAppended": ("last_offset", 1),
        "MetadataWritten": ("last_offset", 1),
        "MetadataReplicated": ("last_offset", 1),
        "MetadataTruncated": ("end_offset", 0),
        "SnapshotLoaded": ("end_offset", 0),
        "LogRecovered": ("next_offset", 0),
    },
    flushed={"MetadataFlushed": ("end_offset", 0)},
    high_watermark={
        "HighWatermarkMoved": ("high_watermark", 0),
        "MetadataCommitted": ("high_watermark", 0),
    },
    leader_epoch={
        "RaftRoleChanged": ("leader_epoch", 0),
        "ControllerElected": ("leader_epoch", 0),
        "HighWatermarkMoved": ("leader_epoch", 0),
    },
)
_ROLES: Final = {"LeaderElected": "leader", "LeaderFollowed": "follower", "LeadershipLost": ""}
_RAFT_ROLE: Final = "RaftRoleChanged"
_STARTED: Final = "NodeStarted"
_DOWN: Final = {"NodeStopped": "stopped", "NodeFailed": "failed"}
_KILLS: Final = ("kill", "restart", "power-loss", "crash-loop", "half-open-restart")
_FAULT: Final = "FaultInjected"
_TRUNCATED: Final = ("MetadataTruncated", "SnapshotLoaded")


def replica_states(
    parquet: Where, topic: str, partition: int, position: int
) -> tuple[ReplicaState, ...]:
    """Return the replicas of a partition, or of the metadata log (`METADATA_TOPIC`), as they are
    right after the event at a position; none if no event tells of any.
    """
    is_metadata = topic == METADATA_TOPIC
    fold = _METADATA if is_metadata else _PARTITION
    rows = _last_rows(parquet, fold.kinds, None if is_metadata else (topic, partition), position)
    nodes = {str(row["node"]) for row in rows if row["kind"] in fold.kinds}
    if is_metadata:  # brokers replicate the metadata log, too, but do not vote or acknowledge
        nodes = {node for node in nodes if node not in _brokers(rows)}
    return tuple(
        _state(node, [row for row in rows if row["node"] == node], rows, fold)
        for node in sorted(nodes, key=lambda name: (len(name), name))
    )


def _last_rows(
    parquet: Where, kinds: set[str], log: tuple[str, int] | None, position: int
) -> Sequence[Row]:
    """Return the last event of each kind on each node up to a position, in the order of time."""
    lifecycle = {_STARTED, *_DOWN, _FAULT}
    columns = [POSITION, "kind", "node", "topic", "partition"]
    found = read_events(parquet, kinds=kinds | lifecycle, columns=columns)
    found = found.filter(pc.less_equal(found.column(POSITION), position))
    recovered = pc.equal(found.column("kind"), "LogRecovered")
    of_log = (
        pc.or_kleene(pc.invert(recovered), pc.equal(found.column("topic"), METADATA_TOPIC))
        if log is None
        else pc.and_(
            pc.equal(found.column("topic"), log[0]), pc.equal(found.column("partition"), log[1])
        )
    )
    is_lifecycle = pc.is_in(found.column("kind"), pa.array(sorted(lifecycle)))
    found = found.filter(pc.or_kleene(is_lifecycle, of_log))
    last = (
        found.select([POSITION, "kind", "node"])
        .filter(pc.not_equal(found.column("kind"), _FAULT))
        .group_by(["kind", "node"])
        .aggregate([(POSITION, "max")])
        .column(f"{POSITION}_max")
        .to_pylist()
    )
    faults = found.filter(pc.equal(found.column("kind"), _FAULT)).column(POSITION).to_pylist()
    names = [POSITION, "kind", "node", "incarnation", "role", "fault", "target", "is_leader"]
    fields = [
        "last_offset",
        "offset",
        "log_end_offset",
        "next_offset",
        "end_offset",
        "high_watermark",
        "leader_epoch",
    ]
    positions = sorted({*last, *faults})
    if not positions:
        return []
    table = read_events(parquet, columns=[*names, *fields], positions=positions)
    rows: Sequence[Row] = table.to_pylist()
    return sorted(rows, key=lambda row: int(row[POSITION] or 0))


def _brokers(rows: Sequence[Row]) -> set[str]:
    return {str(row["node"]) for row in rows if row["kind"] == _STARTED and row["role"] == "broker"}


def _state(node: str, rows: Sequence[Row], everything: Sequence[Row], fold: _Fold) -> ReplicaState:
    incarnation = max(int(row["incarnation"] or 0) for row in rows)
    own = [row for row in rows if row["incarnation"] == incarnation]
    truncated = _figure(own, dict.fromkeys(_TRUNCATED, ("end_offset", 0)))
    flushed = _figure(own, fold.flushed)
    if flushed is not None and truncated is not None and truncated[1] > flushed[1]:
        flushed = (min(flushed[0], truncated[0]), flushed[1])
    end = _figure(own, fold.log_end)
    return ReplicaState(
        node=node,
        role=_role(node, own, everything),
        leader_epoch=_value(_figure(own, fold.leader_epoch)),
        log_end_offset=_value(end),
        flushed_offset=_value(flushed),
        high_watermark=_value(_figure(own, fold.high_watermark)),
    )


def _figure(rows: Sequence[Row], kinds: Mapping[str, tuple[str, int]]) -> tuple[int, int] | None:
    """Return a figure as the last of the kinds sets it, and the position of that event."""
    found = None
    for row in rows:
        field, more = kinds.get(str(row["kind"]), ("", 0))
        value = row[field] if field else None
        if value is not None:
            found = (int(value) + more, int(row[POSITION] or 0))
    return found


def _value(found: tuple[int, int] | None) -> int | None:
    return None if found is None else found[0]


def _role(node: str, own: Sequence[Row], everything: Sequence[Row]) -> str:
    """Return what the node is for this log: leader, follower, a role of Raft; or why it is down."""
    role, position = "", -1
    for row in own:
        kind = str(row["kind"])
        if kind in _ROLES:
            role = _ROLES[kind]
        elif kind == _RAFT_ROLE:
            role = str(row["role"]).lower()
        elif kind in _DOWN:
            role = _DOWN[kind]
        position = int(row[POSITION] or 0)
    for row in everything:
        if (
            row["kind"] == _FAULT
            and row["fault"] in _KILLS
            and row["target"] == node
            and int(row[POSITION] or 0) > position
        ):
            return "killed"
    return role
