"""One member of a classic group: ids, protocols, timeouts, pending requests.

Source: kafka.coordinator.group.MemberMetadata.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from kraftsim.core.groups.timers import TimerKey, TimerKind

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
