"""GroupMetadata (2): a group of the classic protocol after a rebalance: its generation, members and
their assignments.

A null value is a tombstone.
Source: KIP-62 (v1), KIP-211 (v2), KIP-345 (v3), KIP-915 (v4); GroupCoordinatorRecordHelpers,
GroupMetadataKey.json, GroupMetadataValue.json.
"""

from protocol.schema import array, byte_string, int32, int64, message, string, structure


@message(key=2, kind="coordinator-key", versions="0", flexible="none")
class GroupMetadataKey:
    """By group."""

    group: str = string()


@structure
class MemberMetadata:
    """A member; subscription and assignment are opaque to the coordinator (see
    consumer_protocol).
    """

    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1, default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = byte_string()
    assignment: bytes = byte_string()


@message(key=2, kind="coordinator-value", versions="0-4", flexible="4+")
class GroupMetadataValue:
    """The group after a rebalance; without members it is empty, and its offsets may expire."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)
