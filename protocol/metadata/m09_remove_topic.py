"""RemoveTopicRecord (9): a topic and all its partitions are gone.   Source: KIP-631, RemoveTopicRecord.json."""

from protocol.schema import message, uuid


@message(key=9, kind="metadata", versions="0", flexible="0+")
class RemoveTopicRecord:
    """By id, so that a topic made anew under the name is safe."""

    topic_id: bytes = uuid()
