"""What a share-partition is called, and what is stored of it.

Source: KIP-932; org.apache.kafka.server.share.SharePartitionKey,
org.apache.kafka.server.share.persister.PersisterStateBatch.
"""

from typing import Final, NamedTuple

from msgspec import Struct

from protocol.uuids import uuid_text

UNINITIALIZED_START_OFFSET: Final = -1
"""The partition's leader chooses the start offset; in an update: it has not changed."""

UNINITIALIZED_EPOCH: Final = -1
"""No leader has read or written the state."""

DEFAULT_STATE_EPOCH: Final = 0
NO_DELIVERY_COMPLETE_COUNT: Final = -1
"""The leader does not report it (WriteShareGroupState v0)."""


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it. `topic_id` has 16 bytes."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key of FindCoordinator, group:topicId:partition, with the id in its text form."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"


class StateBatch(Struct, frozen=True):
    """Offsets, both inclusive, that have one delivery state and one delivery count.

    `delivery_state`: 0 available, 2 acknowledged, 4 archived (3 is not stored).
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class LeaderWrite(Struct, frozen=True, kw_only=True):
    """What a leader writes. A start offset of -1 has not changed, a delivery_complete_count of -1
    is not known.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = NO_DELIVERY_COMPLETE_COUNT
    batches: tuple[StateBatch, ...] = ()
