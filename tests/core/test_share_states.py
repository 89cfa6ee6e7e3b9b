"""The share coordinator's rules: fencing, snapshots and updates, combining, redundant records, and
what releases do differently (KIP-932, KIP-1226).
"""

import pytest

from kraftsim.share_groups.rules_share_batches import (
    ImpossibleBatch,
    combine_in_one_sweep,
    combine_in_pairs,
)
from kraftsim.share_groups.rules_share_coordinator import (
    ShareShard,
    ShareShardBefore42,
    ShareShardBefore43,
    ShareShardBefore44,
    key_hash,
)
from kraftsim.share_groups.rules_share_states import SharePartitionKey, StateBatch
from protocol.coordinator.share_states import ShareSnapshotValue, ShareUpdateValue
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record
from tests.core.share_harness import COLD_MS, FIRST_MS, KEY, OTHER, TOPIC_ID, ShareHarness

EVERY_RELEASE = (ShareShardBefore42, ShareShardBefore43, ShareShardBefore44, ShareShard)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
FENCED_LEADER = (
    ErrorCode.FENCED_LEADER_EPOCH,
    "The leader epoch in the request is older than the epoch on the broker.",
)
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def fenced_state(release: type[ShareShard]) -> tuple[ErrorCode, str]:
    """Its text changed in 4.4."""
    return (
        ErrorCode.FENCED_STATE_EPOCH,
        "The coordinator rejected the request because the state epoch did not match."
        if release is ShareShard
        else "The share coordinator rejected the request because the share-group state epoch did "
        "not match.",
    )


def negative(what: str) -> tuple[ErrorCode, str]:
    return ErrorCode.INVALID_REQUEST, f"The {what} cannot be a negative number."


def uninitialized(operation: str) -> tuple[ErrorCode, str]:
    return (
        ErrorCode.INVALID_REQUEST,
        f"{operation} operation on uninitialized share partition not allowed.",
    )


def kinds(harness: ShareHarness) -> str:
    """Return the log in letters: Snapshot, Update, Tombstone."""
    letters = {ShareSnapshotValue: "S", ShareUpdateValue: "U", type(None): "T"}
    return "".join(letters[type(record.value)] for record in harness.log)


@pytest.mark.parametrize("release", EVERY_RELEASE)
def test_a_state_begins_with_a_snapshot(release: type[ShareShard]) -> None:
    """The first snapshot epoch is 0, and each later snapshot has the next one."""
    harness = ShareHarness(release)
    assert harness.initialize(3, 17) is None
    begun = harness.state()
    assert (begun.snapshot_epoch, begun.state_epoch, begun.leader_epoch) == (0, 3, 0)
    assert (begun.start_offset, begun.created_ms, begun.written_ms) == (17, FIRST_MS, FIRST_MS)
    assert harness.initialize(4, -1) is None
    assert harness.state().snapshot_epoch == 1
    assert harness.state().delivery_complete_count == -1
    assert kinds(harness) == "SS"


@pytest.mark.parametrize(
    ("release", "count"), [(ShareShardBefore42, -1), (ShareShardBefore43, 0), (ShareShard, 0)]
)
def test_complete_records_are_counted_since_42(release: type[ShareShard], count: int) -> None:
    """KIP-1226: none are complete at a start offset that the group has set."""
    harness = ShareHarness(release)
    harness.initialize(0, 5)
    assert harness.state().delivery_complete_count == count


@pytest.mark.parametrize("release", EVERY_RELEASE)
def test_earlier_state_epochs_are_fenced(release: type[ShareShard]) -> None:
    """For an initialization and for a write."""
    harness = ShareHarness(release)
    harness.initialize(3)
    assert harness.initialize(2) == fenced_state(release)
    assert harness.write(state=2) == fenced_state(release)
    assert harness.initialize(3) is None
    assert harness.write(state=3) is None


@pytest.mark.parametrize("release", EVERY_RELEASE)
def test_reading_fences_former_leaders(release: type[ShareShard]) -> None:
    """A read with a later leader epoch is a record, so that the next coordinator knows it."""
    harness = ShareHarness(release, updates=9)
    harness.initialize()
    harness.read(leader=4)
    assert kinds(harness) == "SU"
    harness.read(leader=4)
    assert kinds(harness) == "SU"
    assert harness.write(leader=3) == FENCED_LEADER
    assert harness.read(leader=3) == FENCED_LEADER
    again = ShareHarness(release, updates=9)
    again.shard = harness.reloaded()
    assert again.write(leader=3) == FENCED_LEADER
    assert again.write(leader=4) is None


