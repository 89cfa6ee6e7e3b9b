"""The state and the effects of a replica of the metadata log: offsets and epochs of the log, the
settings, the voter sets, and what the shell must execute.

No bytes here: `kraftsim.raft.raft_node` writes, truncates and flushes records as the effects
specify, in their order.
Source: org.apache.kafka.raft.{ReplicatedLog, ValidOffsetAndEpoch, QuorumConfig, VoterSet,
ReplicaKey}, kafka.raft.KafkaMetadataLog.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from kraftsim.events.event import Event
from kraftsim.partitions.rules_log import LeaderEpochs
from protocol.records.batches import RecordBatch
from protocol.records.control_records import (
    Endpoint,
    KRaftVersionFeature,
    RegisteredVoter,
    VotersRecord,
)
from protocol.schema import Message
from protocol.storage.checkpoints import EpochStart
from protocol.storage.quorum_state import QuorumState
from protocol.uuids import ZERO_UUID

# --------------------------------------------------------------------------------------------------
# The log as elections and replication use it: start, end, epochs, flushed and committed offsets


class LogEnd(NamedTuple):
    """The epoch of the last record and the end offset.

    The greater of two is the more complete log.
    """

    epoch: int
    offset: int


class SnapshotId(NamedTuple):
    """A snapshot, by its end offset (exclusive) and the epoch of its last record."""

    end_offset: int
    epoch: int


FORMAT_SNAPSHOT: Final = SnapshotId(0, 0)
"""The bootstrap snapshot from formatting: voters only. It is never sent to others."""


class DivergingEpoch(Struct, frozen=True):
    """The fetching replica's log may match this one up to here at most."""

    epoch: int
    end_offset: int


