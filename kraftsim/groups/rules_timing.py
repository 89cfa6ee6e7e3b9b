"""What all rules of groups share: responses, settings, clocks, deadlines, the member of a classic
group, and the partition of a coordinator topic.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorConfig,
kafka.coordinator.group.MemberMetadata.
"""

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from struct import iter_unpack
from typing import Final, NamedTuple

from msgspec import Struct

from kraftsim.groups.rules_group_configs import (
    CONSUMER_ASSIGNMENT,
    CONSUMER_HEARTBEAT,
    CONSUMER_SESSION,
    NO_CONFIGS_OF_GROUPS,
    GroupConfigs,
)
from protocol.errors import ErrorCode

NO_GENERATION = -1
NO_MEMBER_ID = ""


# --------------------------------------------------------------------------------------------------
# Responses, independent of the version of the protocol message


class MemberRow(Struct, frozen=True):
    """One member, as reported to the group leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinAnswer(Struct, frozen=True, kw_only=True):
    """The new generation.

    `members` is filled for the leader only. With an error all fields but the member id are at their
    defaults.
    """

    error: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER_ID
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[MemberRow, ...] = ()


class SyncAnswer(Struct, frozen=True, kw_only=True):
    """The assignment of a member, or an error."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class CommitAnswer(Struct, frozen=True):
    """The result of an offset commit for each partition, in the order of the request."""

    errors: tuple[ErrorCode, ...]


class DeletionAnswer(Struct, frozen=True):
    """The result of a deletion for each group or partition, in the order of the request; or one
    `error` for the whole request.
    """

    errors: tuple[ErrorCode, ...]
    error: ErrorCode = ErrorCode.NONE


class HeartbeatAnswer(Struct, frozen=True, kw_only=True):
    """The heartbeat response of a consumer group.

    `assigned` (topic id -> partitions) is None where it is unchanged; `why` is the error message.
    """

    error: ErrorCode = ErrorCode.NONE
    why: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Mapping[bytes, tuple[int, ...]] | None = None


class OtherAnswer(Struct, frozen=True):
    """The base of the responses of other types of groups."""


GroupAnswer = (
    JoinAnswer | SyncAnswer | CommitAnswer | DeletionAnswer | HeartbeatAnswer | OtherAnswer
)


