"""ConsumerGroupMemberMetadata (5): the metadata that a member of a consumer group sent.

A member with the classic protocol in such a group has its classic metadata, too.
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
    """A client-side assignor that the member supports, with its metadata."""

    name: str = string()
    metadata: bytes = byte_string()


@structure
class ClassicMemberMetadata:
    """The metadata of a member with the classic protocol."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@message(key=5, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """Its subscription and assignor."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, tag=0, tagged="0+", nullable="0+"
    )
