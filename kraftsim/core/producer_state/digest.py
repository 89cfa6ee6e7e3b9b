"""A short digest of a partition's producer state: equal state has an equal digest, so that replicas can be compared by their events."""

from collections.abc import Iterable
from zlib import crc32

from kraftsim.core.producer_state.entry import ProducerStateEntry


def producer_digest(entries: Iterable[ProducerStateEntry]) -> str:
    """Return the digest of each producer's epoch, latest batch and open transaction, in the order of their ids."""
    rows = sorted((each.producer_id, each.producer_epoch, each.last_sequence, each.last_offset, each.first_transaction_offset) for each in entries)
    return f"{len(rows)}-{crc32(repr(rows).encode()):08x}"
