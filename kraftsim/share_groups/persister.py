"""What group coordinators and leaders of partitions know of the share coordinator: a persister of
the states of share-partitions.

Source: KIP-932; org.apache.kafka.server.share.persister.Persister.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from kraftsim.share_groups.rules_share_states import (
    DEFAULT_STATE_EPOCH,
    NO_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_EPOCH,
    UNINITIALIZED_START_OFFSET,
    SharePartitionKey,
    StateBatch,
)
from protocol.errors import ErrorCode


class PersisterResult(Struct, frozen=True):
    """Whether a change of a share-partition's state is stored; `message` explains an error."""

    key: SharePartitionKey
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class ReadState(Struct, frozen=True, kw_only=True):
    """The state of a share-partition. With an error only `message` is of use.

    `start_offset` is -1 if the leader has to choose it; `batches` are in ascending order, do not
    overlap and lie at or above the start offset.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = DEFAULT_STATE_EPOCH
    start_offset: int = UNINITIALIZED_START_OFFSET
    batches: tuple[StateBatch, ...] = ()


class StateSummary(Struct, frozen=True, kw_only=True):
    """The state of a share-partition without its batches.

    `delivery_complete_count` is the number of records at or above the start offset that are
    acknowledged or archived; -1 if it is not known.
    """

    key: SharePartitionKey
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = DEFAULT_STATE_EPOCH
    leader_epoch: int = UNINITIALIZED_EPOCH
    start_offset: int = UNINITIALIZED_START_OFFSET
    delivery_complete_count: int = NO_DELIVERY_COMPLETE_COUNT


class Persister(Protocol):
    """Sends each share-partition's operation to its share coordinator, and tries again where that
    can help.

    Nothing is raised: a refusal, an unreachable coordinator and a node that shuts down are errors
    of the result. Results are in the order of the arguments.
    """

    async def initialize(
        self, group_id: str, rows: Sequence[tuple[SharePartitionKey, int, int]]
    ) -> list[PersisterResult]:
        """Begin states again; rows are share-partition, state epoch and start offset (-1: the
        leader chooses it).
        """
        ...

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ReadState:
        """Read a state, and fence leaders of earlier epochs."""
        ...

    async def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> PersisterResult:
        """Store changes; a start offset of -1 has not changed."""
        ...

    async def delete(
        self, group_id: str, keys: Sequence[SharePartitionKey]
    ) -> list[PersisterResult]:
        """Delete states; it is no error if there is none."""
        ...

    async def read_summary(
        self, group_id: str, rows: Sequence[tuple[SharePartitionKey, int]]
    ) -> list[StateSummary]:
        """Read states without their batches; rows are share-partition and leader epoch (-1 if
        unknown).
        """
        ...