@pytest.mark.parametrize("release", EVERY_RELEASE)
def test_a_state_has_to_be_initialized(release: type[ShareShard]) -> None:
    """Its summary is the exception."""
    harness = ShareHarness(release)
    assert harness.write() == uninitialized("Write")
    assert harness.read() == uninitialized("Read")
    assert harness.settle(harness.shard.decide_summary(KEY)) is None
    assert harness.settle(harness.shard.decide_delete(KEY)) is None
    assert not harness.log


@pytest.mark.parametrize("release", EVERY_RELEASE)
def test_unknown_and_negative_partitions_are_refused(release: type[ShareShard]) -> None:
    """Every request checks the partition first, and the topic last."""
    harness = ShareHarness(release)
    harness.initialize()
    for key, refusal in (
        (KEY._replace(partition=2), UNKNOWN),
        (KEY._replace(topic_id=bytes(16)), UNKNOWN),
        (KEY._replace(partition=-1), negative("partition id")),
    ):
        assert harness.initialize(key=key) == refusal
        assert harness.settle(harness.shard.decide_summary(key)) == refusal
        assert harness.settle(harness.shard.decide_delete(key)) == refusal
    assert harness.write(key=KEY._replace(partition=-1)) == negative("partition id")
    assert harness.read(key=KEY._replace(partition=-1)) == negative("partition id")
    harness.topics.clear()
    assert harness.write() == UNKNOWN
    assert harness.read() == UNKNOWN


def test_negative_epochs_are_refused_since_44() -> None:
    """Before, -1 passes as an unknown epoch."""
    harness = ShareHarness()
    assert harness.initialize(-1) == negative("state epoch")
    harness.initialize()
    assert harness.write(leader=-1) == negative("leader epoch")
    assert harness.write(state=-1) == negative("state epoch")
    assert harness.read(leader=-1) == negative("leader epoch")
    for release in (ShareShardBefore42, ShareShardBefore43, ShareShardBefore44):
        before = ShareHarness(release)
        before.initialize(2)
        before.read(leader=3)
        assert before.write(leader=-1, state=-1) is None
        assert before.initialize(-1) is None


@pytest.mark.parametrize(
    ("release", "is_fenced"),
    [(ShareShardBefore42, True), (ShareShardBefore43, True), (ShareShardBefore44, False)],
)
def test_readers_without_a_leader_epoch_pass_in_43(
    release: type[ShareShard], is_fenced: bool
) -> None:
    """They change nothing."""
    harness = ShareHarness(release)
    harness.initialize()
    harness.read(leader=2)
    written = len(harness.log)
    assert (harness.read(leader=-1) == FENCED_LEADER) is is_fenced
    assert len(harness.log) == written


@pytest.mark.parametrize(
    ("release", "log"),
    [
        (ShareShardBefore42, "SUUUSUUSUUS"),
        (ShareShardBefore43, "SUUSUUSUUSU"),
        (ShareShardBefore44, "SUUSUUSUUSU"),
        (ShareShard, "SUUSUUSUUSU"),
    ],
)
def test_updates_lead_to_a_snapshot(release: type[ShareShard], log: str) -> None:
    """After records.per.snapshot updates; 4.1 does not count the first one."""
    harness = ShareHarness(release, updates=2)
    harness.initialize()
    for number in range(10):
        harness.write((number, number, ACKNOWLEDGED, 1))
    assert kinds(harness) == log
    assert harness.batches() == [(0, 9, ACKNOWLEDGED, 1)]
    snapshots = [
        record.value.snapshot_epoch
        for record in harness.log
        if isinstance(record.value, ShareSnapshotValue)
    ]
    assert snapshots == list(range(log.count("S")))


def test_without_updates_every_change_is_a_snapshot() -> None:
    """share.coordinator.snapshot.update.records.per.snapshot=0."""
    harness = ShareHarness(updates=0)
    harness.initialize()
    harness.write((0, 1, ACKNOWLEDGED, 1))
    harness.read(leader=1)
    assert kinds(harness) == "SSS"


@pytest.mark.parametrize("release", EVERY_RELEASE)
def test_the_log_gives_the_same_state_again(release: type[ShareShard]) -> None:
    """From its start, and from the last redundant offset on."""
    harness = ShareHarness(release, updates=3)
    harness.initialize()
    harness.initialize(key=OTHER)
    for number in range(12):
        harness.now_ms += 10
        key = (KEY, OTHER)[number % 2]
        harness.write((number, number + 3, (AVAILABLE, ARCHIVED)[number % 3 == 0], 2), key=key)
        harness.write(start=number, key=key)
    assert harness.reloaded().states == harness.shard.states
    kept_from = harness.shard.redundant_before
    assert kept_from and kept_from > 2
    assert harness.reloaded(kept_from).states == harness.shard.states


