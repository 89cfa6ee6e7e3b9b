"""A persister in memory, for tests of the leaders of share-partitions."""

import asyncio
from collections.abc import Sequence

from kraftsim.share_groups.persister import PersisterResult, ReadState, StateSummary
from kraftsim.share_groups.rules_share_states import SharePartitionKey, StateBatch
from protocol.errors import ErrorCode


class StoredShareStates:
    """Keeps states, and joins them when they are read. `error` refuses the next requests."""

    def __init__(self, first_offset: int = -1) -> None:
        """`first_offset` is where states begin that were never written."""
        self.first_offset = first_offset
        self.error = ErrorCode.NONE
        self.starts: dict[SharePartitionKey, int] = {}
        self.states: dict[SharePartitionKey, dict[int, tuple[int, int]]] = {}
        self.writes: list[tuple[int, tuple[StateBatch, ...]]] = []

    async def initialize(
        self, group_id: str, rows: Sequence[tuple[SharePartitionKey, int, int]]
    ) -> list[PersisterResult]:
        """Begin states."""
        for key, _, start_offset in rows:
            self.starts[key] = start_offset
        return [PersisterResult(key) for key, _, _ in rows]

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ReadState:
        """Read a state; what was never written begins where the leader wants."""
        if self.error is not ErrorCode.NONE:
            return ReadState(error=self.error, message="refused by the test")
        start_offset = self.starts.get(key, self.first_offset)
        batches: list[StateBatch] = []
        for offset, (state, count) in sorted(self.states.get(key, {}).items()):
            if offset < start_offset:
                continue
            last = batches[-1] if batches else None
            if last is not None and last == StateBatch(last.first_offset, offset - 1, state, count):
                batches[-1] = StateBatch(last.first_offset, offset, state, count)
            else:
                batches.append(StateBatch(offset, offset, state, count))
        return ReadState(state_epoch=1, start_offset=start_offset, batches=tuple(batches))

    async def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> PersisterResult:
        """Store changes, in a time that a replicated write takes."""
        await asyncio.sleep(0.005)
        if self.error is not ErrorCode.NONE:
            return PersisterResult(key, self.error, "refused by the test")
        self.starts[key] = start_offset
        kept = self.states.setdefault(key, {})
        for batch in batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                kept[offset] = batch.delivery_state, batch.delivery_count
        self.writes.append((start_offset, tuple(batches)))
        return PersisterResult(key)

    async def delete(
        self, group_id: str, keys: Sequence[SharePartitionKey]
    ) -> list[PersisterResult]:
        """Delete states."""
        for key in keys:
            self.starts.pop(key, None)
            self.states.pop(key, None)
        return [PersisterResult(key) for key in keys]

    async def read_summary(
        self, group_id: str, rows: Sequence[tuple[SharePartitionKey, int]]
    ) -> list[StateSummary]:
        """Read start offsets."""
        return [StateSummary(key=key, start_offset=self.starts.get(key, -1)) for key, _ in rows]
