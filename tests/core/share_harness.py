"""The share-partitions of one coordinator partition without a node: the log is a list, and every
decision is replayed at once.
"""

from typing import TypeVar

from kraftsim.core.decision import Refusal
from kraftsim.share_groups.rules_share_coordinator import (
    ShareDecision,
    ShareShard,
    ShareState,
    ShareStateLimits,
    ShareStateRecord,
)
from kraftsim.share_groups.rules_share_states import LeaderWrite, SharePartitionKey, StateBatch
from protocol.errors import ErrorCode

TOPIC_ID = bytes(range(16))
KEY = SharePartitionKey("g", TOPIC_ID, 0)
OTHER = SharePartitionKey("g", TOPIC_ID, 1)
COLD_MS = 1000
FIRST_MS = 5000
Result = TypeVar("Result")


class ShareHarness:
    """One shard; topic `TOPIC_ID` has two partitions."""

    def __init__(self, shard_class: type[ShareShard] = ShareShard, updates: int = 2) -> None:
        self.topics = {TOPIC_ID: 2}
        self.limits = ShareStateLimits(updates, COLD_MS)
        self.shard = shard_class(self.limits, self.topics.get)
        self.log: list[ShareStateRecord] = []
        self.now_ms = FIRST_MS

    def settle(self, decided: ShareDecision[Result] | Refusal) -> Result | tuple[ErrorCode, str]:
        """Append the records of a decision and replay them; return its result, or the refusal."""
        if isinstance(decided, Refusal):
            return decided.error, decided.why
        for record in decided.records:
            self.shard.replay_record(record, len(self.log))
            self.log.append(record)
        return decided.result

    def initialize(
        self, state_epoch: int = 0, start_offset: int = 0, key: SharePartitionKey = KEY
    ) -> tuple[ErrorCode, str] | None:
        return self.settle(
            self.shard.decide_initialize(key, state_epoch, start_offset, self.now_ms)
        )

    def write(
        self,
        *batches: tuple[int, int, int, int],
        start: int = -1,
        leader: int = 0,
        state: int = 0,
        complete: int = -1,
        key: SharePartitionKey = KEY,
    ) -> tuple[ErrorCode, str] | None:
        change = LeaderWrite(
            state_epoch=state,
            leader_epoch=leader,
            start_offset=start,
            delivery_complete_count=complete,
            batches=tuple(StateBatch(*each) for each in batches),
        )
        return self.settle(self.shard.decide_write(key, change, self.now_ms))

    def read(
        self, leader: int = 0, key: SharePartitionKey = KEY
    ) -> ShareState | tuple[ErrorCode, str]:
        return self.settle(self.shard.decide_read(key, leader, self.now_ms))

    def state(self, key: SharePartitionKey = KEY) -> ShareState:
        return self.shard.states[key]

    def batches(self, key: SharePartitionKey = KEY) -> list[tuple[int, int, int, int]]:
        return [
            (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in self.state(key).batches
        ]

    def reloaded(self, from_offset: int = 0) -> ShareShard:
        """Return what another coordinator loads from the log."""
        loaded = type(self.shard)(self.limits, self.topics.get)
        for offset, record in enumerate(self.log[from_offset:], from_offset):
            loaded.replay_record(record, offset)
        return loaded
