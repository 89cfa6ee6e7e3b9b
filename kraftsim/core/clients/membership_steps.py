"""What goes into the rules of a group's member and what comes out.

Source: org.apache.kafka.clients.consumer.internals.{AbstractCoordinator, ConsumerCoordinator}, KIP-62, KIP-345, KIP-429.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from kraftsim.core.clients.assignors import RANGE, Subscriber
from kraftsim.core.clients.producer_steps import TimePassed, TopicPartition
from kraftsim.core.clients.transaction_steps import CoordinatorFound, CoordinatorLost, FindCoordinator
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
    """Of an application whose members probe versions (KIP-268): the latest that this one understands."""


class MemberState(Enum):
    """Where a member is."""

    OUTSIDE = auto()
    """It wants to join, or to join again."""
    JOINING = auto()
    ASSIGNING = auto()
    """It leads the group and does not know yet how many partitions there are."""
    SYNCING = auto()
    STABLE = auto()
    RELEASING = auto()
    """The application is asked to let partitions go; it joins again after that."""
    EXPELLED = auto()
    """The application works with what others may have by now; it joins again once the application knows that."""
    LEAVING = auto()
    GONE = auto()


# Questions --------------------------------------------------------------------------------------------------------------------------------------


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """Join, or join again. `owned` is what the member keeps meanwhile."""

    member_id: str
    owned: tuple[TopicPartition, ...]
    generation_id: int
    versions: Versions | None = None


class Sync(msgspec.Struct, frozen=True, kw_only=True):
    """Fetch the assignment; the leader brings it."""

    member_id: str
    generation_id: int
    protocol: str
    assignment: Mapping[str, tuple[TopicPartition, ...]]
    versions: Versions | None = None


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """Say that the member lives."""

    member_id: str
    generation_id: int


class Leave(msgspec.Struct, frozen=True):
    """Leave."""

    member_id: str


MemberQuestion = Join | Sync | Beat | Leave


# Inputs -----------------------------------------------------------------------------------------------------------------------------------------


class MemberStarted(msgspec.Struct, frozen=True):
    """The application subscribes."""


class Released(msgspec.Struct, frozen=True):
    """The application has let go what it was asked to, or what was lost."""


class LeaveAsked(msgspec.Struct, frozen=True):
    """The application ends its membership."""


class PartitionsCounted(msgspec.Struct, frozen=True):
    """How many partitions the topics of the group have, as far as the broker knows them; None: nobody answered."""

    counts: Mapping[str, int] | None


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """JoinGroup was answered. `members` is there for the leader only."""

    error_code: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol: str = ""
    is_leader: bool = False
    members: tuple[Subscriber, ...] = ()


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """SyncGroup was answered."""

    error_code: ErrorCode
    partitions: tuple[TopicPartition, ...] = ()
    versions: Versions | None = None


class Beaten(msgspec.Struct, frozen=True):
    """Heartbeat was answered."""

    error_code: ErrorCode


class Left(msgspec.Struct, frozen=True):
    """LeaveGroup was answered, or was not: the session's time-out does the rest."""


class MemberQuestionLost(msgspec.Struct, frozen=True):
    """No answer to the question under way."""


MembershipInput = (
    MemberStarted
    | Released
    | LeaveAsked
    | PartitionsCounted
    | Joined
    | Synced
    | Beaten
    | Left
    | MemberQuestionLost
    | CoordinatorFound
    | CoordinatorLost
    | TimePassed
)


# Effects ----------------------------------------------------------------------------------------------------------------------------------------


class AskMember(msgspec.Struct, frozen=True, kw_only=True):
    """Send a question to the group's coordinator. One is under way at a time."""

    broker_id: int
    question: MemberQuestion


class CountPartitions(msgspec.Struct, frozen=True):
    """Ask how many partitions topics have; answer with PartitionsCounted."""

    topics: tuple[str, ...]


class AssignmentChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The member reads these partitions from now on; `added` did not belong to it before."""

    member_id: str
    generation_id: int
    partitions: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]


class ReleaseWanted(msgspec.Struct, frozen=True):
    """Let these partitions go, then say Released."""

    partitions: tuple[TopicPartition, ...]


class MemberLost(msgspec.Struct, frozen=True, kw_only=True):
    """The member was expelled, or can never be one: what it read may belong to somebody else by now. If it had anything, say Released."""

    error_code: ErrorCode
    is_fatal: bool


MembershipEffect = FindCoordinator | AskMember | CountPartitions | AssignmentChanged | ReleaseWanted | MemberLost
