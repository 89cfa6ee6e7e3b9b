"""Who may vote: the voters of the quorum, where they are reached, and how the set changes while it is in use.

With kraft.version 0 the set stands in the configuration, and nobody's directory id is known to it. With kraft.version 1 it stands in the log: the
latest VotersRecord counts from the moment it is appended, committed or not, and stops counting when it is cut off again.
Source: KIP-595, KIP-853, org.apache.kafka.raft.{VoterSet, ReplicaKey}, internals.{VoterSetHistory, KRaftControlRecordStateMachine}.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from protocol.control_records import Endpoint, KRaftVersionFeature, RegisteredVoter, VotersRecord
from protocol.uuids import ZERO_UUID

T = TypeVar("T")

STATIC_VOTERS = 0
"""kraft.version 0: the voters stand in the configuration."""
DYNAMIC_VOTERS = 1
"""kraft.version 1: the voters stand in the log."""


class ReplicaKey(Struct, frozen=True, order=True):
    """A replica of the metadata log: the node and the directory that it keeps the log in. The zero directory id stands for "not told"."""

    id: int
    directory_id: bytes = ZERO_UUID

    def is_same_as(self, other: "ReplicaKey") -> bool:
        """Tell whether both may be the same replica: a directory id that was not told matches any."""
        is_told = self.directory_id != ZERO_UUID and other.directory_id != ZERO_UUID
        return self.id == other.id and (not is_told or self.directory_id == other.directory_id)


class Address(Struct, frozen=True):
    """Where a listener is reached."""

    host: str
    port: int


Endpoints = Mapping[str, Address]
"""From the name of a listener to where it is reached; the first one is where controllers meet."""


class VoterNode(Struct, frozen=True, kw_only=True):
    """A voter with all that others know of it."""

    key: ReplicaKey
    endpoints: Endpoints = field(default_factory=dict)
    kraft_versions: tuple[int, int] = (STATIC_VOTERS, DYNAMIC_VOTERS)
    """Lowest and highest kraft.version that it supports."""


class VoterSet:
    """The voters at one moment; never changed, only replaced."""

    __slots__ = ("_nodes", "keys", "nodes")

    keys: tuple[ReplicaKey, ...]
    """The keys of the voters, by id."""
    nodes: tuple[VoterNode, ...]
    """The voters, by id."""

    def __init__(self, nodes: Iterable[VoterNode] = ()) -> None:
        self._nodes: dict[int, VoterNode] = {node.key.id: node for node in sorted(nodes, key=lambda node: node.key.id)}
        self.nodes = tuple(self._nodes.values())
        self.keys = tuple(node.key for node in self.nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._nodes == other._nodes

    __hash__ = None  # type: ignore[assignment]

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
        """How many voters are more than half of them."""
        return len(self._nodes) // 2 + 1

    def node(self, voter_id: int) -> VoterNode | None:
        """Return a voter; None if that id does not vote."""
        return self._nodes.get(voter_id)

    def includes(self, replica: ReplicaKey) -> bool:
        """Tell whether this very replica votes: id and, where the set knows one, directory."""
        node = self._nodes.get(replica.id)
        if node is None:
            return False
        directory_id = node.key.directory_id
        return directory_id == replica.directory_id or directory_id == ZERO_UUID

    def is_only_voter(self, replica: ReplicaKey) -> bool:
        """Tell whether nobody else votes."""
        return len(self._nodes) == 1 and self.includes(replica)

    def others(self, own_id: int) -> tuple[VoterNode, ...]:
        """Return the voters besides one."""
        return tuple(node for voter_id, node in self._nodes.items() if voter_id != own_id)

    def endpoints_of(self, voter_id: int) -> Endpoints:
        """Return where a voter is reached; empty if it does not vote."""
        node = self._nodes.get(voter_id)
        return {} if node is None else node.endpoints

    def with_voter(self, voter: VoterNode) -> "VoterSet":
        """Return the set with one more voter; its id must be new."""
        assert voter.key.id not in self._nodes, f"{voter.key.id} votes already"
        return VoterSet([*self._nodes.values(), voter])

    def without_voter(self, voter: ReplicaKey) -> "VoterSet":
        """Return the set without a voter that is in it."""
        assert self.includes(voter), f"{voter.id} does not vote"
        return VoterSet(node for node in self._nodes.values() if node.key.id != voter.id)

    def with_updated(self, voter: VoterNode) -> "VoterSet":
        """Return the set with another description of a voter that is in it."""
        assert self.includes(voter.key), f"{voter.key.id} does not vote"
        return VoterSet(voter if node.key.id == voter.key.id else node for node in self._nodes.values())

    def has_overlapping_majority(self, other: "VoterSet") -> bool:
        """Tell whether every majority of one set meets every majority of the other, which is so if they differ by one voter at most."""
        gone = [key for key in self.keys if key not in other.keys]
        come = [key for key in other.keys if key not in self.keys]
        return len(gone) <= 1 and len(come) <= 1

    def record(self) -> VotersRecord:
        """Return the control record that makes this the set."""
        return VotersRecord(
            voters=[
                RegisteredVoter(
                    voter_id=node.key.id,
                    voter_directory_id=node.key.directory_id,
                    endpoints=[Endpoint(name=name, host=address.host, port=address.port) for name, address in node.endpoints.items()],
                    k_raft_version_feature=KRaftVersionFeature(
                        min_supported_version=node.kraft_versions[0], max_supported_version=node.kraft_versions[1]
                    ),
                )
                for node in self._nodes.values()
            ]
        )


def voter_set_of(record: VotersRecord) -> VoterSet:
    """Return the set that a control record describes."""
    return VoterSet(
        VoterNode(
            key=ReplicaKey(voter.voter_id, voter.voter_directory_id),
            endpoints={endpoint.name: Address(endpoint.host, endpoint.port) for endpoint in voter.endpoints},
            kraft_versions=(voter.k_raft_version_feature.min_supported_version, voter.k_raft_version_feature.max_supported_version),
        )
        for voter in record.voters
    )


def static_voter_set(addresses: Sequence[tuple[int, Address]], listener: str) -> VoterSet:
    """Return the set of controller.quorum.voters: ids and the address of one listener, no directories."""
    return VoterSet(VoterNode(key=ReplicaKey(voter_id), endpoints={listener: address}) for voter_id, address in addresses)


class VoterHistory:
    """The voters and the kraft.version as the log has them, offset by offset, so that cutting the log undoes them, too."""

    __slots__ = ("_static", "_versions", "_voters", "latest")

    latest: VoterSet
    """The set that counts."""

    def __init__(self, static_voters: VoterSet) -> None:
        self._static = static_voters
        self._voters: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []
        self.latest = static_voters

    @property
    def latest_offset(self) -> int | None:
        """Where in the log the set stands; None if it does not come from the log. -1 is the snapshot of the formatting."""
        return self._voters[-1][0] if self._voters else None

    @property
    def kraft_version(self) -> int:
        """The kraft.version that the quorum follows."""
        return self._versions[-1][1] if self._versions else STATIC_VOTERS

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        """Take a VotersRecord of the log; offsets only grow."""
        assert not self._voters or self._voters[-1][0] < offset, f"voters at {offset} behind those at {self._voters[-1][0]}"
        self._voters.append((offset, voters))
        self.latest = voters

    def add_version(self, offset: int, kraft_version: int) -> None:
        """Take a KRaftVersionRecord of the log; offsets only grow."""
        assert not self._versions or self._versions[-1][0] < offset, "kraft.version records come in order"
        self._versions.append((offset, kraft_version))

    def voters_at(self, offset: int) -> VoterSet:
        """Return the set that counted once the log went up to an offset, which is inside."""
        return next((voters for at, voters in reversed(self._voters) if at <= offset), self._static)

    def kraft_version_at(self, offset: int) -> int:
        """Return the kraft.version once the log went up to an offset, which is inside."""
        return next((version for at, version in reversed(self._versions) if at <= offset), STATIC_VOTERS)

    def truncate_to(self, end_offset: int) -> None:
        """Forget what stands at end_offset or behind it."""
        self._voters = [entry for entry in self._voters if entry[0] < end_offset]
        self.latest = self._voters[-1][1] if self._voters else self._static
        self._versions = [entry for entry in self._versions if entry[0] < end_offset]

    def trim_before(self, start_offset: int) -> None:
        """Keep of what stands before start_offset only the newest."""
        self._voters = _newest_before(self._voters, start_offset)
        self._versions = _newest_before(self._versions, start_offset)

    def clear(self) -> None:
        """Forget everything, because a snapshot takes the log's place."""
        self._voters.clear()
        self._versions.clear()
        self.latest = self._static


def _newest_before(entries: list[tuple[int, T]], start_offset: int) -> list[tuple[int, T]]:
    before = [entry for entry in entries if entry[0] < start_offset]
    return [*before[-1:], *(entry for entry in entries if entry[0] >= start_offset)]


def with_directory(voters: VoterSet, key: ReplicaKey) -> VoterSet:
    """Return the set in which one voter's directory id is known."""
    node = voters.node(key.id)
    assert node is not None, f"{key.id} does not vote"
    return voters.with_updated(replace(node, key=key))
