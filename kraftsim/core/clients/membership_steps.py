"""The inputs, effects and settings of a group member's state machine.

Source: org.apache.kafka.clients.consumer.internals.{AbstractCoordinator, ConsumerCoordinator},
KIP-62, KIP-345, KIP-429.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from kraftsim.core.clients.assignors import RANGE, Subscriber
from kraftsim.core.clients.producer_steps import TimePassed, TopicPartition
from kraftsim.core.clients.transaction_steps import (
    CoordinatorFound,
    CoordinatorLost,
    FindCoordinator,
)
from kraftsim.core.clients.version_probing import Versions
from protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
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


class MemberState(Enum):
    """The state of a member."""

    OUTSIDE = auto()
    """It has to join or rejoin."""
    JOINING = auto()
    ASSIGNING = auto()
    """It is the leader and waits for the partition counts."""
    SYNCING = auto()
    STABLE = auto()
    RELEASING = auto()
    """The application has to release partitions; the member rejoins afterwards."""
    EXPELLED = auto()
    """The application still processes partitions that other members may own; the member rejoins
    once the application has released them.
    """
    LEAVING = auto()
    GONE = auto()


# Requests
# --------------------------------------------------------------------------------------------------
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


MemberQuestion = Join | Sync | MemberHeartbeat | Leave


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


class AssignmentChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The assigned partitions changed; `added` are the new ones."""

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
    | AssignmentChanged
    | ReleaseWanted
    | MemberLost
)
