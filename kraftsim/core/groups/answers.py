"""What members are told, before it is written as a message of some version."""

from collections.abc import Mapping

from msgspec import Struct

from protocol.errors import ErrorCode

NO_GENERATION = -1
NO_MEMBER_ID = ""


class MemberRow(Struct, frozen=True):
    """A member as its leader is told of it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinAnswer(Struct, frozen=True, kw_only=True):
    """The generation that begins; `members` is for the leader only. An error comes without all of it, except the member id."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER_ID
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[MemberRow, ...] = ()


class SyncAnswer(Struct, frozen=True, kw_only=True):
    """A member's share, or an error."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class CommitAnswer(Struct, frozen=True):
    """How the commit of each partition went, in the order in which they were asked for."""

    errors: tuple[ErrorCode, ...]


class HeartbeatAnswer(Struct, frozen=True, kw_only=True):
    """What a member of a consumer group is told; `assigned` (topic id -> partitions) is None where it is as before. An error says why."""

    error: ErrorCode = ErrorCode.NONE
    why: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Mapping[bytes, tuple[int, ...]] | None = None


GroupAnswer = JoinAnswer | SyncAnswer | CommitAnswer | HeartbeatAnswer
