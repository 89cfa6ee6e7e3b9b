"""Which epoch wrote which offsets.   Source: KIP-101, KIP-279, LeaderEpochFileCache."""

import pytest

from kraftsim.partitions.rules_log import LeaderEpochs
from protocol.storage.text_files import EpochStart

LOG_END = 50


def epochs() -> LeaderEpochs:
    """Epoch 2 from offset 10, epoch 4 from 20, epoch 7 from 30."""
    return LeaderEpochs([EpochStart(2, 10), EpochStart(4, 20), EpochStart(7, 30)])


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),  # before the oldest: it ended where the oldest begins
        (2, (2, 20)),
        (3, (2, 20)),  # never existed: the one below
        (4, (4, 30)),
        (6, (4, 30)),
        (7, (7, LOG_END)),
        (8, (-1, -1)),  # not known here
    ],
)
def test_epoch_ends_where_the_next_one_begins(asked: int, answer: tuple[int, int]) -> None:
    """The latest one ends with the log."""
    assert epochs().end_offset_for(asked, LOG_END) == answer
    assert LeaderEpochs().end_offset_for(asked, LOG_END) == (-1, -1)


@pytest.mark.parametrize(
    ("leader_epoch", "start_offset", "is_news", "starts"),
    [
        (7, 40, False, [(2, 10), (4, 20), (7, 30)]),
        (8, 50, True, [(2, 10), (4, 20), (7, 30), (8, 50)]),
        (8, 30, True, [(2, 10), (4, 20), (8, 30)]),  # nothing was ever written in epoch 7
        (7, 25, True, [(2, 10), (4, 20), (7, 25)]),
        (3, 15, True, [(2, 10), (3, 15)]),  # conflicts with everything later
    ],
)
def test_new_epoch_removes_conflicting_entries(
    leader_epoch: int, start_offset: int, is_news: bool, starts: list[tuple[int, int]]
) -> None:
    """Epochs and their start offsets only increase."""
    known = epochs()
    assert known.assign(leader_epoch, start_offset) is is_news
    assert list(known.starts) == starts


def test_epoch_lookup_by_offset_and_after_truncation() -> None:
    """A truncation removes the epochs that began behind it."""
    known = epochs()
    assert [known.epoch_at(offset) for offset in (5, 10, 29, 30)] == [None, 2, 4, 7]
    known.truncate_to(30)
    assert known.latest_epoch == 4
    known.truncate_to(0)
    assert known.latest_epoch is None
