"""How far a broker has come in the metadata log: nothing is acted on before it is committed, and a fork is noticed."""

import pytest

from kraftsim.node.broker.metadata_cursor import Committed, CommittedLost, MetadataCursor, WrongLeader
from protocol.batches import build_batch
from protocol.errors import ErrorCode
from protocol.malformed_batches import MalformedBatch
from protocol.messages.k01_fetch import EpochEndOffset, LeaderIdAndEpoch, PartitionData
from protocol.records import Record


def records(*batches: tuple[int, int, int]) -> bytes:
    """Build batches of (base offset, record count, leader epoch)."""
    return b"".join(build_batch([Record(value=b"v")] * count, base_offset=base, leader_epoch=epoch) for base, count, epoch in batches)


def told(cursor: MetadataCursor, high_watermark: int, *batches: tuple[int, int, int]) -> list[int]:
    """Give the cursor an answer and return the base offsets of what may be applied."""
    outcome = cursor.on_answer(PartitionData(high_watermark=high_watermark, records=records(*batches)))
    assert isinstance(outcome, Committed)
    return [batch.base_offset for batch in outcome.batches]


def test_batches_are_handed_out_once_they_are_committed() -> None:
    """A batch is committed when its end is at or below the high watermark, which a leader may not know yet (-1) and which never goes back."""
    cursor = MetadataCursor()
    assert told(cursor, -1, (0, 2, 1), (2, 3, 1)) == []
    assert (cursor.fetched_next_offset, cursor.last_fetched_epoch) == (5, 1)
    assert told(cursor, 4) == [0]
    assert told(cursor, 3) == []
    assert told(cursor, 6, (5, 1, 3)) == [2, 5]
    assert (cursor.applied_next_offset, cursor.last_fetched_epoch) == (6, 3)


def test_a_leader_that_is_another_one_is_named() -> None:
    """74, 75, 6: the newer epoch is taken over, an older one is not."""
    cursor = MetadataCursor()
    answer = PartitionData(error_code=ErrorCode.FENCED_LEADER_EPOCH, current_leader=LeaderIdAndEpoch(leader_id=102, leader_epoch=7))
    assert cursor.on_answer(answer) == WrongLeader(102)
    assert cursor.leader_epoch == 7
    cursor.on_answer(PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=3)))
    assert cursor.leader_epoch == 7


@pytest.mark.parametrize(
    ("epoch", "end_offset", "kept", "epoch_kept"),
    [
        (2, 6, 6, 2),  # the leader has less of epoch 2
        (1, 9, 4, 1),  # the leader never had epoch 2
        (1, 5, 4, 1),
        (2, 5, 4, 1),  # a batch is dropped whole
    ],
)
def test_what_the_leader_does_not_have_is_dropped_unless_it_was_committed(epoch: int, end_offset: int, kept: int, epoch_kept: int) -> None:
    """DivergingEpoch (KIP-595): the logs agree up to the smaller of both ends of the epoch."""
    cursor = MetadataCursor()
    told(cursor, 2, (0, 2, 1), (2, 2, 1), (4, 2, 2), (6, 2, 2))
    assert cursor.on_answer(PartitionData(diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset))) == Committed(())
    assert (cursor.fetched_next_offset, cursor.last_fetched_epoch) == (kept, epoch_kept)
    assert told(cursor, 100, (kept, 1, 3))[-1] == kept


def test_committed_records_that_the_leader_lost_are_told() -> None:
    """That cannot happen to a quorum that flushes before it counts."""
    cursor = MetadataCursor()
    told(cursor, 4, (0, 2, 1), (2, 2, 1))
    assert cursor.on_answer(PartitionData(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2))) == CommittedLost(2)


def test_a_damaged_batch_is_not_taken() -> None:
    """The checksum is looked at before anything is believed."""
    cursor = MetadataCursor()
    data = records((0, 2, 1))
    with pytest.raises(MalformedBatch):
        cursor.on_answer(PartitionData(high_watermark=2, records=data[:-1] + b"\xff"))
    assert cursor.fetched_next_offset == 0
