"""Producer epochs of transactional ids: exhaustion, and validation in EndTxn.

The last epoch, 32767, is reserved for the coordinator: it is never given to a producer, so that the producer with 32766 can still be fenced.
Source: KIP-360, KIP-890; TransactionMetadata.isEpochExhausted, TransactionCoordinator.endTransaction.
"""

from typing import Final

from kraftsim.core.transactions.transaction_entry import TransactionEntry
from kraftsim.core.transactions.transaction_state import TransactionState
from protocol.batches import NO_PRODUCER_EPOCH

LAST_GIVEN_EPOCH: Final = 32766
"""The last epoch of a producer: afterwards it gets another producer id."""
FENCING_EPOCH: Final = 32767


def is_exhausted(producer_epoch: int) -> bool:
    """Return whether the epochs of a producer id are exhausted."""
    return producer_epoch >= LAST_GIVEN_EPOCH


def is_known_producer(entry: TransactionEntry, producer_id: int, producer_epoch: int) -> bool:
    """Return whether the id and epoch in a request may be the producer's.

    Either none was given yet; or the id is the current one; or the previous, exhausted one: the response with the new one may be lost.
    """
    facts = entry.facts
    if facts.producer_epoch == NO_PRODUCER_EPOCH or producer_id == facts.producer_id:
        return True
    return producer_id == facts.previous_producer_id and is_exhausted(producer_epoch)


def is_repeated_end(entry: TransactionEntry, producer_id: int, producer_epoch: int) -> bool:
    """Return whether an EndTxn that bumps the epoch is a retry of a completed one: its epoch is one behind, or it exhausted its id."""
    facts = entry.facts
    if facts.producer_epoch == producer_epoch + 1:
        return True
    return is_repeated_overflow(entry, producer_id, producer_epoch)


def is_repeated_overflow(entry: TransactionEntry, producer_id: int, producer_epoch: int) -> bool:
    """Return whether an EndTxn used the last epoch of its id, and was answered with another id."""
    facts = entry.facts
    return facts.previous_producer_id == producer_id and producer_epoch == LAST_GIVEN_EPOCH and facts.producer_epoch == 0


def may_end_with_bump(entry: TransactionEntry, producer_id: int, producer_epoch: int) -> bool:
    """Return whether the epoch of a transaction.version 2 EndTxn is valid for ending the transaction, or for a retry."""
    facts = entry.facts
    if facts.state in (TransactionState.ONGOING, TransactionState.EMPTY):
        return producer_epoch == facts.producer_epoch
    return producer_epoch == facts.producer_epoch or is_repeated_end(entry, producer_id, producer_epoch)
