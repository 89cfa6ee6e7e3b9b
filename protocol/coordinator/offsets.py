"""Records of the offsets that groups commit, whatever their protocol.

Source: KIP-98, KIP-211; OffsetMetadataManager.
"""

from protocol.schema import int32, int64, message, string, uuid

# --------------------------------------------------------------------------------------------------
# LegacyOffsetCommit (0): an offset as brokers before 0.9 wrote it; still supported for reading.
#
# Up to 3.9 it was version 0 of OffsetCommitKey.
# Source: KAFKA-18301; OffsetMetadataManager, LegacyOffsetCommitKey.json,
# LegacyOffsetCommitValue.json.


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


# --------------------------------------------------------------------------------------------------
# OffsetCommit (1): an offset that a group committed; a null value is a tombstone.
#
# A pending one, inside a transaction, is the same record in a transactional batch: it applies after
# its commit marker.
# Source: KIP-98, KIP-211, KIP-320, KIP-915; OffsetMetadataManager, OffsetCommitKey.json,
# OffsetCommitValue.json.


@message(key=1, kind="coordinator-key", versions="0", flexible="none")
class OffsetCommitKey:
    """By group, topic and partition."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@message(key=1, kind="coordinator-value", versions="0-4", flexible="4+")
class OffsetCommitValue:
    """The next offset that the group reads. v1 has its own expiry timestamp, v3 a leader epoch, v4
    tagged fields.
    """

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1, ignorable=True)
    topic_id: bytes = uuid(tag=0, tagged="4+", ignorable=True)
