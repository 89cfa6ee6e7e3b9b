"""Sequence numbers run from 0 to 2^31-1 and wrap around.   Source: KIP-98, KAFKA-7692."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftsim.producer_state.rules_entries import (
    LAST_SEQUENCE,
    NO_SEQUENCE,
    decrement_sequence,
    increment_sequence,
    is_next_sequence,
)

sequences = st.one_of(
    st.integers(0, 5), st.integers(LAST_SEQUENCE - 5, LAST_SEQUENCE), st.integers(0, LAST_SEQUENCE)
)


@given(sequences, sequences)
def test_increment_is_arithmetic_modulo_two_to_the_31(sequence: int, by: int) -> None:
    """Both directions agree with plain modulo arithmetic, and with each other."""
    assert increment_sequence(sequence, by) == (sequence + by) % 2**31
    assert decrement_sequence(sequence, by) == (sequence - by) % 2**31
    assert decrement_sequence(increment_sequence(sequence, by), by) == sequence


@given(sequences, sequences)
def test_exactly_one_sequence_follows_another(last_sequence: int, base_sequence: int) -> None:
    """The next batch starts one further, and 0 follows the last sequence."""
    assert is_next_sequence(last_sequence, base_sequence) == (
        base_sequence == (last_sequence + 1) % 2**31
    )


@pytest.mark.parametrize(
    ("base_sequence", "follows"), [(0, True), (1, False), (LAST_SEQUENCE, False)]
)
def test_producer_begins_at_zero(base_sequence: int, follows: bool) -> None:
    """Without a previous batch only 0 is in order."""
    assert is_next_sequence(NO_SEQUENCE, base_sequence) == follows
