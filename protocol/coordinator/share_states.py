"""Records of `__share_group_state`: how far the records of a share-partition are delivered.

Source: KIP-932; ShareCoordinatorRecordHelpers.
"""

from protocol.schema import array, int8, int16, int32, int64, message, string, structure, uuid

# --------------------------------------------------------------------------------------------------
# ShareSnapshot (0): the delivery state of a share-partition; a null value is a tombstone.
#
# Updates follow it until the next snapshot, which supersedes everything before it.
# Source: KIP-932, KIP-1226; ShareSnapshotKey.json, ShareSnapshotValue.json.


@message(key=0, kind="coordinator-key", versions="0", flexible="none")
class ShareSnapshotKey:
    """By group, topic id and partition."""

    group_id: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


@structure
class StateBatch:
    """Offsets, both inclusive, with one delivery state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@message(key=0, kind="coordinator-value", versions="0", flexible="0+")
class ShareSnapshotValue:
    """The snapshot epoch counts the snapshots; updates contain that of the snapshot that they
    follow.
    """

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, tagged="0+", default=-1)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


# --------------------------------------------------------------------------------------------------
# ShareUpdate (1): the changes of a share-partition since its last snapshot.
#
# Small, because acknowledgements are frequent.
# Source: KIP-932, KIP-1226; ShareUpdateKey.json, ShareUpdateValue.json.


@message(key=1, kind="coordinator-key", versions="0", flexible="none")
class ShareUpdateKey:
    """By group, topic id and partition."""

    group_id: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


@message(key=1, kind="coordinator-value", versions="0", flexible="0+")
class ShareUpdateValue:
    """A start offset of -1 means unchanged."""

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, tagged="0+", default=-1)
    state_batches: list[StateBatch] = array(StateBatch)
