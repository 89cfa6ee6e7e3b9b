"""The states of a transactional id, and their valid transitions.

Source: KIP-98, KIP-890; org.apache.kafka.coordinator.transaction.TransactionState.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The status in a record. `label` is the name in DescribeTransactions."""

    EMPTY = 0
    """No transaction since the producer was initialized."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Prepared: the result is final, only the markers are pending."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All markers are written."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """About to expire; never in the log."""
    PREPARE_EPOCH_FENCE = 7
    """The producer is being fenced before its transaction is aborted; never in the log."""

    @property
    def label(self) -> str:
        """Kafka's name of the state."""
        return "".join(part.capitalize() for part in self.name.split("_"))


EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT
DEAD: Final = TransactionState.DEAD
PREPARE_EPOCH_FENCE: Final = TransactionState.PREPARE_EPOCH_FENCE

AT_REST: Final = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""No transaction: a producer can be initialized, a transaction started, the id expired."""
PREPARED: Final = (PREPARE_COMMIT, PREPARE_ABORT)
"""Prepared, with markers pending."""

ENTERED_FROM: Final[Mapping[TransactionState, tuple[TransactionState, ...]]] = {
    EMPTY: AT_REST,
    ONGOING: (ONGOING, *AT_REST),
    PREPARE_COMMIT: (ONGOING,),
    PREPARE_ABORT: (
        ONGOING,
        PREPARE_EPOCH_FENCE,
        *AT_REST,
        # at rest: with transaction.version 2 only, where an abort without a transaction bumps the
        # epoch
    ),
    COMPLETE_COMMIT: (PREPARE_COMMIT,),
    COMPLETE_ABORT: (PREPARE_ABORT,),
    DEAD: AT_REST,
    PREPARE_EPOCH_FENCE: (ONGOING,),
}
"""state -> its valid previous states. Any other transition is a bug."""

COMPLETED: Final[Mapping[TransactionState, TransactionState]] = {
    PREPARE_COMMIT: COMPLETE_COMMIT,
    PREPARE_ABORT: COMPLETE_ABORT,
}
"""The completed state after all markers are written."""

STATE_BY_LABEL: Final[Mapping[str, TransactionState]] = {
    state.label: state for state in TransactionState
}


def may_enter(state: TransactionState, current: TransactionState) -> bool:
    """Return whether a transition is valid."""
    return current in ENTERED_FROM[state]
