"""One member of a classic group: who it is, what it can do, whether it waits for an answer.   Source: kafka.coordinator.group.MemberMetadata."""

from collections.abc import Collection
from dataclasses import dataclass, field

from kraftsim.core.groups.timers import TimerKey, TimerKind

Protocols = tuple[tuple[str, bytes], ...]
"""Names of ways to assign partitions, in the order of preference, each with the member's subscription in its form."""


@dataclass(slots=True, kw_only=True)
class Member:
    """A member; `join_waiter` and `sync_waiter` are the numbers of its requests that have no answer yet."""

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
    """Whether it has had no answer to its first join: it knows nothing of a session that it should keep alive."""
    timer: TimerKey = field(init=False)

    def __post_init__(self) -> None:
        self.timer = TimerKey(TimerKind.SESSION, self.group_id, self.member_id)

    @property
    def is_static(self) -> bool:
        """Whether its place outlives it (KIP-345)."""
        return self.group_instance_id is not None

    def rename(self, member_id: str) -> None:
        """Give its place to another incarnation of the same static member."""
        self.member_id = member_id
        self.timer = TimerKey(TimerKind.SESSION, self.group_id, member_id)

    def metadata_for(self, protocol: str) -> bytes:
        """Return its subscription in the form of a protocol that it has named."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def vote(self, candidates: Collection[str]) -> str:
        """Return what it prefers among protocols, of which it knows at least one."""
        return next(name for name, _ in self.protocols if name in candidates)