def test_a_start_offset_never_moves_back_since_44() -> None:
    """A late write of a leader has a start offset that is passed; before, it is taken over."""
    for release, start in ((ShareShardBefore44, 5), (ShareShard, 9)):
        harness = ShareHarness(release, updates=9)
        harness.initialize()
        harness.write(start=9, complete=0)
        harness.write((5, 12, ACKNOWLEDGED, 1), start=5, complete=3)
        assert harness.state().start_offset == start
        assert harness.batches() == [(start, 12, ACKNOWLEDGED, 1)]
        assert harness.state().delivery_complete_count == (0 if start == 9 else 3)


def test_the_higher_complete_count_holds_at_one_start_offset() -> None:
    """Since 4.4, where a write may be late."""
    harness = ShareHarness(updates=9)
    harness.initialize()
    harness.write(start=0, complete=4)
    harness.write(start=0, complete=2)
    assert harness.state().delivery_complete_count == 4
    harness.write(start=6, complete=1)
    assert harness.state().delivery_complete_count == 1


def test_a_write_of_41_sets_epochs() -> None:
    """A later state epoch begins a snapshot; since 4.2 a write leaves both epochs alone."""
    former = ShareHarness(ShareShardBefore42, updates=9)
    former.initialize(1)
    former.write(leader=7, state=1)
    assert former.state().leader_epoch == 7
    former.write(leader=8, state=2)
    assert kinds(former) == "SUS"
    assert (former.state().state_epoch, former.state().leader_epoch) == (2, 8)
    present = ShareHarness(updates=9)
    present.initialize(1)
    present.write(leader=7, state=2)
    assert kinds(present) == "SU"
    assert (present.state().state_epoch, present.state().leader_epoch) == (1, 0)


@pytest.mark.parametrize("release", EVERY_RELEASE)
def test_deletion_is_a_tombstone(release: type[ShareShard]) -> None:
    """Epochs are forgotten with the state."""
    harness = ShareHarness(release)
    harness.initialize(4)
    harness.read(leader=4)
    assert harness.settle(harness.shard.decide_delete(KEY)) is None
    assert kinds(harness).endswith("T")
    assert not harness.shard.states
    assert harness.initialize(0) is None
    assert harness.write(leader=0) is None


def test_states_of_deleted_topics_are_deleted() -> None:
    """In one batch, and no others."""
    harness = ShareHarness()
    other_id = bytes(15) + b"\7"
    harness.topics[other_id] = 1
    for key in (
        KEY,
        OTHER,
        SharePartitionKey("h", TOPIC_ID, 0),
        SharePartitionKey("g", other_id, 0),
    ):
        harness.initialize(key=key)
    harness.settle(harness.shard.decide_topic_deletion([TOPIC_ID]))
    assert kinds(harness) == "SSSSTTT"
    assert list(harness.shard.states) == [SharePartitionKey("g", other_id, 0)]


def test_cold_share_partitions_get_a_snapshot() -> None:
    """So that their last one does not hold back pruning; once all have one, nothing is written."""
    harness = ShareHarness()
    harness.initialize()
    harness.now_ms += COLD_MS - 1
    harness.initialize(key=OTHER)
    harness.settle(harness.shard.decide_cold_snapshots(harness.now_ms))
    assert kinds(harness) == "SS"
    harness.now_ms += 1
    harness.settle(harness.shard.decide_cold_snapshots(harness.now_ms))
    assert kinds(harness) == "SSS"
    cold = harness.state()
    assert (cold.snapshot_epoch, cold.created_ms) == (1, FIRST_MS)
    assert cold.written_ms == FIRST_MS + COLD_MS
    harness.now_ms += COLD_MS
    harness.settle(harness.shard.decide_cold_snapshots(harness.now_ms))
    assert kinds(harness) == "SSSSS"
    harness.now_ms += COLD_MS
    harness.settle(harness.shard.decide_cold_snapshots(harness.now_ms))
    assert kinds(harness) == "SSSSS"


