"""Responses to group members, independent of the version of the protocol message."""

from collections.abc import Mapping

from msgspec import Struct

from protocol.errors import ErrorCode

NO_GENERATION = -1
NO_MEMBER_ID = ""


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


GroupAnswer = JoinAnswer | SyncAnswer | CommitAnswer | HeartbeatAnswer