class RaftLog:
    """Offsets and epochs of one replica's log. An empty log ends at (0, 0)."""

    def __init__(
        self,
        *,
        start_offset: int = 0,
        end_offset: int = 0,
        epoch_starts: Iterable[EpochStart] = (),
        snapshots: Iterable[SnapshotId] = (),
    ) -> None:
        self.epochs = LeaderEpochs(epoch_starts)
        self.snapshots = sorted(snapshots)
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.flushed_end_offset = end_offset
        """The first offset that a power loss may lose.

        A loaded log counts as flushed: the node flushes it at startup.
        """
        self.high_watermark: int | None = None
        """The first offset that is not known to be committed."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; of the snapshot, if the log after it is empty; 0 for an
        empty log.
        """
        latest = self.epochs.latest_epoch
        if latest is not None:
            return latest
        return self.snapshots[-1].epoch if self.snapshots else 0

    @property
    def end(self) -> LogEnd:
        """Epoch and offset of the end."""
        return LogEnd(self.last_epoch, self.end_offset)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The latest snapshot that may be sent to others."""
        return (
            self.snapshots[-1] if self.snapshots and self.snapshots[-1] != FORMAT_SNAPSHOT else None
        )

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        """The oldest retained snapshot."""
        return self.snapshots[0] if self.snapshots else None

    def append(self, leader_epoch: int, record_count: int) -> int:
        """Append records of an epoch, and return the offset of the first."""
        assert record_count > 0, "a batch has at least one record"
        assert leader_epoch >= self.last_epoch, (
            f"epoch {leader_epoch} after records of epoch {self.last_epoch}"
        )
        first_offset = self.end_offset
        self.epochs.assign(leader_epoch, first_offset)
        self.end_offset += record_count
        return first_offset

    def truncate_to(self, end_offset: int) -> None:
        """Truncate from end_offset on. Committed records cannot be truncated."""
        assert self.high_watermark is None or end_offset >= self.high_watermark, (
            f"{end_offset} is below the high watermark {self.high_watermark}"
        )
        assert end_offset >= self.start_offset, (
            f"{end_offset} is below the log start offset, {self.start_offset}"
        )
        self.epochs.truncate_to(end_offset)
        self.end_offset = min(self.end_offset, end_offset)
        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)

    def advance_log_start(self, snapshot: SnapshotId) -> list[SnapshotId]:
        """Replace the whole log by a snapshot, which is its start and end; everything in it is
        committed.

        Returns the older snapshots, which are deleted: with a log start after its earliest
        snapshot, a replica that has this snapshot would have to refetch it.
        """
        gone = [other for other in self.snapshots if other < snapshot]
        self.snapshots = [other for other in self.snapshots if other >= snapshot]
        self.add_snapshot(snapshot)
        self.epochs = LeaderEpochs()
        self.start_offset = self.end_offset = self.flushed_end_offset = snapshot.end_offset
        self.high_watermark = snapshot.end_offset
        return gone

    def add_snapshot(self, snapshot: SnapshotId) -> None:
        """Add a complete snapshot."""
        if snapshot not in self.snapshots:
            self.snapshots = sorted([*self.snapshots, snapshot])

    def delete_before(self, snapshot: SnapshotId) -> list[SnapshotId]:
        """Advance the log start offset to a snapshot, and return the older ones, which are
        deleted.
        """
        assert snapshot in self.snapshots, f"there is no snapshot {snapshot}"
        gone = [other for other in self.snapshots if other < snapshot]
        self.snapshots = [other for other in self.snapshots if other >= snapshot]
        self.start_offset = max(self.start_offset, snapshot.end_offset)
        kept = [start for start in self.epochs.starts if start.start_offset >= self.start_offset]
        epoch = self.epochs.epoch_at(self.start_offset)
        if (
            epoch is not None
            and (not kept or kept[0].start_offset > self.start_offset)
            and self.start_offset < self.end_offset
        ):
            kept = [EpochStart(epoch, self.start_offset), *kept]
        self.epochs = LeaderEpochs(kept)
        return gone

    def epoch_before(self, end_offset: int) -> int:
        """Return the epoch of the last record before an offset; -1 if unknown here."""
        found = self.epochs.epoch_at(end_offset - 1)
        if found is not None:
            return found
        return next(
            (snapshot.epoch for snapshot in self.snapshots if snapshot.end_offset == end_offset), -1
        )

    def end_of_epoch(self, epoch: int) -> DivergingEpoch:
        """Return the highest epoch here that is not above the requested one, and its end offset."""
        found, end_offset = self.epochs.end_offset_for(epoch, self.end_offset)
        if found < 0:  # above everything here, or nothing is here
            return DivergingEpoch(self.last_epoch, self.end_offset)
        earliest = self.earliest_snapshot
        if (
            earliest is not None and end_offset == earliest.end_offset and found == epoch
        ):  # below everything here
            return DivergingEpoch(earliest.epoch, earliest.end_offset)
        return DivergingEpoch(found, end_offset)

    def agreement_with(
        self, fetch_offset: int, last_fetched_epoch: int
    ) -> DivergingEpoch | SnapshotId | None:
        """Compare with a log that ends at an offset with a record of an epoch.

        None: it is a prefix of this one.

        Else the largest possibly common offset, or the snapshot to fetch, if the missing records
        are not in the log any more.
        """
        latest = self.latest_snapshot
        if fetch_offset == 0 and latest is not None:
            return latest
        if self.start_offset == 0 and fetch_offset == 0:
            return None
        earliest = self.earliest_snapshot
        if earliest is not None and latest is not None:
            is_before = fetch_offset < self.start_offset
            is_another_start = (
                fetch_offset == self.start_offset and last_fetched_epoch != earliest.epoch
            )
            if is_before or is_another_start or last_fetched_epoch < earliest.epoch:
                return latest
        found = self.end_of_epoch(last_fetched_epoch)
        return (
            found if found.epoch != last_fetched_epoch or found.end_offset < fetch_offset else None
        )


# --------------------------------------------------------------------------------------------------
# Timeouts, by Kafka's names, and constants of its code
#
# Source: org.apache.kafka.raft.{QuorumConfig, KafkaRaftClient}.

MAX_FETCH_WAIT_MS: Final = 500
"""The maximum wait of a Fetch without new records."""
MAX_FETCH_BYTES: Final = 8 * 1024 * 1024
"""MAX_FETCH_SIZE_BYTES: the maximum size of a response, if no setting is lower."""
RETRY_BACKOFF_BASE_MS: Final = 100
"""The unit of a candidate's backoff after a lost election."""
CHECK_QUORUM_FACTOR: Final = 1.5
"""The check quorum timeout, as a multiple of the fetch timeout: without requests from a majority
the leader resigns (KAFKA-15489).
"""
OBSERVER_SESSION_MS: Final = 300_000
"""An observer without a Fetch for this long is removed."""
UPDATE_VOTER_FACTOR: Final = 3
"""The interval, in fetch timeouts, at which a voter checks its own entry in the voter set."""
NEW_VOTER_FETCH_MS: Final = 3_600_000
"""A replica may become a voter if it fetched within this time and was caught up once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    """The configured settings."""

    election_timeout_ms: int = 1000
    """controller.quorum.election.timeout.ms: the minimum time that a voter waits for a leader; the
    maximum is less than twice that.
    """
    fetch_timeout_ms: int = 2000
    """controller.quorum.fetch.timeout.ms: how long a follower continues without a successful
    Fetch.
    """
    election_backoff_max_ms: int = 1000
    """controller.quorum.election.backoff.max.ms: the maximum backoff after a lost election."""
    request_timeout_ms: int = 2000
    """controller.quorum.request.timeout.ms: the timeout of a request."""
    retry_backoff_ms: int = 20
    """controller.quorum.retry.backoff.ms: the backoff after a failed request."""
    fetch_max_bytes: int = MAX_FETCH_BYTES
    """controller.quorum.fetch.max.bytes: the maximum size of a Fetch response, but at least one
    batch (KIP-1219).
    """
    fetch_snapshot_max_bytes: int = MAX_FETCH_BYTES
    """controller.quorum.fetch.snapshot.max.bytes: the same for FetchSnapshot."""
    has_pre_vote: bool = False
    """Whether a voter runs a pre-vote before it bumps the epoch (KIP-996, since 4.0)."""
    always_flushes: bool = True
    """Whether a follower flushes records before its next fetch; voters always do."""

    @property
    def check_quorum_ms(self) -> int:
        """The check quorum timeout: how long a leader continues without requests from a
        majority.
        """
        return int(self.fetch_timeout_ms * CHECK_QUORUM_FACTOR)

    @property
    def begin_epoch_interval_ms(self) -> int:
        """The interval of BeginQuorumEpoch requests."""
        return self.fetch_timeout_ms // 2


# --------------------------------------------------------------------------------------------------
# The voter set: keys, endpoints, and changes
#
# With kraft.version 0 the set is in the configuration, without directory ids. With kraft.version 1
# it is in the log: the latest VotersRecord is used from the append on, committed or not, until it
# is truncated.
# Source: KIP-853, org.apache.kafka.raft.internals.{VoterSetHistory,
# KRaftControlRecordStateMachine}.

T = TypeVar("T")

STATIC_VOTERS = 0
"""kraft.version 0: static voters, in the configuration."""
DYNAMIC_VOTERS = 1
"""kraft.version 1: dynamic voters, in the log."""


class ReplicaKey(Struct, frozen=True, order=True):
    """A replica of the metadata log: the node and its log directory.

    The zero directory id is unknown.
    """

    id: int
    directory_id: bytes = ZERO_UUID

    def is_same_as(self, other: "ReplicaKey") -> bool:
        """Return whether both may be the same replica: an unknown directory id matches any."""
        is_known = self.directory_id != ZERO_UUID and other.directory_id != ZERO_UUID
        return self.id == other.id and (not is_known or self.directory_id == other.directory_id)


class Address(Struct, frozen=True):
    """The address of a listener."""

    host: str
    port: int


Endpoints = Mapping[str, Address]
"""From listener name to address; the first one is the controller listener."""


class VoterNode(Struct, frozen=True, kw_only=True):
    """A voter with its properties."""

    key: ReplicaKey
    endpoints: Endpoints = field(default_factory=dict)
    kraft_versions: tuple[int, int] = (STATIC_VOTERS, DYNAMIC_VOTERS)
    """The range of kraft.versions that it supports."""


class VoterSet:
    """An immutable set of voters."""

    __slots__ = ("_nodes", "keys", "nodes")

    keys: tuple[ReplicaKey, ...]
    """The keys of the voters, by id."""
    nodes: tuple[VoterNode, ...]
    """The voters, by id."""

    def __init__(self, nodes: Iterable[VoterNode] = ()) -> None:
        self._nodes: dict[int, VoterNode] = {
            node.key.id: node for node in sorted(nodes, key=lambda node: node.key.id)
        }
        self.nodes = tuple(self._nodes.values())
        self.keys = tuple(node.key for node in self.nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._nodes == other._nodes

    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable: Python's own form

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"VoterSet({list(self._nodes)})"

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the voters, ascending."""
        return tuple(self._nodes)

    @property
    def majority(self) -> int:
        """The size of a majority."""
        return len(self._nodes) // 2 + 1

    def node(self, voter_id: int) -> VoterNode | None:
        """Return a voter; None if the id is not in the set."""
        return self._nodes.get(voter_id)

    def includes(self, replica: ReplicaKey) -> bool:
        """Return whether a replica is a voter: by id and, if known, directory id."""
        node = self._nodes.get(replica.id)
        if node is None:
            return False
        directory_id = node.key.directory_id
        return directory_id == replica.directory_id or directory_id == ZERO_UUID

    def is_only_voter(self, replica: ReplicaKey) -> bool:
        """Return whether it is the only voter."""
        return len(self._nodes) == 1 and self.includes(replica)

    def others(self, own_id: int) -> tuple[VoterNode, ...]:
        """Return the voters except one."""
        return tuple(node for voter_id, node in self._nodes.items() if voter_id != own_id)

    def endpoints_of(self, voter_id: int) -> Endpoints:
        """Return the endpoints of a voter; empty if it is not in the set."""
        node = self._nodes.get(voter_id)
        return {} if node is None else node.endpoints

    def with_voter(self, voter: VoterNode) -> "VoterSet":
        """Return the set with an added voter; its id must be new."""
        assert voter.key.id not in self._nodes, f"{voter.key.id} is already a voter"
        return VoterSet([*self._nodes.values(), voter])

    def without_voter(self, voter: ReplicaKey) -> "VoterSet":
        """Return the set without a voter that is in it."""
        assert self.includes(voter), f"{voter.id} is not a voter"
        return VoterSet(node for node in self._nodes.values() if node.key.id != voter.id)

    def with_updated(self, voter: VoterNode) -> "VoterSet":
        """Return the set with an updated voter that is in it."""
        assert self.includes(voter.key), f"{voter.key.id} is not a voter"
        return VoterSet(
            voter if node.key.id == voter.key.id else node for node in self._nodes.values()
        )

    def has_overlapping_majority(self, other: "VoterSet") -> bool:
        """Return whether every majority of one set overlaps every majority of the other: they
        differ by one voter at most.
        """
        gone = [key for key in self.keys if key not in other.keys]
        come = [key for key in other.keys if key not in self.keys]
        return len(gone) <= 1 and len(come) <= 1

    def record(self) -> VotersRecord:
        """Return the control record of this set."""
        return VotersRecord(
            voters=[
                RegisteredVoter(
                    voter_id=node.key.id,
                    voter_directory_id=node.key.directory_id,
                    endpoints=[
                        Endpoint(name=name, host=address.host, port=address.port)
                        for name, address in node.endpoints.items()
                    ],
                    k_raft_version_feature=KRaftVersionFeature(
                        min_supported_version=node.kraft_versions[0],
                        max_supported_version=node.kraft_versions[1],
                    ),
                )
                for node in self._nodes.values()
            ]
        )


