"""Producer epochs of transactional ids: where they end, and which of them may end a transaction.

The last epoch, 32767, is the coordinator's own: no producer is ever given it, so that whoever holds 32766 can still be fenced.
Source: KIP-360, KIP-890; TransactionMetadata.isEpochExhausted, TransactionCoordinator.endTransaction.
"""

from typing import Final

from kraftsim.core.transactions.transaction_entry import TransactionEntry
from kraftsim.core.transactions.transaction_state import TransactionState
from protocol.batches import NO_PRODUCER_EPOCH

LAST_GIVEN_EPOCH: Final = 32766
"""A producer that holds it gets another producer id instead of another epoch."""
FENCING_EPOCH: Final = 32767


def is_exhausted(producer_epoch: int) -> bool:
    """Tell whether a producer id has no further epoch to give."""
    return producer_epoch >= LAST_GIVEN_EPOCH


def is_known_producer(entry: TransactionEntry, producer_id: int, producer_epoch: int) -> bool:
    """Tell whether the id and epoch that a producer names may be its own.

    Nothing was ever given; or the id is the one given last; or it is the one before, used up: the answer that named the new one may be lost.
    """
    facts = entry.facts
    if facts.producer_epoch == NO_PRODUCER_EPOCH or producer_id == facts.producer_id:
        return True
    return producer_id == facts.previous_producer_id and is_exhausted(producer_epoch)


def is_repeated_end(entry: TransactionEntry, producer_id: int, producer_epoch: int) -> bool:
    """Tell whether an EndTxn that bumps epochs is one that was carried out before: its epoch is one behind, or its id was used up by it."""
    facts = entry.facts
    if facts.producer_epoch == producer_epoch + 1:
        return True
    return is_repeated_overflow(entry, producer_id, producer_epoch)


def is_repeated_overflow(entry: TransactionEntry, producer_id: int, producer_epoch: int) -> bool:
    """Tell whether an EndTxn used up the last epoch of its id, and was answered with another id."""
    facts = entry.facts
    return facts.previous_producer_id == producer_id and producer_epoch == LAST_GIVEN_EPOCH and facts.producer_epoch == 0


def may_end_with_bump(entry: TransactionEntry, producer_id: int, producer_epoch: int) -> bool:
    """Tell whether the epoch of an EndTxn of transaction.version 2 is one that may end, or have ended, the transaction."""
    facts = entry.facts
    if facts.state in (TransactionState.ONGOING, TransactionState.EMPTY):
        return producer_epoch == facts.producer_epoch
    return producer_epoch == facts.producer_epoch or is_repeated_end(entry, producer_id, producer_epoch)
