"""The settings and states of a group member, and the requests, inputs and effects of its state
machine, in groups of both protocols.

Source: KIP-62, KIP-268, KIP-345, KIP-848,
org.apache.kafka.clients.consumer.internals.{AbstractCoordinator, MemberState}.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import NamedTuple

import msgspec

from kraftsim.clients.rules_producer_steps import TimePassed, TopicPartition
from kraftsim.clients.rules_transaction_steps import (
    CoordinatorFound,
    CoordinatorLost,
    FindCoordinator,
)
from protocol.errors import ErrorCode

RANGE = "range"
COOPERATIVE_STICKY = "cooperative-sticky"


class Versions(NamedTuple):
    """The user data, two int32.

    To the leader: the version in use and the member's latest supported version.

    From the leader: the version of the assignment and the latest commonly supported version.
    """

    used: int
    latest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as the leader knows it. owned_generation_id is the generation in which its owned
    partitions were assigned.
    """

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    owned_generation_id: int = -1
    versions: Versions | None = None


class GroupProtocol(StrEnum):
    """The values of group.protocol: of KIP-62's groups, of KIP-848's, and of KIP-1071's; and share
    groups, whose members join in the same way as KIP-848's, with fewer fields.
    """

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """Kafka's consumer settings, by their names."""

    group_id: str
    topics: tuple[str, ...]
    assignor: str = RANGE
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3000
    rebalance_timeout_ms: int = 300_000
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 300_000
    group_instance_id: str | None = None
    latest_version: int | None = None
    """If members probe versions (KIP-268): the latest supported version."""
    group_protocol: GroupProtocol = GroupProtocol.CLASSIC
    group_remote_assignor: str | None = None
    """For the consumer protocol; None: the coordinator chooses."""
    topic_expression: str | None = None
    """For the consumer protocol: a regular expression (RE2) of more topics."""
    returns_soon: bool = False
    """For the consumer protocol: whether a static member that leaves will be back, so that its
    partitions wait for it (member epoch -2).
    """
    subtopologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For the streams protocol, the topology: subtopology id -> source topics."""
    process_id: str = ""
    """For the streams protocol: the process, among whose members tasks are spread last."""


class ClientMemberState(Enum):
    """The state of a member."""

    OUTSIDE = auto()
    """It has to join or rejoin."""
    JOINING = auto()
    ASSIGNING = auto()
    """It is the leader and waits for the partition counts."""
    SYNCING = auto()
    RECONCILING = auto()
    """Consumer protocol: it has to learn the names of assigned topics."""
    ACKNOWLEDGING = auto()
    """Consumer protocol: the next heartbeat says at once which partitions it owns."""
    STABLE = auto()
    RELEASING = auto()
    """The application has to release partitions. A classic member rejoins afterwards, one of the
    consumer protocol acknowledges.
    """
    EXPELLED = auto()
    """The application still processes partitions that other members may own; the member rejoins
    once the application has released them.
    """
    LEAVING = auto()
    GONE = auto()


# Requests
# --------------------------------------------------------------------------------------------------


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """JoinGroup. `owned` are the partitions that the member keeps meanwhile."""

    member_id: str
    owned: tuple[TopicPartition, ...]
    generation_id: int
    versions: Versions | None = None


class Sync(msgspec.Struct, frozen=True, kw_only=True):
    """SyncGroup; the leader's has the assignment."""

    member_id: str
    generation_id: int
    protocol: str
    assignment: Mapping[str, tuple[TopicPartition, ...]]
    versions: Versions | None = None


class MemberHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Heartbeat."""

    member_id: str
    generation_id: int


class Leave(msgspec.Struct, frozen=True):
    """LeaveGroup."""

    member_id: str


class ConsumerHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """ConsumerGroupHeartbeat; fields of None, and a timeout of -1, are unchanged.

    `owned` are partitions by topic id.
    """

    member_id: str
    member_epoch: int
    topics: tuple[str, ...] | None = None
    expression: str | None = None
    rebalance_timeout_ms: int = -1
    owned: Mapping[bytes, tuple[int, ...]] | None = None


class StreamsMemberHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """StreamsGroupHeartbeat; with `joins` it has the topology.

    `active` are tasks by subtopology id, None: unchanged.
    """

    member_id: str
    member_epoch: int
    joins: bool = False
    active: Mapping[str, tuple[int, ...]] | None = None


MemberQuestion = Join | Sync | MemberHeartbeat | Leave | ConsumerHeartbeat | StreamsMemberHeartbeat


# Inputs
# --------------------------------------------------------------------------------------------------


class MemberStarted(msgspec.Struct, frozen=True):
    """The application subscribes."""


class Released(msgspec.Struct, frozen=True):
    """The application has released the revoked or lost partitions."""


class LeaveAsked(msgspec.Struct, frozen=True):
    """The application leaves the group."""


class PartitionsCounted(msgspec.Struct, frozen=True):
    """The partition counts of the group's topics in the broker's metadata; None: no response."""

    counts: Mapping[str, int] | None


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The JoinGroup response. `members` is for the leader only."""

    error_code: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol: str = ""
    is_leader: bool = False
    members: tuple[Subscriber, ...] = ()


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """The SyncGroup response."""

    error_code: ErrorCode
    partitions: tuple[TopicPartition, ...] = ()
    versions: Versions | None = None


class HeartbeatAnswered(msgspec.Struct, frozen=True):
    """The Heartbeat response."""

    error_code: ErrorCode


class Left(msgspec.Struct, frozen=True):
    """The LeaveGroup response, or none: then the session times out."""


class ConsumerHeartbeatAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """The ConsumerGroupHeartbeat response; `assigned` by topic id, None: unchanged."""

    error_code: ErrorCode
    member_epoch: int = -1
    heartbeat_interval_ms: int = 0
    assigned: Mapping[bytes, tuple[int, ...]] | None = None


class StreamsHeartbeatAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """The StreamsGroupHeartbeat response; `active` tasks by subtopology id, None: unchanged."""

    error_code: ErrorCode
    member_epoch: int = -1
    heartbeat_interval_ms: int = 0
    active: Mapping[str, tuple[int, ...]] | None = None


class TopicsNamed(msgspec.Struct, frozen=True):
    """The names of the topic ids that brokers know; None: no response."""

    names: Mapping[bytes, str] | None


class SubscriptionChanged(msgspec.Struct, frozen=True):
    """Consumer protocol: the application subscribes to other topics."""

    topics: tuple[str, ...]
    expression: str | None = None


class MemberQuestionLost(msgspec.Struct, frozen=True):
    """No response to the request in flight."""


MembershipInput = (
    MemberStarted
    | Released
    | LeaveAsked
    | PartitionsCounted
    | Joined
    | Synced
    | HeartbeatAnswered
    | Left
    | ConsumerHeartbeatAnswered
    | StreamsHeartbeatAnswered
    | TopicsNamed
    | SubscriptionChanged
    | MemberQuestionLost
    | CoordinatorFound
    | CoordinatorLost
    | TimePassed
)


# Effects
# --------------------------------------------------------------------------------------------------


class SendMemberRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Send a request to the group coordinator. One is in flight at a time."""

    broker_id: int
    question: MemberQuestion


class CountPartitions(msgspec.Struct, frozen=True):
    """Request the partition counts of topics; the response is PartitionsCounted."""

    topics: tuple[str, ...]


class NameTopics(msgspec.Struct, frozen=True):
    """Look up the names of topic ids; the response is TopicsNamed."""

    topic_ids: tuple[bytes, ...]


class AssignmentChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The assigned partitions, or the generation or member epoch, changed; `added` are the new
    ones.
    """

    member_id: str
    generation_id: int
    partitions: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]


class ReleaseWanted(msgspec.Struct, frozen=True):
    """Release these partitions, then send Released."""

    partitions: tuple[TopicPartition, ...]


class MemberLost(msgspec.Struct, frozen=True, kw_only=True):
    """The member was expelled, or has failed: other members may own its partitions.

    If it had any, send Released.
    """

    error_code: ErrorCode
    is_fatal: bool


MembershipEffect = (
    FindCoordinator
    | SendMemberRequest
    | CountPartitions
    | NameTopics
    | AssignmentChanged
    | ReleaseWanted
    | MemberLost
)