def voter_set_of(record: VotersRecord) -> VoterSet:
    """Return the set of a control record."""
    return VoterSet(
        VoterNode(
            key=ReplicaKey(voter.voter_id, voter.voter_directory_id),
            endpoints={
                endpoint.name: Address(endpoint.host, endpoint.port) for endpoint in voter.endpoints
            },
            kraft_versions=(
                voter.k_raft_version_feature.min_supported_version,
                voter.k_raft_version_feature.max_supported_version,
            ),
        )
        for voter in record.voters
    )


def static_voter_set(addresses: Sequence[tuple[int, Address]], listener: str) -> VoterSet:
    """Return the set of controller.quorum.voters: ids and the address of one listener, no
    directories.
    """
    return VoterSet(
        VoterNode(key=ReplicaKey(voter_id), endpoints={listener: address})
        for voter_id, address in addresses
    )


class VoterHistory:
    """The history of voter sets and kraft.versions by offset, so that truncating the log reverts
    them.
    """

    __slots__ = ("_static", "_versions", "_voters", "latest")

    latest: VoterSet
    """The latest set."""

    def __init__(self, static_voters: VoterSet) -> None:
        self._static = static_voters
        self._voters: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []
        self.latest = static_voters

    @property
    def latest_offset(self) -> int | None:
        """The offset of the latest set; None if it is not from the log. -1 is the bootstrap
        snapshot.
        """
        return self._voters[-1][0] if self._voters else None

    @property
    def kraft_version(self) -> int:
        """The latest kraft.version."""
        return self._versions[-1][1] if self._versions else STATIC_VOTERS

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        """Add a VotersRecord of the log; offsets increase."""
        assert not self._voters or self._voters[-1][0] < offset, (
            f"voters at {offset} after those at {self._voters[-1][0]}"
        )
        self._voters.append((offset, voters))
        self.latest = voters

    def add_version(self, offset: int, kraft_version: int) -> None:
        """Add a KRaftVersionRecord of the log; offsets increase."""
        assert not self._versions or self._versions[-1][0] < offset, (
            "kraft.version records come in order"
        )
        self._versions.append((offset, kraft_version))

    def voters_at(self, offset: int) -> VoterSet:
        """Return the set as of an offset, inclusive."""
        return next((voters for at, voters in reversed(self._voters) if at <= offset), self._static)

    def kraft_version_at(self, offset: int) -> int:
        """Return the kraft.version as of an offset, inclusive."""
        return next(
            (version for at, version in reversed(self._versions) if at <= offset), STATIC_VOTERS
        )

    def truncate_to(self, end_offset: int) -> None:
        """Remove entries at or after end_offset."""
        self._voters = [entry for entry in self._voters if entry[0] < end_offset]
        self.latest = self._voters[-1][1] if self._voters else self._static
        self._versions = [entry for entry in self._versions if entry[0] < end_offset]

    def trim_before(self, start_offset: int) -> None:
        """Keep only the latest entry before start_offset."""
        self._voters = _newest_before(self._voters, start_offset)
        self._versions = _newest_before(self._versions, start_offset)

    def clear(self) -> None:
        """Remove all entries: a snapshot replaces the log."""
        self._voters.clear()
        self._versions.clear()
        self.latest = self._static


