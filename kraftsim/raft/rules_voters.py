"""The voter set of the metadata log: keys, endpoints, and changes.

With kraft.version 0 the set is in the configuration, without directory ids. With kraft.version 1 it
is in the log: the latest VotersRecord is used from the append on, committed or not, until it is
truncated.
Source: KIP-853, org.apache.kafka.raft.{VoterSet, ReplicaKey},
org.apache.kafka.raft.internals.{VoterSetHistory, KRaftControlRecordStateMachine}.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from protocol.records.control_records import (
    Endpoint,
    KRaftVersionFeature,
    RegisteredVoter,
    VotersRecord,
)
from protocol.uuids import ZERO_UUID

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

    __hash__ = None  # type: ignore[assignment]  # not hashable: Python's own form

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
