"""Sequence numbers of batches: 0 to 2^31-1, then 0 again.

Clients wrap, so the broker must wrap alike; arithmetic without the wrap-around was KAFKA-7692.
Source: DefaultRecordBatch.incrementSequence and decrementSequence, ProducerAppendInfo.inSequence.
"""

LAST_SEQUENCE = 2**31 - 1
NO_SEQUENCE = -1


def increment_sequence(sequence: int, by: int) -> int:
    """Return the sequence number `by` steps ahead; by is at most LAST_SEQUENCE."""
    return sequence + by if sequence <= LAST_SEQUENCE - by else by - (LAST_SEQUENCE - sequence) - 1


def decrement_sequence(sequence: int, by: int) -> int:
    """Return the sequence number `by` steps back; by is at most LAST_SEQUENCE."""
    return sequence - by if sequence >= by else LAST_SEQUENCE - (by - sequence) + 1


def sequences_between(first: int, following: int) -> int:
    """Return the number of sequence numbers from `first` up to `following`, exclusive."""
    return (following - first) % (LAST_SEQUENCE + 1)


def is_next_sequence(last_sequence: int, base_sequence: int) -> bool:
    """Return whether a batch that starts at base_sequence follows a batch that ended at last_sequence (NO_SEQUENCE: nothing came before)."""
    return base_sequence == last_sequence + 1 or (base_sequence == 0 and last_sequence == LAST_SEQUENCE)