# --------------------------------------------------------------------------------------------------
# Settings of a group coordinator, by Kafka's property names

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""GroupCoordinator.NewMemberJoinTimeoutMs: the first join of a new member, which has no session
yet, may wait for this long.
"""


SHARE_MAX_SIZE: Final = 200
SHARE_INITIALIZE_RETRY_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """group.initial.rebalance.delay.ms, group.{min,max}.session.timeout.ms, group.max.size,
    offset.metadata.max.bytes, offsets.retention.minutes.

    Those of consumer groups: group.consumer.{session.timeout.ms, heartbeat.interval.ms, max.size,
    assignors, assignment.interval.ms}.
    """

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10080 * 60 * 1000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is the default, used if no member has a preference."""
    consumer_assignment_interval_ms: int = 0
    consumer_first_epoch: int = 0
    """The group epoch before the first member (KIP-1263: 1)."""
    consumer_settles_empty: bool = False
    """Whether the target assignment is updated at once when the last member leaves (KIP-1263)."""
    consumer_may_rejoin: bool = False
    """Whether a known member may join again without leaving first (since 4.2)."""
    consumer_takes_back: bool = False
    """Whether a member may get back at once a partition that it has just revoked, if no other
    member got it (since 4.0).
    """
    consumer_drops_unsubscribed: bool = False
    """Whether a member gives up at once what it does not subscribe to any longer, before the next
    target assignment (since 4.2).
    """
    consumer_keeps_assignment_epochs: bool = False
    """Whether commits with an older epoch are validated by partition assignment epochs, which the
    records contain (KIP-1251).
    """
    configs: GroupConfigs = NO_CONFIGS_OF_GROUPS
    """The configurations of single groups, which precede the settings above."""
    consumer_migration_policy: str = "disabled"
    """group.consumer.migration.policy, for groups with members: `upgrade`, `downgrade`,
    `bidirectional` or `disabled`.
    """
    makes_group_unjudged: bool = True
    """Whether an unknown group is created for a transactional commit before the commit is validated
    (up to 3.9).
    """
    share_groups_first: bool = False
    """Whether DeleteGroups waits for everything that was written before it deletes a group (since
    4.1): an earlier operation looks for share groups.
    """
    share_max_size: int = SHARE_MAX_SIZE
    share_initialize_retry_ms: int = SHARE_INITIALIZE_RETRY_MS
    share_alters_unknown: bool = False
    """Whether AlterShareGroupOffsets creates an unknown share group (since 4.2)."""
    share_settles_empty: bool = False
    """Whether the target assignment of a share group is updated at once when the last member leaves
    (since 4.4).
    """
    share_reads_added_whole: bool = False
    """Whether share groups read a partition that is added to a topic from its start (since 4.4)."""
    delays_assignments: bool = False
    """Whether target assignments are computed at intervals, and their records have the time
    (KIP-1263).
    """
    streams_assigns_at_intervals: bool = False
    """Whether streams groups get assignments at intervals, with their time in the log (since 4.3,
    KIP-1263).
    """
    streams_have_roles: bool = False
    """Whether streams groups have static members and task offsets, are assigned by what members
    run, and let a member keep a task in another role (since 4.4).
    """
    has_coordinator_runtime: bool = False
    """Whether groups are written as by CoordinatorRuntime (since 4.0): however few replicas are in
    sync, and answered once the high watermark is behind the records, of deletions too. Until then
    readers see what was there before a deletion.
    """

    def session_timeout_ms_of(self, group_id: str) -> int:
        """Return the session timeout of a consumer group."""
        own = self.configs.value(group_id, CONSUMER_SESSION)
        return own if isinstance(own, int) else self.consumer_session_timeout_ms

    def heartbeat_interval_ms_of(self, group_id: str) -> int:
        """Return the heartbeat interval of a consumer group."""
        own = self.configs.value(group_id, CONSUMER_HEARTBEAT)
        return own if isinstance(own, int) else self.consumer_heartbeat_interval_ms

    def may_assign(self, group_id: str, assigned_ms: int, now_ms: int) -> bool:
        """Return whether partitions may be assigned again: with an interval of 0 at any time, even
        if the clock of the former coordinator was ahead.

        Source: GroupMetadataManager.canComputeNextTargetAssignment.
        """
        own = self.configs.value(group_id, CONSUMER_ASSIGNMENT)
        interval_ms = own if isinstance(own, int) else self.consumer_assignment_interval_ms
        return not interval_ms or now_ms - assigned_ms >= interval_ms

    @property
    def upgrades_groups(self) -> bool:
        """Whether a classic group with members is converted when a consumer-protocol member
        joins.
        """
        return self.consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def downgrades_groups(self) -> bool:
        """Whether a consumer group is converted to classic when its last consumer-protocol member
        leaves.
        """
        return self.consumer_migration_policy in ("downgrade", "bidirectional")


# --------------------------------------------------------------------------------------------------
# Time: sessions use the monotonic clock, offset retention the wall clock


class GroupMoment(NamedTuple):
    """One point in time on both clocks of a node, in milliseconds."""

    monotonic_ms: int
    wall_ms: int


# --------------------------------------------------------------------------------------------------
# The partition that a group or transactional id maps to: its leader is the coordinator
#
# Source: GroupMetadataManager.partitionFor, TransactionStateManager.partitionFor,
# java.lang.String.hashCode, Utils.abs.

INT32: Final = 1 << 32
INT32_MIN: Final = -(1 << 31)


@lru_cache(maxsize=1024)
def partition_of(key: str, partition_count: int) -> int:
    """Return the partition number.

    Each request about a transaction or group needs it, and hashing takes 1 us.
    """
    hashed = java_hash(key)
    return (0 if hashed == INT32_MIN else abs(hashed)) % partition_count


def java_hash(text: str) -> int:
    """Return Java's String.hashCode, as a signed 32-bit number."""
    hashed = 0
    for (unit,) in iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        hashed = (31 * hashed + unit) % INT32
    return hashed - INT32 if hashed >= -INT32_MIN else hashed


