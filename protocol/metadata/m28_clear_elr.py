"""ClearElrRecord (28): no replica outside the in-sync ones may lead any more (4.0).   Source: KIP-966, ClearElrRecord.json."""

from protocol.schema import message, string


@message(key=28, kind="metadata", versions="0", flexible="0+")
class ClearElrRecord:
    """Of one topic; of all when the name is empty."""

    topic_name: str = string()
