"""Groups are written however few replicas are in sync: their tombstones only up to 3.9, all their
records since 4.0.

Source: kafka.coordinator.group.GroupMetadataManager.cleanupGroupMetadata (requiredAcks = 0),
CoordinatorPartitionWriter.append (requiredAcks = 1).
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


@pytest.mark.parametrize(
    ("has_runtime", "token", "acks"),
    [(0, None, LEADER_ONLY), (0, 1, ALL_REPLICAS), (1, 1, LEADER_ONLY)],
)
def test_what_is_written_with_too_few_replicas_in_sync(
    has_runtime: int, token: int | None, acks: int
) -> None:
    """Up to 3.9 a commit is refused with too few replicas in sync; a deletion must not be lost."""
    asked: list[int] = []

    def append(hosted: object, batch: object, acks: int, guard: object) -> Refusal:
        asked.append(acks)
        return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "one of three")

    log = SimpleNamespace(append=append, compression=Compression.NONE)
    clock = SimpleNamespace(wall_ms=lambda: 0, monotonic_ms=lambda: 0)
    harness = GroupsHarness(GroupShard, has_coordinator_runtime=has_runtime)
    # arg-type: what the partition uses of its log and clock
    led = CoordinatedPartition(None, harness.shard, log, clock, lambda: None)  # type: ignore[arg-type]
    stored: list[int] = []
    led._on_stored = lambda token, error, first_offset: stored.append(token)  # type: ignore[method-assign]  # watched
    led.settle([Append((offset_tombstone("g", ("t", 0)),), token)])
    assert asked == [acks]