# --------------------------------------------------------------------------------------------------
# Deadlines that are often moved and rarely expire
#
# A heartbeat extends its member's session without touching the queue.
# Source: kafka.server.DelayedOperationPurgatory, as the group coordinator uses it.


class TimerKind(IntEnum):
    """What the deadline is for."""

    SESSION = 0
    PENDING_MEMBER = 1
    REBALANCE = 2
    SYNC = 3
    CONSUMER_SESSION = 4
    CONSUMER_REVOCATION = 5
    CONSUMER_JOIN = 6
    """A classic-protocol member has to rejoin."""
    CONSUMER_SYNC = 7
    """A classic-protocol member has to send SyncGroup."""
    SHARE_SESSION = 8
    STREAMS_SESSION = 20
    STREAMS_REVOCATION = 21
    STREAMS_DELAY = 22
    """The first assignment of a streams group waits for more members."""


class TimerKey(NamedTuple):
    """The owner of a deadline; the member is empty for a deadline of the group."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class Timers:
    """Deadlines by key, on the monotonic clock.

    Those of the same millisecond expire in the order in which they were set.
    """

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._queued: dict[TimerKey, int] = {}
        self._queue: list[tuple[int, int, TimerKey]] = []
        self._set_count = 0

    @property
    def next_ms(self) -> int | None:
        """When to check again: not later than the earliest deadline, possibly earlier."""
        return self._queue[0][0] if self._queue else None

    def set(self, key: TimerKey, at_ms: int) -> None:
        """Set or move a deadline."""
        self._deadlines[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)

    def set_if_absent(self, key: TimerKey, at_ms: int) -> None:
        """Set a deadline, unless there is one already."""
        if key not in self._deadlines:
            self.set(key, at_ms)

    def is_set(self, key: TimerKey) -> bool:
        """Return whether there is a deadline."""
        return key in self._deadlines

    def cancel(self, key: TimerKey) -> None:
        """Cancel a deadline."""
        self._deadlines.pop(key, None)

    def take_due(self, now_ms: int) -> TimerKey | None:
        """Remove and return a key whose deadline has expired; None if there is none."""
        while self._queue and self._queue[0][0] <= now_ms:
            at_ms, _, key = heapq.heappop(self._queue)
            if self._queued.get(key) != at_ms:
                continue  # it has since been queued for an earlier time
            del self._queued[key]
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue
            if deadline <= now_ms:
                del self._deadlines[key]
                return key
            self._push(key, deadline)
        return None

    def _push(self, key: TimerKey, at_ms: int) -> None:
        self._queued[key] = at_ms
        self._set_count += 1
        heapq.heappush(self._queue, (at_ms, self._set_count, key))


# --------------------------------------------------------------------------------------------------
# One member of a classic group: ids, protocols, timeouts, pending requests

Protocols = tuple[tuple[str, bytes], ...]
"""Protocol names in order of preference, each with the member's metadata for it."""


@dataclass(slots=True, kw_only=True)
class Member:
    """A member; `join_waiter` and `sync_waiter` are the numbers of its pending requests."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    join_waiter: int | None = None
    sync_waiter: int | None = None
    is_new: bool = False
    """Whether its first join is pending: it has no session to keep alive yet."""
    timer: TimerKey = field(init=False)

    def __post_init__(self) -> None:
        self.timer = TimerKey(TimerKind.SESSION, self.group_id, self.member_id)

    @property
    def is_static(self) -> bool:
        """Whether it has a group instance id (KIP-345)."""
        return self.group_instance_id is not None

    def rename(self, member_id: str) -> None:
        """Give the static membership to a new incarnation."""
        self.member_id = member_id
        self.timer = TimerKey(TimerKind.SESSION, self.group_id, member_id)

    def metadata_for(self, protocol: str) -> bytes:
        """Return its metadata for one of its protocols."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def vote(self, candidates: Collection[str]) -> str:
        """Return its preferred protocol among the candidates, of which it supports at least one."""
        return next(name for name, _ in self.protocols if name in candidates)