def test_redundant_records_end_at_the_oldest_last_snapshot() -> None:
    """A tombstone counts when it is written, and holds nothing back later."""
    harness = ShareHarness(updates=0)
    assert harness.shard.redundant_before is None
    harness.initialize()
    assert harness.shard.redundant_before is None
    harness.initialize(key=OTHER)
    harness.write()
    assert harness.shard.redundant_before == 1
    harness.write(key=OTHER)
    assert harness.shard.redundant_before == 2
    harness.settle(harness.shard.decide_delete(KEY))
    assert harness.shard.redundant_before == 3
    harness.settle(harness.shard.decide_delete(OTHER))
    assert harness.shard.redundant_before == 5


def test_an_update_without_a_snapshot_is_a_state() -> None:
    """Of state epoch 0, should a log begin with one."""
    harness = ShareHarness(updates=9)
    harness.initialize(3)
    harness.write((4, 6, ARCHIVED, 2), start=2, state=3)
    state = harness.reloaded(1).states[KEY]
    assert (state.state_epoch, state.start_offset, state.created_ms) == (0, 2, 0)
    assert state.batches == (StateBatch(4, 6, ARCHIVED, 2),)


def test_records_of_the_log_are_read_and_others_skipped() -> None:
    """A record type of a later release, and a record without a key."""
    harness = ShareHarness()
    harness.initialize(3, 17)
    key, value = harness.log[0].encoded()
    rows = [
        Record(key=key, value=value),
        Record(key=b"\x00\x63", value=b""),
        Record(key=None, value=b"?"),
    ]
    other = ShareHarness()
    other.shard.replay(RecordBatch(build_batch(rows)))
    assert other.shard.states == harness.shard.states


@pytest.mark.parametrize("combine", [combine_in_pairs, combine_in_one_sweep])
def test_the_stronger_of_two_batches_holds(combine) -> None:  # type: ignore[no-untyped-def]  # a function of the rules
    """By delivery count, then by delivery state; the release's own class is compared in
    tests/apache_kafka/test_share_batches.py.
    """
    former = [StateBatch(0, 9, AVAILABLE, 1), StateBatch(10, 19, AVAILABLE, 2)]
    added = [StateBatch(5, 14, ACKNOWLEDGED, 1), StateBatch(20, 20, AVAILABLE, 2)]
    assert combine(former, added, 2) == (
        StateBatch(2, 4, AVAILABLE, 1),
        StateBatch(5, 9, ACKNOWLEDGED, 1),
        StateBatch(10, 20, AVAILABLE, 2),
    )
    assert combine(former, added, 21) == ()


def test_only_a_sweep_joins_a_batch_that_was_complete() -> None:
    """Up to 4.3 the first batch was apart when the second one became its equal."""
    former = [StateBatch(0, 9, ACKNOWLEDGED, 1)]
    added = [StateBatch(10, 14, AVAILABLE, 1), StateBatch(10, 20, ACKNOWLEDGED, 1)]
    assert combine_in_one_sweep(former, added, -1) == (StateBatch(0, 20, ACKNOWLEDGED, 1),)
    assert combine_in_pairs(former, added, -1) == (*former, added[1])


@pytest.mark.parametrize("release", EVERY_RELEASE)
def test_impossible_batches_are_refused(release: type[ShareShard]) -> None:
    """Kafka's combiner fails, or does not end; one alone is taken as it is."""
    harness = ShareHarness(release, updates=9)
    harness.initialize()
    refusal = harness.write((0, 3, ACKNOWLEDGED, 1), (9, 5, ACKNOWLEDGED, 1))
    assert isinstance(refusal, tuple) and refusal[0] is ErrorCode.UNKNOWN_SERVER_ERROR
    assert harness.write((9, 5, ACKNOWLEDGED, 1)) is None
    refusal = harness.write((0, 3, ACKNOWLEDGED, 1))
    assert isinstance(refusal, tuple) and refusal[0] is ErrorCode.UNKNOWN_SERVER_ERROR
    assert kinds(harness) == "SU"
    with pytest.raises(ImpossibleBatch):
        release.combine(harness.state().batches, [StateBatch(0, 3, ACKNOWLEDGED, 1)], -1)
    forged = harness.log[-1]
    with pytest.raises(MalformedMessage):
        harness.shard.replay_record(forged, 2)


def test_share_partitions_hash_as_in_java() -> None:
    """SharePartitionKey.hashCode of 4.4.0: the order of cold snapshots depends on it."""
    assert key_hash(SharePartitionKey("g", bytes(range(16)), 3)) == 6169


def test_a_coordinator_key_has_the_topic_id_as_text() -> None:
    assert KEY.coordinator_key == "g:AAECAwQFBgcICQoLDA0ODw:0"
