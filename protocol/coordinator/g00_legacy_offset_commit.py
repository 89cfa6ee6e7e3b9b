"""LegacyOffsetCommit (0): an offset as brokers before 0.9 wrote it; still supported for reading.

Up to 3.9 it was version 0 of OffsetCommitKey.
Source: KAFKA-18301; OffsetMetadataManager, LegacyOffsetCommitKey.json,
LegacyOffsetCommitValue.json.
"""

from protocol.schema import int32, int64, message, string


@message(key=0, kind="coordinator-key", versions="0", flexible="none")
class LegacyOffsetCommitKey:
    """By group, topic and partition."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@message(key=0, kind="coordinator-value", versions="0", flexible="none")
class LegacyOffsetCommitValue:
    """The next offset that the group reads."""

    offset: int = int64()
    metadata: str = string()
    commit_timestamp: int = int64()
