"""ClearElrRecord (28): clears the eligible leader replicas (4.0).

Source: KIP-966, ClearElrRecord.json.
"""

from protocol.schema import message, string


@message(key=28, kind="metadata", versions="0", flexible="0+")
class ClearElrRecord:
    """Of one topic; of all if the name is empty."""

    topic_name: str = string()
