"""Tombstones of groups are appended however few replicas are in sync.

Source: kafka.coordinator.group.GroupMetadataManager.cleanupGroupMetadata (requiredAcks = 0).
"""

from types import SimpleNamespace

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.groups.coordinated_partition import LEADER_ONLY, CoordinatedPartition
from kraftsim.groups.rules_consumer_group_records import offset_tombstone
from kraftsim.groups.rules_offsets import Append
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.partitions.rules_append import ALL_REPLICAS
from protocol.errors import ErrorCode
from protocol.records.record import Compression
from tests.core.groups_harness import GroupsHarness


@pytest.mark.parametrize(("token", "acks"), [(None, LEADER_ONLY), (1, ALL_REPLICAS)])
def test_tombstones_need_the_leader_only(token: int | None, acks: int) -> None:
    """A commit is refused with too few replicas in sync; a deletion must not be lost."""
    asked: list[int] = []

    def append(hosted: object, batch: object, acks: int, guard: object) -> Refusal:
        asked.append(acks)
        return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "one of three")

    log = SimpleNamespace(append=append, compression=Compression.NONE)
    clock = SimpleNamespace(wall_ms=lambda: 0, monotonic_ms=lambda: 0)
    harness = GroupsHarness(GroupShard)
    # arg-type: what the partition uses of its log and clock
    led = CoordinatedPartition(None, harness.shard, log, clock, lambda: None)  # type: ignore[arg-type]
    # method-assign: the shard did not ask for this append
    led._on_stored = lambda *result: None  # type: ignore[method-assign]
    led.settle([Append((offset_tombstone("g", ("t", 0)),), token)])
    assert asked == [acks]
