"""The metadata log in a quorum of one: what is committed, and when.   Source: KIP-595, KAFKA-10533, KAFKA-12619, KAFKA-10527."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftsim.core.raft.leader_log import AppendedOffsets, LeaderLog, elect_sole_voter
from kraftsim.events.event import Event
from kraftsim.events.metadata import MetadataAppended, MetadataCommitted
from protocol.disk.quorum_state import QuorumState, QuorumVoter


def leader_log(noted: list[Event] | None = None, *, log_end_offset: int = 10) -> LeaderLog:
    return LeaderLog(leader_epoch=4, log_end_offset=log_end_offset, note=(noted if noted is not None else []).append)


class CountsUnflushed(LeaderLog):
    """The bug of KAFKA-10533."""

    def _counted_end_offset(self) -> int:
        return self.log_end_offset


@pytest.mark.parametrize(
    ("persisted", "last_log_epoch", "won"),
    [
        (None, 0, 1),
        (QuorumState(leader_id=101, leader_epoch=4), 4, 5),  # it never leads the same epoch twice
        (QuorumState(voted_id=101, leader_epoch=4), 3, 5),  # a vote that led nowhere
        (QuorumState(leader_id=101, leader_epoch=2), 6, 7),  # a quorum-state older than the log
    ],
)
def test_the_only_voter_wins_an_epoch_that_nobody_has_seen(persisted: QuorumState | None, last_log_epoch: int, won: int) -> None:
    """First it votes for itself, then it leads; both go to disk."""
    election = elect_sole_voter(101, persisted, last_log_epoch)
    assert election.leader_epoch == won
    assert election.voted == QuorumState(voted_id=101, leader_epoch=won, current_voters=[QuorumVoter(voter_id=101)])
    assert election.elected == QuorumState(leader_id=101, leader_epoch=won, current_voters=[QuorumVoter(voter_id=101)])


def test_a_record_is_committed_when_it_is_flushed(noted: list[Event]) -> None:
    """Written is not enough; what is flushed may be less than what is written."""
    log = leader_log(noted)
    assert log.append(1, "LeaderChangeMessage") == AppendedOffsets(first_offset=10, last_offset=10)
    assert log.append(3) == AppendedOffsets(first_offset=11, last_offset=13)
    assert (log.on_written(), log.on_flushed(12), log.on_flushed(12), log.on_flushed(14)) == (None, 12, None, 14)
    assert noted == [
        MetadataAppended(leader_epoch=4, first_offset=10, last_offset=10, record_kinds="LeaderChangeMessage"),
        MetadataAppended(leader_epoch=4, first_offset=11, last_offset=13, record_kinds=""),
        MetadataCommitted(leader_epoch=4, high_watermark=12),
        MetadataCommitted(leader_epoch=4, high_watermark=14),
    ]


def test_nothing_is_committed_before_the_record_that_begins_the_epoch() -> None:
    """Also not what earlier epochs left behind.   Source: KAFKA-12619."""
    log = leader_log()
    assert log.on_flushed(10) is None
    assert (log.high_watermark, log.knows_high_watermark) == (0, False)
    log.append(1)
    assert log.on_flushed(11) == 11
    assert log.knows_high_watermark


def test_counting_unflushed_records_commits_them_when_they_are_written() -> None:
    """What the bug switch swaps is one method."""
    log = CountsUnflushed(leader_epoch=4, log_end_offset=10, note=lambda event: None)
    log.append(2)
    assert (log.on_written(), log.on_flushed(12)) == (12, None)


@given(st.lists(st.tuples(st.sampled_from(["append", "write", "flush", "late flush"]), st.integers(1, 5)), max_size=40))
def test_the_high_watermark_never_goes_back_nor_beyond_the_flush(story: list[tuple[str, int]]) -> None:
    """Flushes may finish late and out of order."""
    log = leader_log()
    before = 0
    for step, number in story:
        match step:
            case "append":
                log.append(number)
            case "write":
                assert log.on_written() is None
            case "flush":
                log.on_flushed(log.log_end_offset)
            case _:
                log.on_flushed(max(10, log.log_end_offset - number))
        assert before <= log.high_watermark <= log.flushed_end_offset <= log.log_end_offset
        before = log.high_watermark
    assert before == 0 or before > log.epoch_start_offset
