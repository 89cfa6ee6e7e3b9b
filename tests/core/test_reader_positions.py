"""How far a reader has come, and when it has seen everything."""

from kraftsim.core.clients.producer_steps import TopicPartition
from kraftsim.core.clients.reader_positions import ReaderPositions

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
LEADERS = {HERE: 1, THERE: 2}


def between(first_offset: int, end_offset: int) -> ReaderPositions:
    positions = ReaderPositions([HERE])
    positions.begin_at(HERE, first_offset)
    positions.end_at(HERE, end_offset)
    return positions


def test_both_ends_are_asked_for_before_anything_is_fetched() -> None:
    """Earliest and latest offset, by ListOffsets."""
    positions = ReaderPositions([HERE, THERE])
    positions.end_at(HERE, 5)
    assert positions.without_first_offset() == [HERE, THERE]
    assert positions.without_end_offset() == [THERE]
    assert positions.unfinished(LEADERS) == {}
    positions.begin_at(HERE, 0)
    assert positions.unfinished(LEADERS) == {1: [HERE]}
    assert positions.unfinished({THERE: 2}) == {}
    assert not positions.is_done


def test_a_partition_is_done_at_the_end_it_had_when_it_was_asked() -> None:
    """What is appended later is another read's business; an empty partition is done at once."""
    positions = between(3, 5)
    positions.advance(HERE, 4)
    assert not positions.is_done
    positions.advance(HERE, 9)
    assert positions.is_done
    assert between(7, 7).is_done


def test_a_partition_that_lost_its_tail_ends_where_it_ends_now() -> None:
    """After a loss of power the log may be shorter than it was: an empty answer at the high watermark is the end."""
    positions = between(0, 10)
    positions.advance(HERE, 4)
    positions.found_nothing(HERE, high_watermark=6)
    assert not positions.is_done
    positions.found_nothing(HERE, high_watermark=4)
    assert positions.is_done


def test_a_position_out_of_range_starts_over() -> None:
    """OFFSET_OUT_OF_RANGE: both ends must be asked for again."""
    positions = between(0, 10)
    positions.start_over(HERE)
    assert positions.without_first_offset() == positions.without_end_offset() == [HERE]
