"""TopicRecord (2): a topic exists; its partitions follow in records of their own.

Source: KIP-516, KIP-631, TopicRecord.json.
"""

from protocol.schema import message, string, uuid


@message(key=2, kind="metadata", versions="0", flexible="0+")
class TopicRecord:
    """The name can be reused by another topic, the id cannot."""

    name: str = string()
    topic_id: bytes = uuid()
