"""ConsumerGroupMetadata (3): a group of the new consumer protocol exists, at this group epoch.

The epoch grows whenever members or topics change; the assignment follows it.
Source: KIP-848, KIP-1101; ConsumerGroupMetadataKey.json, ConsumerGroupMetadataValue.json.
"""

from protocol.schema import int32, int64, message, string


@message(key=3, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupMetadataKey:
    """By group."""

    group_id: str = string()


@message(key=3, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The hash of the subscribed topics came with 4.1 and replaces record 4."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0, tagged="0+")