def _newest_before(entries: list[tuple[int, T]], start_offset: int) -> list[tuple[int, T]]:
    before = [entry for entry in entries if entry[0] < start_offset]
    return [*before[-1:], *(entry for entry in entries if entry[0] >= start_offset)]


def with_directory(voters: VoterSet, key: ReplicaKey) -> VoterSet:
    """Return the set with the directory id of one voter."""
    node = voters.node(key.id)
    assert node is not None, f"{key.id} is not a voter"
    return voters.with_updated(replace(node, key=key))


# --------------------------------------------------------------------------------------------------
# The effects of a replica, in order: persist, then write, then respond
#
# An effect after a `Persist` of the same replica happens after it is durable; a `Flush` runs while
# later effects are executed, and its result comes back by `on_flushed`.


class Persist(Struct, frozen=True):
    """Write quorum-state durably before any later effect is visible to other nodes."""

    state: QuorumState
    data_version: int


class EmitEvent(Struct, frozen=True):
    """Emit an event that is true once all earlier effects are durable."""

    event: Event


class Reply(Struct, frozen=True):
    """Answer a request; `ticket` identifies it."""

    ticket: object
    body: Message


class Send(Struct, frozen=True):
    """Send a request to another replica; the result comes by `on_response` or `on_failure` with the
    same number.
    """

    number: int
    node_id: int
    """The destination node; negative for a bootstrap address whose node id is unknown."""
    address: Address
    body: Message


