"""ShareGroupMetadata (11): a share group exists, at this group epoch.

The epoch grows whenever members or topics change.
Source: KIP-932, KIP-1101; ShareGroupMetadataKey.json, ShareGroupMetadataValue.json.
"""

from protocol.schema import int32, int64, message, string


@message(key=11, kind="coordinator-key", versions="0", flexible="none")
class ShareGroupMetadataKey:
    """By group."""

    group_id: str = string()


@message(key=11, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """With the hash of the subscribed topics."""

    epoch: int = int32()
    metadata_hash: int = int64()
