"""A reader's positions, and when it is complete."""

from kraftsim.clients.rules_consumer import ReaderPositions
from kraftsim.clients.rules_producer_steps import TopicPartition

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
LEADERS = {HERE: 1, THERE: 2}


def between(first_offset: int, end_offset: int) -> ReaderPositions:
    positions = ReaderPositions([HERE])
    positions.set_start(HERE, first_offset)
    positions.end_at(HERE, end_offset)
    return positions


def test_both_ends_are_listed_before_any_fetch() -> None:
    """Earliest and latest offset, by ListOffsets."""
    positions = ReaderPositions([HERE, THERE])
    positions.end_at(HERE, 5)
    assert positions.without_first_offset() == [HERE, THERE]
    assert positions.without_end_offset() == [THERE]
    assert positions.unfinished(LEADERS) == {}
    positions.set_start(HERE, 0)
    assert positions.unfinished(LEADERS) == {1: [HERE]}
    assert positions.unfinished({THERE: 2}) == {}
    assert not positions.is_done


def test_partition_is_complete_at_the_end_offset_that_was_listed() -> None:
    """Later records belong to another read; an empty partition is complete at once."""
    positions = between(3, 5)
    positions.advance(HERE, 4)
    assert not positions.is_done
    positions.advance(HERE, 9)
    assert positions.is_done
    assert between(7, 7).is_done


def test_partition_that_lost_its_tail_ends_at_its_current_end() -> None:
    """After a power loss the log may be shorter: an empty response at the high watermark is the
    end.
    """
    positions = between(0, 10)
    positions.advance(HERE, 4)
    positions.found_nothing(HERE, high_watermark=6)
    assert not positions.is_done
    positions.found_nothing(HERE, high_watermark=4)
    assert positions.is_done


def test_out_of_range_position_starts_over() -> None:
    """OFFSET_OUT_OF_RANGE: both ends must be listed again."""
    positions = between(0, 10)
    positions.start_over(HERE)
    assert positions.without_first_offset() == positions.without_end_offset() == [HERE]