class WriteLeaderChange(Struct, frozen=True):
    """Append the control batch that starts an epoch.

    `voters_record` and `kraft_version` are added to the batch if needed.
    """

    leader_epoch: int
    first_offset: int
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]
    voters_record: Message | None = None
    kraft_version: int | None = None


class WriteVoters(Struct, frozen=True):
    """Append a control batch with a VotersRecord."""

    leader_epoch: int
    first_offset: int
    voters_record: Message


class WriteFetched(Struct, frozen=True):
    """Append fetched batches unchanged. `batches` are the same, parsed."""

    records: bytes | memoryview
    batches: tuple[RecordBatch, ...]


class Flush(Struct, frozen=True):
    """Flush the log up to its current end; the result comes by `on_flushed`."""

    end_offset: int


class Truncate(Struct, frozen=True):
    """Truncate the log from an offset on."""

    end_offset: int


class WriteSnapshotPiece(Struct, frozen=True):
    """Write a chunk of a snapshot being fetched; position 0 starts the file."""

    snapshot: SnapshotId
    position: int
    piece: bytes | memoryview


class FinishSnapshot(Struct, frozen=True):
    """The fetched snapshot is complete: make it durable, rename it, delete the log before it, and
    load it.
    """

    snapshot: SnapshotId


class Lead(Struct, frozen=True):
    """This node is leader, and everything before its epoch is committed: it may become the active
    controller.
    """

    leader_epoch: int


class StopLeading(Struct, frozen=True):
    """This node is not leader any more: uncommitted records are reverted, and pending requests
    fail.
    """

    leader_epoch: int
    reason: str


class LeaderKnown(Struct, frozen=True):
    """The leader changed; None: unknown."""

    leader_epoch: int
    leader: VoterNode | None


class Advance(Struct, frozen=True):
    """The high watermark advanced."""

    high_watermark: int


class WakeFetches(Struct, frozen=True):
    """Check the pending Fetch requests: there are new records, or this node is not leader any
    more.
    """


Effect: TypeAlias = (
    Persist
    | EmitEvent
    | Reply
    | Send
    | WriteLeaderChange
    | WriteVoters
    | WriteFetched
    | Flush
    | Truncate
    | WriteSnapshotPiece
    | FinishSnapshot
    | Lead
    | StopLeading
    | LeaderKnown
    | Advance
    | WakeFetches
)
