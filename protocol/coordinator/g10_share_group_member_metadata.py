"""ShareGroupMemberMetadata (10): the metadata that a member of a share group sent.

There are no static members and no rebalance timeout.
Source: KIP-932; ShareGroupMemberMetadataKey.json, ShareGroupMemberMetadataValue.json.
"""

from protocol.schema import array, message, string


@message(key=10, kind="coordinator-key", versions="0", flexible="none")
class ShareGroupMemberMetadataKey:
    """By group and member."""

    group_id: str = string()
    member_id: str = string()


@message(key=10, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """Its subscription."""

    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
