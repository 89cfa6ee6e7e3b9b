"""What the disks of controllers say at the end of a run: snapshots against the log."""

import pytest

from kraftsim.metadata.rules_image import final_metadata_events
from kraftsim.releases.release import release
from protocol.metadata.registry import build_record
from protocol.metadata.settings import (
    MIGRATION,
    NONE,
    POST_MIGRATION,
    ConfigRecord,
    FeatureLevelRecord,
    ZkMigrationStateRecord,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.schema import Message

DIRECTORY = "controller-101/__cluster_metadata-0"
LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=release("3.9").metadata_version)
CONFIG = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="7")
EPOCH = 1


def batch(*messages: Message) -> bytes:
    return build_batch(
        [Record(timestamp=0, value=build_record(each, 0)) for each in messages], leader_epoch=EPOCH
    )


def digests(log: bytes, snapshot: bytes, records: int) -> set[str]:
    """Return the digests at the end of the log: of the log, and of its snapshot."""
    events = final_metadata_events(
        {
            f"{DIRECTORY}/{0:020}.log": log,
            f"{DIRECTORY}/{records:020}-{EPOCH:010}.checkpoint": snapshot,
        },
        with_timestamps=False,
    )
    found = [event.digest for event in events if hasattr(event, "digest")]
    assert len(found) == 2
    return set(found)


@pytest.mark.parametrize(
    ("state", "kept", "is_equal"),
    [
        (POST_MIGRATION, (), True),
        (POST_MIGRATION, (POST_MIGRATION,), True),
        (POST_MIGRATION, (NONE,), False),
        (MIGRATION, (), False),
    ],
    ids=["4.0", "3.9", "reset", "unfinished"],
)
def test_only_a_migration_that_is_over_may_be_forgotten(
    state: int, kept: tuple[int, ...], is_equal: bool
) -> None:
    """Snapshots of 4.0 and later have no migration state; one that has a state has the right
    one.
    """
    log = batch(LEVEL, ZkMigrationStateRecord(zk_migration_state=state), CONFIG)
    states = [ZkMigrationStateRecord(zk_migration_state=each) for each in kept]
    assert (len(digests(log, batch(LEVEL, *states, CONFIG), 3)) == 1) is is_equal


def test_snapshot_that_forgets_something_else_differs() -> None:
    log = batch(LEVEL, ZkMigrationStateRecord(zk_migration_state=POST_MIGRATION), CONFIG)
    assert len(digests(log, batch(LEVEL), 3)) == 2
