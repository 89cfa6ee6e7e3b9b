"""ConsumerGroupMemberMetadata (5): a member of a consumer group, as it described itself.

A member of the classic protocol in such a group has its classic metadata beside it.
Source: KIP-848; ConsumerGroupMemberMetadataKey.json, ConsumerGroupMemberMetadataValue.json.
"""

from protocol.schema import array, byte_string, int32, message, string, struct, structure


@message(key=5, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupMemberMetadataKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@structure
class ClassicProtocol:
    """An assignor that the member would accept, with what it told it."""

    name: str = string()
    metadata: bytes = byte_string()


@structure
class ClassicMemberMetadata:
    """Of a member that still speaks the classic protocol."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@message(key=5, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """What it subscribes to, and who assigns."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(ClassicMemberMetadata, tag=0, tagged="0+", nullable="0+")
