"""StreamsGroupMemberMetadata (19): the metadata that a member of a streams group sent.

Its process and its tags influence the assignment of tasks.
Source: KIP-1071; StreamsGroupMemberMetadataKey.json, StreamsGroupMemberMetadataValue.json.
"""

from protocol.schema import array, int32, message, string, struct, structure, uint16


@message(key=19, kind="coordinator-key", versions="0", flexible="none")
class StreamsGroupMemberMetadataKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@structure
class Endpoint:
    """The endpoint for interactive queries of the member's state stores."""

    host: str = string()
    port: int = uint16()


@structure
class KeyValue:
    """A tag and its value."""

    key: str = string()
    value: str = string()


@message(key=19, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    """The member's identity, and its endpoint for other members."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] = array(KeyValue)
