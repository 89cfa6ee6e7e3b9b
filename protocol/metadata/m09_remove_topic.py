"""RemoveTopicRecord (9): a topic and all its partitions are deleted.

Source: KIP-631, RemoveTopicRecord.json.
"""

from protocol.schema import message, uuid


@message(key=9, kind="metadata", versions="0", flexible="0+")
class RemoveTopicRecord:
    """By id, so that a recreated topic of the same name is not affected."""

    topic_id: bytes = uuid()
